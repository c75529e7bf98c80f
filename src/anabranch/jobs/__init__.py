"""Jobs as files: declared in a few lines, run on main, on a branch, or from the positions of a tag.

`job` and `sql_job` declare, `load` runs a file that does, and `run_jobs` keeps jobs running. Only the last needs Spark.
"""

from anabranch.jobs.job import Job, job, sql_job
from anabranch.jobs.source import Source, files, static, stream, topic

__all__ = ["Job", "Source", "files", "job", "sql_job", "static", "stream", "topic"]
