"""A correction is made by one version of its jobs: what a former one has left on a branch is not gone on with."""

import pytest

import anabranch
from anabranch.cascade import CascadeOptions, on_spark, run_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


def times(factor, *, fails=False):
    """The job in a version that multiplies by a factor."""

    def multiply(raw):
        if fails:
            raise KeyError("a mistake in the file")
        return raw.selectExpr("id", f"v * {factor} AS v")

    return job("multiply", sources={"raw": "db.raw"}, sink="db.out")(multiply)


def feed(lake, ids, made_by):
    lake.table("db.raw").append([{"id": i, "v": i} for i in ids])
    statuses = run_jobs([made_by], lake, Run(), Schedule(AVAILABLE_NOW))
    assert [status.state.value for status in statuses] == ["ended"]


@pytest.mark.long
def test_code_that_changed_since_rows_were_made_begins_anew(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("db.raw", "db.out"):
        lake.create_table(table, COLUMNS)
    feed(lake, range(2), times(2))
    lake.table("db.out").create_tag("good")
    feed(lake, range(2, 4), times(900))

    def correct(made_by, **how):
        runner = on_spark(policy=Policy(most=0))
        return run_correction(lake, "db.out", "good", [made_by], runner=runner, **how)

    assert correct(times(2, fails=True)).failed  # it has made nothing, so it may change
    assert correct(times(3), options=CascadeOptions(publish=False)).done == ("db.out",)
    with pytest.raises(
        InvalidInputError, match="the code of job 'multiply' is not that by which it has made rows"
    ) as no:
        correct(times(2))
    assert "--name correct-db.out-good.again" in no.value.hint
    feed(lake, range(4, 6), times(900))
    assert correct(times(2), name="again").group is not None
    rows = lake.table("db.out").scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == [(i, 2 * i) for i in range(6)]
