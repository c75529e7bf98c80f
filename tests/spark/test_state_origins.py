"""State that is made again reads its sources from as far back as event times reach into it, and not from their beginning."""

import re
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch
from anabranch.cascade import run_correction
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP_LTZ(6)"
BATCHES, GOOD = 12, 9
"""Batches of events, 12 seconds apart, and how many of them the jobs had read when the tag was made."""


def timed(events):
    return events.withWatermark("ts", "10 seconds")


def windows(events):
    groups = timed(events).groupBy(F.window("ts", "10 seconds").alias("w"), "k")
    return groups.agg(F.count("*").alias("n"), F.sum("v").alias("v")).selectExpr(
        "w.start AS ts", "k", "n", "v"
    )


def sliding(events):
    groups = timed(events).groupBy(F.window("ts", "20 seconds", "10 seconds").alias("w"), "k")
    return groups.agg(F.count("*").alias("n"), F.sum("v").alias("v")).selectExpr(
        "w.start AS ts", "k", "n", "v"
    )


def once(events):
    rows = timed(events).dropDuplicatesWithinWatermark(["id", "k", "v"])
    return rows.selectExpr("CAST(0 AS TIMESTAMP) AS ts", "k", "id AS n", "v")


def pairs(events):
    left, right = timed(events.where("k = 'a'")).alias("l"), timed(events.where("k = 'b'")).alias("r")
    near = F.expr("l.id = r.id AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 15 SECONDS")
    return left.join(right, near).selectExpr("r.ts AS ts", "l.k AS k", "l.id AS n", "l.v + r.v AS v")


def sessions(events):
    groups = timed(events).groupBy(F.session_window("ts", "3 seconds").alias("w"), "k")
    return groups.agg(F.count("*").alias("n"), F.sum("v").alias("v")).selectExpr(
        "w.start AS ts", "k", "n", "v"
    )


def distinct(events):
    return (
        timed(events)
        .dropDuplicates(["id", "k", "v"])
        .selectExpr("CAST(0 AS TIMESTAMP) AS ts", "k", "id AS n", "v")
    )


_BUCKET = "time_bucket(INTERVAL 10 SECONDS, ts)"
ANSWERS = {
    windows: f"SELECT a AS ts, k, count(*) AS n, sum(v) AS v FROM (SELECT *, {_BUCKET} AS a FROM events) GROUP BY a, k "
    "HAVING a + INTERVAL 20 SECONDS <= (SELECT max(ts) FROM events)",
    sliding: "SELECT a AS ts, k, count(*) AS n, sum(v) AS v FROM (SELECT *, b - INTERVAL (10 * s) SECONDS AS a FROM "
    f"(SELECT *, {_BUCKET} AS b FROM events), range(2) AS r(s)) GROUP BY a, k "
    "HAVING a + INTERVAL 30 SECONDS <= (SELECT max(ts) FROM events)",
    once: "SELECT to_timestamp(0), k, id, v FROM events GROUP BY k, id, v",
    pairs: "SELECT r.ts, l.k, l.id, l.v + r.v FROM events l JOIN events r ON l.id = r.id AND l.k = 'a' AND r.k = 'b' "
    "AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 15 SECONDS",
    sessions: "SELECT min(ts), k, count(*), sum(v) FROM (SELECT *, sum(fresh) OVER (PARTITION BY k ORDER BY ts RANGE "
    "UNBOUNDED PRECEDING) AS g FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= INTERVAL 3 SECONDS "
    "THEN 0 ELSE 1 END AS fresh FROM events)) GROUP BY k, g "
    "HAVING max(ts) + INTERVAL 13 SECONDS <= (SELECT max(ts) FROM events)",
    distinct: "SELECT to_timestamp(0), k, id, v FROM events GROUP BY k, id, v",
}
BOUNDED = (windows, sliding, once, pairs)
UNBOUNDED = (sessions, distinct)


def event(number, key, value, seconds):
    return {"id": number, "k": key, "v": value, "ts": BEGIN + timedelta(seconds=seconds)}


def batch(number):
    """Windows and pairs are open between batches, and some rows come late but in time."""
    at, before = number * 12, max(number - 1, 0)
    return [
        event(number, "a", number, at),
        event(number, "b", 10 * number, at + 5),
        event(before, "b", 3, at + 1 if number else 6),
        event(1000 + number, "a", 7, max(at - 4, 1)),
        event(2000 + number, "c", 1, at + 11),
    ]


def made(what, *, is_wrong=False, is_fixed=False):
    name = what.__name__

    def code(events):
        if is_fixed:  # the operators with state are others: their state cannot be carried
            events = events.where("v <> -1")
        rows = what(events)
        return rows.withColumn("v", F.expr("v * 1000")) if is_wrong else rows

    return job(name, sources={"events": "db.events"}, sink=f"db.{name}")(code)


def run(lake, jobs):
    bad = [
        (s.job, s.message)
        for s in run_jobs(jobs, lake, Run(), Schedule(AVAILABLE_NOW))
        if s.state.value != "ended"
    ]
    assert not bad, bad


def found(lake, what):
    rows = lake.table(f"db.{what.__name__}").scan().to_arrow().to_pylist()
    return sorted((row["ts"].astimezone(UTC), row["k"], row["n"], row["v"]) for row in rows)


def answer(what, events):
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("events", pa.Table.from_pylist(events))
        return sorted((ts.astimezone(UTC), k, n, v) for ts, k, n, v in db.execute(ANSWERS[what]).fetchall())


def spoilt(spark, warehouse, kinds):
    """Jobs of some kinds that have gone wrong since their tags; and all events."""
    lake, events = anabranch.connect(warehouse, spark=spark), []
    lake.create_table("db.events", EVENTS)
    for what in kinds:
        lake.create_table(f"db.{what.__name__}", "ts TIMESTAMP_LTZ(6), k STRING, n BIGINT, v BIGINT")
    for number in range(BATCHES):
        events += batch(number)
        lake.table("db.events").append(batch(number))
        if number in (0, GOOD - 1, BATCHES - 1):
            run(lake, [made(what, is_wrong=number >= GOOD) for what in kinds])
        if number == GOOD - 1:
            for what in kinds:
                lake.table(f"db.{what.__name__}").create_tag("good")
    return lake, events


def long(*kinds):
    return [pytest.param(what, marks=pytest.mark.long) for what in kinds]


@pytest.mark.long
@pytest.mark.parametrize(
    "is_expired", [True, pytest.param(False, marks=pytest.mark.long)], ids=["expired", "there"]
)
@pytest.mark.parametrize("what", [windows, *long(*BOUNDED[1:], *UNBOUNDED)])
def test_a_rebuilt_table_is_right_though_the_history_is_longer(spark, warehouse, what, is_expired):
    lake, events = spoilt(spark, warehouse, [what])
    if is_expired:
        lake.table("db.events").expire_snapshots(
            retain_max=BATCHES - 3, retain_min=BATCHES - 3, older_than=2**52
        )
    result = run_correction(lake, f"db.{what.__name__}", "good", [made(what, is_fixed=True)])
    assert result.group is not None, [(s.job, s.message) for s in result.failed]
    told = result.statuses[0].begun
    assert "rows up to there stay" in told
    if what in BOUNDED:
        after = re.search(r"read again after snapshot (\d+)", told)
        assert after is not None, told
        assert int(after[1]) >= GOOD - 5, told
    else:
        assert "from the beginning" in told, told
    assert found(lake, what) == answer(what, events)
