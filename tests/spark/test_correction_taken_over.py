"""A process that was silent in the middle of a batch job of a correction, which another one carries out to its end."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.cascade import CascadeOptions, on_spark, run_correction
from anabranch.jobs.board import Board
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import static
from anabranch.jobs.status import State
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.jobs.underway import FOLDER
from anabranch.storage.open import open_storage
from tests.support.lengths import first_short

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


def times(factor):
    return job("times", sources={"raw": "db.raw"}, sink="db.out")(
        lambda raw: raw.selectExpr("id", f"v * {factor} AS v")
    )


def summed(mode, meanwhile=lambda: None):
    """A batch job that reads the corrected table; what happens when it has read it, and before its rows are written."""

    def make(out):
        made = out.groupBy((out.id % 2).alias("id")).sum("v").toDF("id", "v")
        meanwhile()
        return made

    return job("summed", sources={"out": static("db.out")}, sink="db.sums", mode=mode)(make)


def values(lake, table):
    return sorted((row["id"], row["v"]) for row in lake.table(table).scan().to_arrow().to_pylist())


def run(lake, *jobs):
    statuses = run_jobs(jobs, lake, Run(), Schedule(AVAILABLE_NOW))
    assert {status.state.value for status in statuses} == {"ended"}, statuses


def silent(warehouse):
    """Others take the one who holds the correction for dead."""
    board = Board(open_storage(warehouse, {}), folder=FOLDER)
    (record,) = board.all()
    board.write(replace(record, status=replace(record.status, state=State.STOPPED)))


@pytest.mark.long
@pytest.mark.parametrize("mode", first_short(["append", "overwrite"]))
def test_its_rows_come_once_and_are_those_of_the_one_that_published(spark, warehouse, mode):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("db.raw", "db.out", "db.sums"):
        lake.create_table(table, COLUMNS)
    lake.table("db.raw").append([{"id": i, "v": i} for i in range(4)])
    run(lake, times(1))
    lake.table("db.out").create_tag("good")
    lake.table("db.raw").append([{"id": i, "v": i} for i in range(4, 6)])
    run(lake, times(900))
    run(lake, summed(mode))
    others = []

    def correct(made_by, **how):
        return run_correction(
            *(lake, "db.out", "good", [times(1), made_by], CascadeOptions()),
            runner=on_spark(policy=Policy(most=0)),
            **how,
        )

    def taken_over():
        if others:
            return
        others.append(None)
        silent(warehouse)
        lake.table("db.raw").append([{"id": 6, "v": 6}])  # which the one that goes on takes in
        others[:] = [correct(summed(mode))]

    (failed,) = correct(summed(mode, taken_over)).failed
    assert (
        "a commit of this identity is there already in 'db.sums$branch_correct-db.out-good'" in failed.message
    )
    assert others[0].group is not None
    assert values(lake, "db.out") == [(i, i) for i in range(7)]
    assert values(lake, "db.sums") == [(0, 12), (1, 9)]
    assert len(lake.groups()) == 1
