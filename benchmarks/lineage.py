"""What it costs to say where rows come from."""

from __future__ import annotations

import statistics

from benchmarks.contestants import Contestant
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark

WITH = Contestant("with lineage", "benchmarks.workers.lineage", ("anabranch", "pyspark", "pyarrow"))
WITHOUT = Contestant("without", "benchmarks.workers.lineage", ("anabranch", "pyspark", "pyarrow"))
ROWS = 1_000
WARM_UP = 10
"""First commits and batches, which load code, do not count."""


@benchmark("lineage", "Lineage", WITH, WITHOUT)
def lineage(run: Run) -> list[Row]:
    """Commits of 1,000 rows in a job that has read a table, and beside them the same without a job, in turns in one
    process. Then the micro-batches of a stream from table to table, and what of each is lineage: gathering from the
    query's checkpoint what the batch has read, and writing it down. That is measured after the stream has ended, by
    gathering once more for each of its batches. Medians."""
    count, batches = run.size(500, 40), run.size(100, 15)
    run.log(f"  {count} commits, in turns")
    home = run.scratch / "lineage"
    lap = run.laps(WITH, "commits", home=str(home / "commits"), rows=ROWS, count=count)
    commits = {WITH.name: _median(lap.seconds), WITHOUT.name: _median(lap.facts["without"])}
    run.log(f"  {batches} micro-batches")
    lap = run.laps(WITH, "micro_batches", home=str(home / "stream"), batches=batches)
    whole, gathering = _median(lap.seconds), _median(lap.facts["gathering"]).seconds
    more = (commits[WITH.name].seconds - commits[WITHOUT.name].seconds) * 1000
    share = gathering / (whole.seconds - gathering) * 100
    return [
        Row(f"commit {ROWS:,} rows", commits, [Verdict("at most 2 ms more", more, 2, "ms")]),
        Row(
            f"micro-batch of {ROWS:,} rows, median of {batches - WARM_UP}",
            {WITH.name: whole},
            [Verdict("at most 10 % for lineage", share, 10, "%")],
            f"{gathering * 1000:.1f} ms of it are lineage",
        ),
    ]


def _median(seconds: list[float]) -> Measure:
    counted = tuple(seconds[WARM_UP:])
    return Measure(statistics.median(counted), counted)
