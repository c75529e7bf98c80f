"""The rows of a job, with what its function read while making them.

A function that returns a DataFrame has read nothing: what Spark reads is in the plan of each batch. But it may also have
counted a table, or taken rows of one into Python, and computed its DataFrame with them. Such reads go into every commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.jobs.frames import Reading, frames_of, rows_of
from anabranch.jobs.job import Job
from anabranch.lineage.recording import Gathered, JobRun, gathering, unknown_rows
from anabranch.spark.lineage.job_marks import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ_BEFORE: Final = (
    "its rows may be made of what this process had read before the function of the job was called: {}; read inside of the "
    "function"
)


@dataclass(frozen=True, slots=True)
class Made:
    """Result of a job's function."""

    rows: DataFrame
    looked_up: Gathered


def made_by(job: Job, reading: Reading) -> Made:
    """Return the rows of a job. Raises as `frames_of` and `rows_of`, and what the function raises."""
    with gathering(job.name, mark=lambda run: marked(reading.lake.spark, run)) as reads:
        rows = made_in(reads, job, reading)
    return Made(rows, reads.seen)


def made_in(run: JobRun, job: Job, reading: Reading) -> DataFrame:
    """Return the same, in a run that records reads."""
    rows = rows_of(job, frames_of(job, reading), reading.lake)
    before = unknown_rows(None, but=run.seen.inputs, of_jobs=False)
    if before is not None:
        run.problem(_READ_BEFORE.format(before), is_positioned=True)
    return rows
