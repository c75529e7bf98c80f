"""Jobs of every kind of state, begun at a tag: they make the same rows as the job that was never interrupted."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F

import anabranch
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP_LTZ(6)"


def timed(events, delay="10 seconds"):
    return events.withWatermark("ts", delay)


@job("sessions", sources={"events": "db.events"}, sink="db.sessions")
def sessions(events):
    grouped = timed(events).groupBy(F.session_window("ts", "8 seconds").alias("w"), "k")
    return grouped.agg(F.sum("v").alias("v")).selectExpr("w.start AS a", "w.end AS b", "k", "v")


@job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events):
    return timed(events).dropDuplicatesWithinWatermark(["id"]).select("id")


@job("keys", sources={"events": "db.events"}, sink="db.keys")
def keys(events):
    return events.select("k").distinct()


@job("outer", sources={"events": "db.events", "others": "db.events"}, sink="db.outer")
def outer(events, others):
    left = timed(events.where("k = 'c'"), "20 seconds").alias("l")
    right = timed(others.where("k = 'b'"), "20 seconds").alias("r")
    near = F.expr("l.id - 100 = r.id AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 10 SECONDS")
    return left.join(right, near, "leftOuter").selectExpr("l.id AS id", "l.v AS v", "r.v AS w")


@job("sums", sources={"events": "db.events", "others": "db.events"}, sink="db.sums")
def sums(events, others):
    left = timed(events.where("k = 'a'"), "20 seconds").alias("l")
    right = timed(others.where("k = 'b'"), "20 seconds").alias("r")
    near = F.expr("l.id = r.id AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 20 SECONDS")
    both = left.join(right, near).selectExpr("l.ts AS ts", "l.v + r.v AS v")
    windows = both.groupBy(F.window("ts", "10 seconds").alias("w"))
    return windows.agg(F.sum("v").alias("v")).selectExpr("w.start AS a", "v")


@job("counts", sources={"events": "db.events"}, sink="db.counts")
def counts(events):
    def count(key, frames, state):
        number = state.get[0] if state.exists else 0
        number += sum(len(frame) for frame in frames)
        state.update((number,))
        state.update((number % 3,))
        yield pd.DataFrame({"k": [key[0]] * (number // 3), "n": [3] * (number // 3)})

    grouped = events.select("k", "v").groupBy("k")
    return grouped.applyInPandasWithState(count, "k STRING, n BIGINT", "n BIGINT", "append", "NoTimeout")


@job("some", sources={"events": "db.events"}, sink="db.some")
def some(events):
    return events.selectExpr("1L AS id").limit(17)  # which rows these are is not said


@job("twice", sources={"events": "db.events"}, sink="db.twice")
def twice(events):
    once = timed(events).dropDuplicatesWithinWatermark(["id", "k"])
    windows = once.groupBy(F.window("ts", "10 seconds").alias("w"), "k")
    return windows.agg(F.count("*").alias("n")).selectExpr("w.start AS a", "k", "n")


JOBS = (sessions, firsts, keys, outer, sums, some, twice, counts)
COLUMNS = {
    "db.sessions": "a TIMESTAMP_LTZ(6), b TIMESTAMP_LTZ(6), k STRING, v BIGINT",
    "db.firsts": "id BIGINT",
    "db.keys": "k STRING",
    "db.outer": "id BIGINT, v BIGINT, w BIGINT",
    "db.sums": "a TIMESTAMP_LTZ(6), v BIGINT",
    "db.counts": "k STRING, n BIGINT",
    "db.some": "id BIGINT",
    "db.twice": "a TIMESTAMP_LTZ(6), k STRING, n BIGINT",
}


def event(number, key, value, seconds):
    return {"id": number, "k": key, "v": value, "ts": BEGIN + timedelta(seconds=seconds)}


def batch(number):
    at, before = number * 12, max(number - 1, 0)
    return [
        event(number, "a", number, at),
        event(number, "b", number * 10, at + 5),
        event(before, "b", 3, at + 7),
        event(before, "a", 7, at - 4),
        event(100 + number, "c", 1, at + (11 if number % 2 else -2)),
    ]


def run(lake, jobs, how=None):
    statuses = run_jobs(jobs, lake, how or Run(), Schedule(AVAILABLE_NOW))
    bad = [(s.job, s.message) for s in statuses if s.state.value != "ended"]
    assert not bad, bad
    return {s.job: (s.begun or "").split(":")[0] for s in statuses}


def rows_of(lake, table):
    found = lake.table(table).scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.events", EVENTS)
    for table, columns in COLUMNS.items():
        lake.create_table(table, columns)
    return lake


@pytest.mark.long  # in short, some of them: test_state_cascade and test_state_stores
def test_jobs_begun_at_a_tag_go_on_as_if_never_interrupted(lake, warehouse):
    jobs, batches = JOBS, 6
    for number in range(batches):
        lake.table("db.events").append(batch(number))
        run(lake, jobs)
        if number == batches // 2 - 1:
            for one in jobs:
                lake.table(one.sink).create_tag("good")
    lake.table("db.events").append([event(999, "z", 0, 1000)])  # closes what is open
    run(lake, jobs)
    for way in ("carried", "rebuilt"):
        if way == "rebuilt":
            for folder in (Path(warehouse) / "_checkpoints").glob("*/anabranch/operators"):
                shutil.rmtree(folder)
        found = run(lake, jobs, Run(branch=way, from_tag="good", create_branch=True))
        assert found == dict.fromkeys((one.name for one in jobs), way)
        for one in jobs:
            assert rows_of(lake, f"{one.sink}$branch_{way}") == rows_of(lake, one.sink), (one.name, way)
