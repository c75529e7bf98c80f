"""Jobs that keep state and read topics, corrected from a tag: their tables are what DuckDB makes of all records."""

import json
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch
from anabranch.cascade import on_spark, run_correction
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import topic as topic_source
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.support.broker import kafka_broker

pytestmark = pytest.mark.spark
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = {
    "db.windows": "a TIMESTAMP_LTZ(6), k STRING, v BIGINT",
    "db.firsts": "id BIGINT, v BIGINT",
    "db.pairs": "a TIMESTAMP_LTZ(6), k STRING, v BIGINT, id BIGINT",
}
ANSWERS = {
    "db.windows": "SELECT time_bucket(INTERVAL 10 SECONDS, ts) AS a, k, sum(v)::BIGINT AS v FROM events GROUP BY a, k"
    " HAVING a + INTERVAL 20 SECONDS <= (SELECT max(ts) FROM events)",
    "db.firsts": "SELECT DISTINCT id, id FROM events",
}
ANSWERS["db.pairs"] = (
    f"SELECT w.a, w.k, w.v, e.id FROM ({ANSWERS['db.windows']}) w JOIN events e"
    " ON e.k = w.k AND time_bucket(INTERVAL 10 SECONDS, e.ts) = w.a"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


class World:
    """A topic, and jobs that keep state and read it."""

    def __init__(self, spark, warehouse, broker):
        self.lake = anabranch.connect(warehouse, spark=spark)
        self.broker, self.topic = broker, broker.new_topic(2)
        self.sent, self.options = [], {"startingOffsets": "earliest"}
        for table, columns in TABLES.items():
            self.lake.create_table(table, columns)

    def send(self, number):
        """Ids return, windows are open between rounds, and some records are late but in time."""
        at = number * 12
        found = [
            (number, "a", number, at),
            (number, "b", number * 10, at + 5),
            (max(number - 1, 0), "a", 7, at - 4),
            (100 + number, "c", 1, at + 11),
        ]
        for place, (key, k, v, seconds) in enumerate(found):
            event = {"id": key, "k": k, "v": v, "ts": BEGIN + timedelta(seconds=seconds)}
            text = json.dumps({**event, "ts": event["ts"].isoformat()})
            self.broker.produce(self.topic, [text], partition=place % 2)
            self.sent.append(event)

    def source(self):
        return topic_source(self.topic, self.broker.bootstrap, self.options)

    def windows(self, *, factor=1, value="v"):
        def made(events):
            rows = timed(events).groupBy(F.window("ts", "10 seconds").alias("w"), "k")
            return rows.agg(F.expr(f"sum({value})").alias("v")).selectExpr(
                "w.start AS a", "k", f"v * {factor} AS v"
            )

        return anabranch.job("windows", sources={"events": self.source()}, sink="db.windows")(made)

    def firsts(self, *, factor=1, where="id IS NOT NULL"):
        def made(events):
            return timed(events).where(where).dropDuplicates(["id"]).selectExpr("id", f"id * {factor} AS v")

        return anabranch.job("firsts", sources={"events": self.source()}, sink="db.firsts")(made)

    def pairs(self):
        def made(windows, events):
            events = timed(events).withColumn("a", F.window("ts", "10 seconds")["start"])
            return windows.join(events.select("id", "a", "k"), ["a", "k"]).select("a", "k", "v", "id")

        sources = {"windows": "db.windows", "events": self.source()}
        return anabranch.job("pairs", sources=sources, sink="db.pairs")(made)

    def run(self, *jobs, how=None):
        statuses = run_jobs(jobs, self.lake, how or Run(), Schedule(AVAILABLE_NOW))
        bad = [(s.job, s.message) for s in statuses if s.state.value != "ended"]
        assert not bad, bad

    def spoil(self, good, bad, *tables):
        """Two rounds are right and tagged, then the wrong jobs take one more."""
        for number in range(3):
            self.send(number)
            self.run(*(good if number < 2 else bad))
            for table in tables if number == 1 else ():
                self.lake.table(table).create_tag("good")

    def correct(self, table, jobs, **how):
        runner = on_spark(policy=Policy(most=0))
        return run_correction(self.lake, table, "good", jobs, runner=runner, **how)

    def rows(self, table):
        return sorted(tuple(row.values()) for row in self.lake.table(table).scan().to_arrow().to_pylist())

    def answer(self, table):
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            db.register("events", pa.Table.from_pylist(self.sent))
            found = db.execute(ANSWERS[table]).fetchall()
        return sorted(
            tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in found
        )


def timed(records):
    event = F.from_json(F.col("value").cast("string"), "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP").alias(
        "e"
    )
    return records.select(event).select("e.*").withWatermark("ts", "10 seconds")


@pytest.fixture
def world(spark, warehouse, broker):
    return World(spark, warehouse, broker)


def ways(result):
    return {status.job: (status.begun or "").split(":")[0] for status in result.statuses}


@pytest.mark.long
def test_carried_with_topics_also_where_old_records_are_gone(world):
    pairs = world.pairs()
    world.spoil([world.windows(), pairs], [world.windows(factor=1000), pairs], "db.windows")
    for partition in range(2):
        world.broker.delete_records(world.topic, partition, 2)
    result = world.correct("db.windows", [world.windows(), pairs])
    assert result.group is not None, [(s.job, s.message) for s in result.failed]
    assert ways(result) == {"windows": "carried", "pairs": "carried"}
    for table in ("db.windows", "db.pairs"):
        assert world.rows(table) == world.answer(table)
    world.send(3)  # and the corrected jobs go on
    world.run(world.windows(), pairs)
    for table in ("db.windows", "db.pairs"):
        assert world.rows(table) == world.answer(table)


@pytest.mark.long
@pytest.mark.parametrize("name", ["windows", "firsts"])
def test_rebuilt_from_topics_where_the_operators_have_changed(world, name):
    right, wrong, changed = {
        "windows": (world.windows(), world.windows(factor=1000), world.windows(value="v + 0")),
        "firsts": (world.firsts(), world.firsts(factor=1000), world.firsts(where="id >= 0")),
    }[name]
    world.spoil([right], [wrong], right.sink)
    result = world.correct(right.sink, [changed])
    assert result.group is not None, [(s.job, s.message) for s in result.failed]
    assert ways(result) == {name: "rebuilt"}
    assert world.rows(right.sink) == world.answer(right.sink)


@pytest.mark.long
def test_nothing_is_published_without_records_that_are_gone(world):
    world.options["failOnDataLoss"] = "false"  # is about what a running query may skip, not about corrections
    world.spoil([world.windows()], [world.windows(factor=1000)], "db.windows")
    world.broker.delete_records(world.topic, 1, 1)
    before = world.rows("db.windows")
    result = world.correct("db.windows", [world.windows(value="v + 0")])
    assert result.group is None
    (failed,) = result.failed
    assert "have changed" in failed.message
    assert f"{world.topic}-1: offset 0 is to be read next" in failed.message
    assert "earliest record the brokers still have is at offset 1" in failed.message
    assert "--accept-empty-state windows" in failed.hint
    world.broker.delete_records(world.topic, 0, 6)
    result = world.correct("db.windows", [world.windows()], name="carried")
    assert result.group is None
    assert f"{world.topic}-0: offset 4 is to be read next" in result.failed[0].message
    assert "choose a tag whose records" in result.failed[0].hint
    assert world.rows("db.windows") == before
