"""A cascade whose jobs are Spark's: made again on branches, published, taken back, published again, and gone on with."""

from dataclasses import replace

import pytest

import anabranch
from anabranch import InvalidInputError
from anabranch.cascade import plan_cascade, run_cascade, undo_cascade
from anabranch.jobs.job import job, sql_job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.storage.open import open_storage

COLUMNS = "id BIGINT NOT NULL, v BIGINT"


def double_of(orders):
    return orders.selectExpr("id", "v * 2 AS v")


double = job("double", sources={"orders": "db.orders"}, sink="db.clean")(double_of)

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


def run(lake, how=None, jobs=JOBS):
    statuses = run_jobs(jobs, lake, how or Run(), Schedule(AVAILABLE_NOW))
    assert [status.state.value for status in statuses] == ["ended"] * 2, statuses


def append(table, first, count, factor=1):
    table.append([{"id": i, "v": i * factor} for i in range(first, first + count)])


def values(lake, table):
    return sorted((row["id"], row["v"]) for row in lake.table(table).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "goes_on",
    [pytest.param(way, marks=pytest.mark.long) for way in (False, True)],
    ids=["published", "taken back and on"],
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


@pytest.mark.long
def test_a_branch_that_takes_the_wrong_rows_away_itself(lake, spark):
    """What the jobs make again is read from what is left, whatever a job does at commits that take rows away."""
    orders = lake.create_table("db.daily", f"{COLUMNS}, day INT", partition_by=["day"])
    source = anabranch.stream("db.daily", {"scan.on-overwrite": "skip"})
    double = job("double", sources={"orders": source}, sink="db.clean")(double_of)
    sums = sql_job(
        "sums",
        "SELECT id % 2 AS id, sum(v) AS v FROM orders GROUP BY id % 2",
        sources={"orders": "db.daily"},
        sink="db.even",
        mode="complete",
    )
    for day in range(3):
        orders.append(
            [{"id": i, "v": i * (100 if day == 1 else 1), "day": day} for i in (2 * day, 2 * day + 1)]
        )
        run(lake, jobs=(double, sums))
    orders.create_branch("fix", orders.create_tag("all").name)
    orders.branch("fix").overwrite([{"id": i, "v": i, "day": 1} for i in (2, 3)], partition={"day": 1})
    orders.replace_main_branch("fix")
    result = run_cascade(lake, "db.daily", (double, sums))
    assert result.group is not None, result.failed
    assert values(lake, "db.clean") == [(i, 2 * i) for i in range(6)]
    assert values(lake, "db.even") == [(0, 6), (1, 9)]
    assert plan_cascade(lake, "db.daily", (double, sums)).is_done
    orders.append([{"id": i, "v": i, "day": 3} for i in (6, 7)])
    run(lake, jobs=(double, sums))
    assert values(lake, "db.clean") == [(i, 2 * i) for i in range(8)]
    assert values(lake, "db.even") == [(0, 12), (1, 16)]


@pytest.mark.long
def test_tables_that_are_only_looked_up_in(spark, warehouse):
    """A wrong name reaches all that looked it up; jobs look it up in the corrected table, or nothing is published."""
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("db.raw", "db.names"):
        lake.create_table(table, "k BIGINT, name STRING")
    lake.create_table("db.orders", "id BIGINT, k BIGINT")
    for table in ("db.named", "db.hidden"):
        lake.create_table(table, "id BIGINT, name STRING")
    names = job("names", sources={"raw": "db.raw"}, sink="db.names")(lambda raw: raw)
    declared = sql_job(
        "named",
        "SELECT id, name FROM orders JOIN names USING (k)",
        sources={"orders": "db.orders", "names": anabranch.static("db.names")},
        sink="db.named",
    )

    def code(orders):
        looked_up = spark.read.format("anabranch").option("warehouse", warehouse).load("db.names")
        return orders.join(looked_up, "k").select("id", "name")

    hidden = job("hidden", sources={"orders": "db.orders"}, sink="db.hidden")(code)
    jobs = (names, declared, hidden)

    def go():
        for together in ((names,), (declared, hidden)):  # nobody knows that the hidden one has to wait
            statuses = run_jobs(together, lake, Run(), Schedule(AVAILABLE_NOW))
            assert {status.state.value for status in statuses} == {"ended"}, statuses

    raw, orders = lake.table("db.raw"), lake.table("db.orders")
    raw.append([{"k": 1, "name": "one"}])
    orders.append([{"id": 1, "k": 1}])
    go()
    raw.create_tag("good")
    raw.append([{"k": 2, "name": "wrong"}])
    go()
    orders.append([{"id": 2, "k": 2}])
    go()
    assert raw.lineage.impact("2").tables[:2] == ("db.raw", "db.names")
    assert {*raw.lineage.impact("2").tables} == {"db.raw", "db.names", "db.named", "db.hidden"}
    raw.create_branch("fix", "good")
    raw.branch("fix").append([{"k": 2, "name": "two"}])
    raw.replace_main_branch("fix")

    plan = plan_cascade(lake, "db.raw", jobs)
    assert {*plan.tables} == {"db.names", "db.named", "db.hidden"}
    (hides,) = [step for step in plan.steps if step.table == "db.hidden"]
    assert "which it does not declare" in hides.jobs[0].notices[-1]
    with pytest.raises(InvalidInputError, match=r"job 'hidden' has read main of 'db.names'"):
        run_cascade(lake, "db.raw", jobs)
    assert rows_of(lake, "db.named") == [(1, "one"), (2, "wrong")]

    # Declared, it is made from the corrected names, as the other one is.
    lake.table("db.hidden").delete_branch(hides.branch)
    open_storage(warehouse).delete_folder(f"_checkpoints/hidden@{hides.branch}")
    jobs = (names, declared, replace(declared, name="hidden", sink="db.hidden"))
    assert run_cascade(lake, "db.raw", jobs).group is not None
    for table in ("db.named", "db.hidden"):
        assert rows_of(lake, table) == [(1, "one"), (2, "two")], table


def rows_of(lake, table):
    return sorted((row["id"], row["name"]) for row in lake.table(table).scan().to_arrow().to_pylist())
