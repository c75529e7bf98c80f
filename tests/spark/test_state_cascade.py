"""A correction cascades through jobs that keep state: afterwards each table is what DuckDB makes of the corrected events."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch
from anabranch.cascade import CascadeOptions, on_spark, run_cascade, run_correction
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import static
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.support.lengths import first_short

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP_LTZ(6)"
TABLES = {
    "db.events": EVENTS,
    "db.totals": "k STRING, n BIGINT, v BIGINT",
    "db.firsts": "id BIGINT",
    "db.windows": "a TIMESTAMP_LTZ(6), k STRING, n BIGINT, v BIGINT",
    "db.pairs": "id BIGINT, v BIGINT, w BIGINT",
    "db.report": "k STRING, v BIGINT",
}


@job("totals", sources={"events": "db.events"}, sink="db.totals", mode="complete")
def totals(events):
    return events.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))


@job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["id"]).select("id")


@job("windows", sources={"events": "db.events"}, sink="db.windows")
def windows(events):
    timed = events.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "10 seconds").alias("w"), "k")
    return timed.agg(F.count("*").alias("n"), F.sum("v").alias("v")).selectExpr("w.start AS a", "k", "n", "v")


@job("pairs", sources={"events": "db.events", "others": "db.events"}, sink="db.pairs")
def pairs(events, others):
    left = events.where("k = 'a'").withWatermark("ts", "30 seconds").alias("l")
    right = others.where("k = 'b'").withWatermark("ts", "30 seconds").alias("r")
    near = "l.id = r.id AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 30 SECONDS"
    return left.join(right, F.expr(near)).selectExpr("l.id", "l.v", "r.v AS w")


@job("report", sources={"events": static("db.events")}, sink="db.report", mode="overwrite")
def report(events):
    return events.groupBy("k").agg(F.sum("v").alias("v"))


ANSWERS = {
    "db.totals": "SELECT k, count(*), sum(v) FROM events GROUP BY k",
    "db.firsts": "SELECT DISTINCT id FROM events",
    "db.windows": "SELECT time_bucket(INTERVAL 10 SECONDS, ts) AS a, k, count(*), sum(v) FROM events GROUP BY a, k"
    " HAVING a + INTERVAL 20 SECONDS <= (SELECT max(ts) FROM events)",
    "db.pairs": "SELECT l.id, l.v, r.v FROM events l JOIN events r ON l.id = r.id AND l.k = 'a' AND r.k = 'b'"
    " AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 30 SECONDS",
    "db.report": "SELECT k, sum(v) FROM events GROUP BY k",
}


def event(number, key, value, seconds):
    return {"id": number, "k": key, "v": value, "ts": BEGIN + timedelta(seconds=seconds)}


def batches(factor=1, count=4):
    """Batches of events: ids return, windows are open between batches, and some rows are late but in time."""
    found = []
    for batch in range(count):
        at = batch * 12
        found.append(
            [
                event(batch, "a", batch * factor, at),
                event(batch, "b", batch * 10 * factor, at + 5),
                event(max(batch - 1, 0), "b", 3 * factor, at + 7),
                event(max(batch - 1, 0), "a", 7 * factor, at - 4),
                event(100 + batch, "c", factor, at + 11),
            ]
        )
    return found


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table, columns in TABLES.items():
        lake.create_table(table, columns)
    return lake


def run(lake, jobs, how=None):
    statuses = run_jobs(jobs, lake, how or Run(), Schedule(AVAILABLE_NOW))
    bad = [s for s in statuses if s.state.value != "ended"]
    assert not bad, bad
    return statuses


def rows_of(lake, table):
    found = lake.table(table).scan().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def answer(table, given):
    """What a batch engine makes of all events."""
    events = pa.Table.from_pylist([row for batch in given for row in batch])
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("events", events)
        found = db.execute(ANSWERS[table]).fetchall()
    utc = [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in found]
    return sorted(utc)


def spoil(lake, jobs, good, *, count=4, then=lambda: None):
    """Batches up to `good` are right, the others have wrong values; all jobs have taken in each. Then events are corrected."""
    events, right, wrong = lake.table("db.events"), batches(1, count), batches(1000, count)
    for batch in right[:good]:
        events.append(batch)
        run(lake, jobs)
    events.create_tag("good")
    for batch in wrong[good:]:
        events.append(batch)
        run(lake, jobs)
    events.create_branch("fix", "good")
    for batch in right[good:]:
        events.branch("fix").append(batch)
    events.replace_main_branch("fix")
    then()
    return right


def correct(lake, jobs, **options):
    result = run_cascade(lake, "db.events", jobs, CascadeOptions(**options))
    assert result.group is not None, [(s.job, s.message) for s in result.failed] or result.waiting
    return result


def check(lake, jobs, given):
    for one in jobs:
        assert rows_of(lake, one.sink) == answer(one.sink, given), one.name


FIVE = (totals, firsts, windows, pairs, report)


@pytest.mark.parametrize(
    "forget", [False, pytest.param(True, marks=pytest.mark.long)], ids=["carried", "rebuilt"]
)
def test_five_jobs_are_made_right_again(lake, warehouse, forget):
    def lose_state():
        if forget:
            for folder in (Path(warehouse) / "_checkpoints").glob("*/anabranch/operators"):
                shutil.rmtree(folder)

    given = spoil(lake, FIVE, good=2 if forget else 1, count=4 if forget else 2, then=lose_state)
    result = correct(lake, FIVE)
    check(lake, FIVE, given)
    way = "rebuilt" if forget else "carried"
    assert {one.job: (one.begun or "").split(":")[0] for one in result.statuses} == {
        "totals": "from the beginning",
        "firsts": way,
        "windows": way,
        "pairs": way,
        "report": "",
    }
    assert _ways_in_commits(lake, "db.windows") == [way]


@pytest.mark.parametrize("is_gone", first_short([False, True]), ids=["logged", "committed"])
def test_what_a_batch_closed_comes_again_though_nothing_more_is_read(lake, warehouse, is_gone):
    """The tag is between the batch that moved the watermark and the one without rows that emitted what it closed.

    A query that begins after the first would wait with the second until new rows arrive.
    """
    given = batches(count=3)
    for batch in given:
        lake.table("db.events").append(batch)
    run(lake, [windows])
    check(lake, [windows], given)
    closed, read = lake.table("db.windows").snapshots()
    assert (read.total_record_count, closed.id) == (0, 2)
    lake.table("db.windows").create_tag("good", snapshot=read.id)
    if is_gone:  # as where the state was kept for a tag, and Spark has forgotten the batch after it
        (Path(warehouse) / "_checkpoints" / "windows" / "offsets" / "1").unlink()
    result = run_correction(lake, "db.windows", "good", [windows])
    assert result.group is not None
    assert {one.begun.split(":")[0] for one in result.statuses} == {"carried"}
    check(lake, [windows], given)


def _ways_in_commits(lake, table):
    found = [snapshot.properties.get("anabranch.state") for snapshot in lake.table(table).snapshots()]
    return [json.loads(text)["way"] for text in found if text is not None]


def test_where_state_cannot_be_had_nothing_is_published_unless_that_is_accepted(lake, warehouse):
    def lose_all():
        shutil.rmtree(Path(warehouse) / "_checkpoints" / "firsts")
        lake.table("db.events").branch("fix").expire_snapshots(
            retain_max=2, retain_min=2, older_than=datetime.now(UTC)
        )
        # The archive would tell that nothing was taken out of what has expired: then all rows of the oldest snapshot do.
        for segment in (Path(warehouse) / "db.db" / "events" / "lineage").glob("history-*"):
            segment.unlink()

    spoil(lake, [firsts], good=2, count=3, then=lose_all)
    before = rows_of(lake, "db.firsts")
    once = on_spark(policy=Policy(most=0))
    refused = run_cascade(lake, "db.events", [firsts], runner=once)
    assert refused.group is None
    assert "expired" in refused.failed[0].message
    assert "--accept-empty-state firsts" in refused.failed[0].hint
    assert rows_of(lake, "db.firsts") == before

    accepted = correct(lake, [firsts], accept_empty_state=["firsts"])
    assert accepted.statuses[0].begun.startswith("empty")
    assert _ways_in_commits(lake, "db.firsts") == ["empty"]


@pytest.mark.long
def test_state_is_kept_for_a_tag_and_released_with_it(spark, lake, warehouse):
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1")
    kept = Path(warehouse) / "_checkpoints" / "firsts" / "anabranch" / "kept"
    try:
        for number, batch in enumerate(batches(count=3)):
            lake.table("db.events").append(batch)
            run(lake, [firsts])
            if number == 1:
                lake.table("db.firsts").create_tag("good")
        assert [folder.name for folder in kept.iterdir()] == ["1"]
        (state,) = lake.table("db.firsts").health().states
        assert (state.job, state.tags) == ("firsts", ("good",))
        files = [path for path in (kept / "1").rglob("*") if path.is_file()]
        assert (state.files, state.bytes) == (len(files), sum(path.stat().st_size for path in files))
        assert "state of job 'firsts' kept for 1 tag" in str(lake.table("db.firsts").health())
        fix = Run(branch="fix", from_tag="good", create_branch=True)
        (status,) = run(lake, [firsts], fix)
        assert status.begun.startswith("carried")
        assert rows_of(lake, "db.firsts$branch_fix") == answer("db.firsts", batches(count=3))
        lake.table("db.firsts").delete_branch("fix")
        lake.table("db.firsts").delete_tag("good")
        lake.table("db.events").append([event(500, "a", 1, 100)])
        run(lake, [firsts])
        assert [folder.name for folder in kept.iterdir()] == []
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
