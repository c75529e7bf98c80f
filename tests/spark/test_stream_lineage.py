"""A batch of a stream with state says all that its rows may have been made of, and where the job goes on all the same."""

import datetime as dt

import pytest

import anabranch
from anabranch.jobs.run import run_jobs
from anabranch.jobs.supervise import State
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.lineage.model import TableInput, lineage_of
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.lookups import Lookups
from anabranch.spark.lineage.stream_lineage import held_in_state
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.open import open_storage
from anabranch.streaming.offsets import BEGINNING, Offset, Position

NOW = Schedule(AVAILABLE_NOW, Policy(most=0))


@pytest.fixture
def lake(spark, warehouse):
    return anabranch.Lake(open_storage(warehouse), spark=spark)


def entry_of(table):
    return lineage_of(table.snapshot.properties, where="test")


def read(inputs):
    return sorted((i.name, i.after, i.through) for i in inputs if isinstance(i, TableInput))


def done(lake, *jobs):
    statuses = run_jobs(jobs, lake, None, NOW)
    assert [s.state for s in statuses] == [State.ENDED] * len(jobs), statuses


def job(function, name, sink, sources, **how):
    return anabranch.job(name, sources=sources, sink=sink, **how)(function)


@pytest.mark.long
def test_rows_of_windows_and_totals_are_made_of_what_the_state_held(lake, spark):
    orders = lake.create_table(
        "db.orders",
        "id BIGINT, k BIGINT, ts TIMESTAMP(3) WITH LOCAL TIME ZONE, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
    )
    names = lake.create_table("db.names", "k BIGINT, name STRING")
    lake.create_table("db.windows", "k BIGINT, n BIGINT")
    lake.create_table("db.totals", "name STRING, n BIGINT")
    windows = job(
        lambda o: o.groupBy("k", spark_window("ts", "10 seconds")).count().selectExpr("k", "count AS n"),
        "windows",
        "db.windows",
        {"o": "db.orders"},
    )
    totals = job(
        lambda o, n: o.join(n, "k").groupBy("name").count().selectExpr("name", "count AS n"),
        "totals",
        "db.totals",
        {"o": "db.orders", "n": anabranch.static("db.names")},
        mode="complete",
    )
    names.append([{"k": 1, "name": "one"}])
    for number, second in enumerate((1, 2, 59), start=1):
        at = dt.datetime(2026, 1, 1, 0, 0, second, tzinfo=dt.UTC)
        orders.append([{"id": number, "k": 1, "ts": at}])
        done(lake, windows, totals)
        names.append([{"k": 10 + number, "name": "more"}])

    found = entry_of(lake.table("db.totals"))
    assert read(found.inputs) == [("db.names", 0, 3), ("db.orders", 2, 3)]  # what the batch itself read
    assert ("db.orders", 0, 3) in read(found.held)
    (looked_up,) = [i for i in found.held if i.name == "db.names"]
    assert (looked_up.start.snapshot, looked_up.start.full, looked_up.through) == (1, True, 3)
    assert found.problems == ()

    # The window of the first two orders was written after the third came: it is made of the first, and says so.
    written = lake.table("db.windows")
    rows = [s for s in written.snapshots() if s.delta_record_count]
    first = orders.lineage.impact("1")
    assert first.snapshots("db.windows")[-1][1] == max(s.id for s in rows)
    assert first.snapshots("db.totals")[-1][1] == lake.table("db.totals").snapshot.id
    up = written.lineage.upstream(str(max(s.id for s in rows)))
    assert up.snapshots("db.orders") == ((1, 3),)
    # Where to go on is where the last batch ended.
    (at,) = lake.table("db.totals").lineage.positions()
    assert [(s.name, s.position["snapshot"]) for s in at.sources] == [("db.orders", 3)]


@pytest.mark.long
def test_what_the_state_held_before_is_taken_from_the_last_commit_where_the_checkpoint_lost_it(
    lake, spark, warehouse
):
    orders = lake.create_table("db.orders", "id BIGINT, k BIGINT")
    lake.create_table("db.totals", "k BIGINT, n BIGINT")
    totals = job(
        lambda o: o.groupBy("k").count().selectExpr("k", "count AS n"),
        "totals",
        "db.totals",
        {"o": "db.orders"},
        mode="complete",
    )
    orders.append([{"id": 1, "k": 1}])
    done(lake, totals)
    assert entry_of(lake.table("db.totals")).problems == ()
    open_storage(f"{warehouse}/_checkpoints/totals").delete("anabranch/held.json")
    orders.append([{"id": 2, "k": 1}])
    done(lake, totals)
    found = entry_of(lake.table("db.totals"))  # the commit of the batch before still says it
    assert read(found.held)[0] == ("db.orders", 0, 1)
    assert ("db.orders", 0, 2) in read(found.held)
    assert found.problems == ()


def test_a_declared_batch_job_says_what_it_read(lake, spark):
    orders = lake.create_table("db.orders", "id BIGINT, k BIGINT")
    names = lake.create_table("db.names", "k BIGINT, name STRING")
    lake.create_table("db.report", "id BIGINT, name STRING")
    orders.append([{"id": 1, "k": 1}])
    names.append([{"k": 1, "name": "one"}])
    report = anabranch.sql_job(
        "report",
        "SELECT o.id, n.name FROM o JOIN n USING (k)",
        sources={"o": anabranch.static("db.orders"), "n": anabranch.static("db.names")},
        sink="db.report",
        mode="overwrite",
    )
    done(lake, report)
    found = entry_of(lake.table("db.report"))
    assert (found.job, found.problems) == ("report", ())
    assert read(found.inputs) == [("db.names", 0, 1), ("db.orders", 0, 1)]
    assert names.lineage.impact("1").tables == ("db.names", "db.report")


def spark_window(column, size):
    from pyspark.sql.functions import window

    return window(column, size)


def test_what_nobody_kept_is_not_known():
    checkpoint = Checkpoint(MemoryStorage(), "q")
    seen = TableInput("db.n", "n", "n", BEGINNING, Position(2, "x", full=True))
    assert held_in_state(checkpoint, 0, None, None, Lookups((seen,))).lookups == (seen,)
    later = TableInput("db.n", "n", "n", BEGINNING, Position(5, "y", full=True))
    (both,) = held_in_state(checkpoint, 1, None, None, Lookups((later,))).lookups
    assert (both.start.snapshot, both.start.full, both.through) == (2, True, 5)
    # A batch without lookups, as one without rows is, forgets nothing.
    assert held_in_state(checkpoint, 2, None, None, Lookups()).lookups == (both,)
    unsure = held_in_state(checkpoint, 3, None, None, Lookups.unknown("gone"))
    assert held_in_state(checkpoint, 4, None, None, Lookups()).problems == unsure.problems != ()
    other = Checkpoint(MemoryStorage(), "q")
    assert "batches before 4" in held_in_state(other, 4, None, None, Lookups()).problems[0]


def test_a_stream_that_went_on_with_another_main_holds_what_it_read_of_both():
    def ends(branch, snapshot, **origin):
        offset = Offset("t", branch, "db.t", Position(snapshot, "x"), BEGINNING, **origin)
        return BatchOffsets({}, {"0": offset.to_dict()})

    checkpoint = Checkpoint(MemoryStorage(), "q")
    held = held_in_state(checkpoint, 0, None, ends("old", 3), Lookups())
    assert held.former == ()
    new = ends("new", 3, origin_branch="old")
    (old,) = held_in_state(checkpoint, 1, ends("old", 3), new, Lookups()).former
    assert (old.branch_uuid, old.after, old.through) == ("old", 0, 3)
    # It stays so, and of the new one all counts from its beginning.
    after = ends("new", 5, origin_branch="old")
    assert held_in_state(checkpoint, 2, new, after, Lookups()).former == (old,)
    (since,) = inputs_between(None, after)
    assert (since.branch_uuid, since.after, since.through) == ("new", 0, 5)
