"""Jobs whose state follows time: which a correction refuses, and state that is made again in the batches of before."""

import re
import shutil
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path
from threading import Timer

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import anabranch
from anabranch import InvalidInputError
from anabranch.cascade import run_correction
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.state import replay
from anabranch.jobs.task import Stop
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.support.lengths import first_short

SOURCES = {"events": "db.events"}


@job("counts", sources=SOURCES, sink="db.counts")
def wrong(events):
    return events.selectExpr("k", "-1L AS n")


@job("counts", sources=SOURCES, sink="db.counts")
def timed_out(events):
    def count(key, frames, state):
        state.setTimeoutDuration(1000)
        yield pd.DataFrame({"k": [key[0]], "n": [sum(map(len, frames))]})

    groups = events.groupBy("k")
    return groups.applyInPandasWithState(
        count, "k STRING, n BIGINT", "n BIGINT", "append", "ProcessingTimeTimeout"
    )


class Counting(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]], "n": [sum(map(len, rows))]})

    def close(self):
        pass


@job("counts", sources=SOURCES, sink="db.counts")
def transformed(events):
    groups = events.groupBy("k")
    return groups.transformWithStateInPandas(Counting(), "k STRING, n BIGINT", "append", "ProcessingTime")


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    lake.create_table("db.events", "k STRING")
    lake.create_table("db.times", "k STRING, ts TIMESTAMP_LTZ(6)")
    lake.create_table("db.counts", "k STRING, n BIGINT")
    lake.create_table("db.numbers", "k STRING, n BIGINT")
    lake.table("db.counts").append([{"k": "before", "n": 1}])
    return lake


@pytest.mark.parametrize("corrected", [timed_out, transformed], ids=["timeout", "transform"])
def test_a_correction_that_would_never_end_is_refused_before_anything_begins(lake, corrected):
    lake.table("db.events").append([{"k": "a"}])
    run_jobs([wrong], lake, None, Schedule(AVAILABLE_NOW))
    table = lake.table("db.counts")
    table.create_tag("good")
    lake.table("db.events").append([{"k": "b"}])
    run_jobs([wrong], lake, None, Schedule(AVAILABLE_NOW))
    stop = Stop()
    late = Timer(60, stop.ask)  # so that the test ends where nothing is refused
    late.start()
    try:
        with pytest.raises(InvalidInputError, match="'counts' .* processing time") as refused:
            run_correction(lake, "db.counts", "good", [corrected], stop=stop)
    finally:
        late.cancel()
    assert "--by-hand db.counts" in refused.value.hint
    assert lake.table("db.counts").branches() == []


def timed(events, delay="0 seconds"):
    return events.withWatermark("ts", delay)


def sessions(events):
    groups = timed(events).groupBy(F.session_window("ts", "10 seconds"), "k")
    return groups.agg(F.count("*").alias("n")).select("k", "n")


def firsts(events):
    return timed(events, "10 seconds").dropDuplicatesWithinWatermark(["k"]).selectExpr("k", "second(ts) AS n")


def pairs(events, others):
    left, right = timed(events.where("k LIKE '%1'")).alias("l"), timed(others.where("k LIKE '%2'")).alias("r")
    near = "left(l.k, 1) = left(r.k, 1) AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 10 SECONDS"
    return left.join(right, F.expr(near)).selectExpr("left(l.k, 1) AS k", "second(r.ts) AS n")


def timeouts(events):
    """Count the events of a key until none came for ten seconds."""

    def count(key, frames, state):
        before = state.getOption or (0,)
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "n": [before[0]]})
            return
        times = [millis for frame in frames for millis in frame.millis]
        state.update((before[0] + len(times),))
        state.setTimeoutTimestamp(max(times) + 10_000)

    groups = timed(events).withColumn("millis", F.unix_millis("ts")).groupBy("k")
    return groups.applyInPandasWithState(
        count, "k STRING, n BIGINT", "n BIGINT", "append", "EventTimeTimeout"
    )


BEFORE_AND_AFTER = {
    # The second x comes when the session of the first one is closed, and is not too late for one of its own.
    sessions: ([[("x", 0)], [("z", 11)], [("x", 5)]], [("z", 40)], [("x", 1), ("x", 1), ("z", 1)]),
    # The first x was forgotten when the second one came, which the third one repeats.
    firsts: (
        [[("x", 0), ("y", 49)], [("z", 50)], [("x", 50)]],
        [("x", 55), ("z", 59)],
        [("x", 0), ("x", 50), ("y", 49), ("z", 50)],
    ),
    # The x1 of 14 seconds came too late to be paired with the x2 after the tag.
    pairs: (
        [[("x1", 0)], [("z1", 20), ("z2", 20)], [("x1", 14)]],
        [("x2", 22), ("x1", 21), ("z1", 59), ("z2", 59)],
        [("x", 22), ("z", 20), ("z", 59)],
    ),
    # Two groups of x, of which the first was over before the second began.
    timeouts: (
        [[("x", 0), ("x", 5)], [("z", 40)], [("x", 41)]],
        [("x", 43), ("y", 59)],
        [("x", 2), ("x", 2), ("z", 1)],
    ),
}


def declared(what):
    return job("counts", sources=dict.fromkeys(signature(what).parameters, "db.times"), sink="db.numbers")(
        what
    )


def event(key, seconds):
    return {"k": key, "ts": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)}


def run(lake, one, how=None):
    (status,) = run_jobs([one], lake, how or Run(), Schedule(AVAILABLE_NOW))
    return status


def lived(lake, what):
    """A job that has run each batch by itself, the last one after the tag `good`; and what it has made, checked."""
    before, after, right = BEFORE_AND_AFTER[what]
    one = declared(what)
    for batch in (*before, after):
        if batch is after:
            lake.table("db.numbers").create_tag("good")
        lake.table("db.times").append([event(*row) for row in batch])
        assert (status := run(lake, one)).state.value == "ended", status.message
    assert rows_of(lake, "db.numbers") == right
    return one, right


def rows_of(lake, table):
    return sorted((row["k"], row["n"]) for row in lake.table(table).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "what", [sessions, *(pytest.param(one, marks=pytest.mark.long) for one in (firsts, pairs, timeouts))]
)
def test_state_that_is_made_again_has_nothing_of_what_was_closed_before_the_tag(lake, warehouse, what):
    one, right = lived(lake, what)
    shutil.rmtree(Path(warehouse) / "_checkpoints" / "counts")
    status = run(lake, one, Run(branch="fix", from_tag="good", create_branch=True))
    assert status.state.value == "ended", status.message
    assert "batches of before" in status.begun
    assert rows_of(lake, "db.numbers$branch_fix") == right


@pytest.mark.parametrize(
    "what", first_short([sessions, *(one for one in BEFORE_AND_AFTER if one is not sessions)])
)
def test_state_of_an_older_batch_gets_what_came_since_in_the_batches_of_before(lake, warehouse, what):
    """As where a machine is lost whose checkpoint is copied now and then: here only the state after batch 0 is left."""
    one, right = lived(lake, what)
    checkpoint = Path(warehouse) / "_checkpoints" / "counts"
    for kept in [*checkpoint.glob("**/anabranch/kept")]:
        shutil.rmtree(kept)
    for commit in [*checkpoint.glob("**/commits/[1-9]*")]:
        commit.unlink()
    status = run(lake, one, Run(branch="fix", from_tag="good", create_branch=True))
    assert status.state.value == "ended", status.message
    assert "as it was after batch 0" in status.begun
    assert re.search(r"once more, in the \d+ batches of before", status.begun)
    assert rows_of(lake, "db.numbers$branch_fix") == right


def test_timers_are_refused_where_the_batches_of_before_cannot_be_run_again(lake, monkeypatch):
    """All in one batch no timer would fire between two rows."""
    monkeypatch.setattr(replay, "MOST", 1)

    def plain(events):
        return timed(events).selectExpr("k", "1L AS n")

    for seconds in (0, 40):
        lake.table("db.times").append([event("x", seconds)])
        run(lake, declared(plain))
    lake.table("db.numbers").create_tag("good")
    status = run(lake, declared(timeouts), Run(branch="fix", from_tag="good", create_branch=True))
    assert status.state.value == "failed"
    assert "timers" in status.message
    assert "not more than 1 are run again" in status.message
    assert "--accept-empty-state counts" in status.hint
