"""A cascade whose jobs are Spark's: made again on branches, published, taken back, published again, and gone on with."""

import pytest

import anabranch
from anabranch.cascade import plan_cascade, run_cascade, undo_cascade
from anabranch.jobs.job import job, sql_job
from anabranch.jobs.run import Run, Schedule, run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


@job("double", sources={"orders": "db.orders"}, sink="db.clean")
def double(orders):
    return orders.selectExpr("id", "v * 2 AS v")


even = sql_job(
    "even", "SELECT id, v FROM clean WHERE id % 2 = 0", sources={"clean": "db.clean"}, sink="db.even"
)
JOBS = (double, even)


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("db.orders", "db.clean", "db.even"):
        lake.create_table(table, COLUMNS)
    return lake


def run(lake, how=None):
    statuses = run_jobs(JOBS, lake, how or Run(), Schedule(AVAILABLE_NOW))
    assert [status.state.value for status in statuses] == ["ended"] * 2, statuses


def append(table, first, count, factor=1):
    table.append([{"id": i, "v": i * factor} for i in range(first, first + count)])


def values(lake, table):
    return sorted((row["id"], row["v"]) for row in lake.table(table).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "goes_on", [False, pytest.param(True, marks=pytest.mark.long)], ids=["published", "taken back and on"]
)
def test_the_story(lake, goes_on):
    orders = lake.table("db.orders")
    append(orders, 0, 3)
    run(lake)
    orders.create_tag("good")
    append(orders, 3, 3, factor=100)
    run(lake)
    wrong = [values(lake, table) for table in ("db.clean", "db.even")]
    orders.create_branch("fix", "good")
    append(orders.branch("fix"), 3, 3)
    orders.replace_main_branch("fix")

    found = plan_cascade(lake, "db.orders", JOBS)
    assert [(step.table, step.fork, step.problems) for step in found.steps] == [
        ("db.clean", 1, ()),
        ("db.even", 1, ()),
    ]
    result = run_cascade(lake, "db.orders", JOBS)
    assert result.group is not None, result.failed
    right = [[(i, 2 * i) for i in range(6)], [(i, 2 * i) for i in range(0, 6, 2)]]
    assert [values(lake, table) for table in ("db.clean", "db.even")] == right
    if not goes_on:
        return

    undo_cascade(lake, table="db.orders")
    assert [values(lake, table) for table in ("db.clean", "db.even")] == wrong
    assert run_cascade(lake, "db.orders", JOBS).group is not None
    assert [values(lake, table) for table in ("db.clean", "db.even")] == right

    append(orders, 6, 2)
    run(lake)
    assert values(lake, "db.clean") == [(i, 2 * i) for i in range(8)]
    assert values(lake, "db.even") == [(i, 2 * i) for i in range(0, 8, 2)]
