"""State of jobs: what a query keeps between batches, and how a job that begins at a point gets it.

A job with aggregations, deduplication, joins of streams or state of its own is more than the positions of its sources.
Where such a job begins at a tag or at the starting point of a cascade, it gets the state that belongs to that point:

* *carried*: copied from the checkpoint of the query whose commit is the point, if that still has it and the operators
  with state are the same (`carry`);
* *rebuilt*: the corrected query reads its sources from their beginning to the point in one batch whose output is
  withheld (`rebuild`);
* *from the beginning*: output mode ``complete`` makes its whole table again (`rebuild`).

`settle` chooses. Where none is possible the job does not start.
"""
