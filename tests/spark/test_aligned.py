"""Streams of several queries that keep together in event time."""

import json
import pickle
import time
from itertools import pairwise

import pytest

import anabranch
from anabranch.errors import OptionError
from anabranch.spark.streams.alignment import alignment_of
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types.columns import arrow_schema
from anabranch.streaming.offsets import Position
from tests.spark.events import EVENTS, add, at, from_first

DRIFT = 5
SPAN = 2
"""Minutes of event time between two snapshots."""
OPTIONS = {
    "scan.watermark.alignment.group": "flights",
    "scan.watermark.alignment.max-drift": f"{DRIFT} min",
    "scan.watermark.alignment.timeout": "10 min",
}


def signs(warehouse):
    storage = anabranch.connect(warehouse).catalog.storage
    infos = storage.list("alignment/flights")
    return [json.loads(storage.get(info.path)) for info in infos]


@pytest.fixture
def table(lake):
    made = lake.create_table("db.t", EVENTS)
    for minute in (5, 10, 16):
        add(made, minute)
    return made


def reader_of(table, warehouse, **options):
    asked = {"warehouse": warehouse, "path": "db.t", **from_first(), **OPTIONS, **options}
    table = type(table)(table.context, options={k: v for k, v in asked.items() if "." in k})
    return stream_reader(table, arrow_schema(table.schema.fields), asked)


def latest(reader, start):
    if HAS_READ_LIMITS:
        return reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, start)
    return reader.latestOffset()


def test_a_reader_keeps_to_its_group_and_leaves_it(table, warehouse):
    reader = reader_of(table, warehouse)
    pickle.loads(pickle.dumps(reader)).stop()  # a copy in a task
    assert signs(warehouse) == []
    first = latest(reader, reader.initialOffset())
    assert first["snapshot"] == 1
    second = latest(reader, first)
    assert second["snapshot"] == 2
    assert [(s["table"], s["watermark"]) for s in signs(warehouse)] == [("db.t", at(0))]
    reader.stop()
    assert signs(warehouse) == []


def test_a_reader_gives_signs_of_life_while_its_batch_runs(table, warehouse):
    reader = reader_of(table, warehouse, **{"scan.watermark.alignment.timeout": "20 ms"})
    latest(reader, reader.initialOffset())
    (before,) = signs(warehouse)
    deadline = time.monotonic() + 60
    while signs(warehouse)[0]["beat"] < before["beat"] + 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reader.stop()


def test_a_bounded_stream_leaves_its_group_at_its_end(table, warehouse):
    reader = reader_of(table, warehouse, **{"scan.bounded.watermark": str(at(1))})
    assert latest(reader, reader.initialOffset())["ended"] == 1
    assert signs(warehouse) == []


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no such preparation")
def test_a_query_that_ends_by_itself_is_not_aligned(table, warehouse, caplog):
    reader = reader_of(table, warehouse)
    reader.prepareForTriggerAvailableNow()
    assert latest(reader, reader.initialOffset())["snapshot"] == 3
    assert signs(warehouse) == []
    assert "have no effect on a query that takes what is available now" in caplog.text


def test_a_group_is_of_a_warehouse(table, warehouse, tmp_path):
    def alignment(path):
        return alignment_of(type(table)(table.context, options=OPTIONS), {"path": path})

    inside = alignment(f"{warehouse}/db.db/t")
    assert inside.until(Position(0, None)) == 1
    inside.leave()
    with pytest.raises(OptionError, match="is in no warehouse"):
        alignment(str(tmp_path / "elsewhere"))


def watermark_of(query):
    """How far a query is, in minutes; None before its first batch."""
    progress = query.lastProgress
    found = None if progress is None else json.loads(progress.sources[0].endOffset).get("watermark")
    return None if found is None else (found - at(0)) / 60_000


@pytest.mark.long
@pytest.mark.spark
def test_two_queries_stay_within_the_drift(spark, warehouse, tmp_path):
    lake = anabranch.connect(warehouse, spark=spark)
    queries = []
    for name, first, last in (("slow", 0, 70), ("fast", 60, 74)):
        table = lake.create_table(f"db.{name}", EVENTS)
        for minute in range(first, last + 1, SPAN):
            add(table, 5 + minute)  # the watermark is five minutes behind

    def start(name):
        stream = lake.read_stream(f"db.{name}", **from_first(), **OPTIONS)
        sink = stream.writeStream.format("noop").queryName(name)
        queries.append(sink.option("checkpointLocation", str(tmp_path / name)).start())
        return queries[-1]

    def going(seconds):
        """Pause between two looks at queries that are all well."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for query in queries:
                assert query.isActive, query.exception()
            yield
            time.sleep(0.01)
        pytest.fail(f"it did not come about: {[query.lastProgress for query in queries]}")

    seen = []
    try:
        slow = start("slow")
        next(_ for _ in going(300) if watermark_of(slow) is not None)
        fast = start("fast")
        for _ in going(300):
            reached = (
                watermark_of(fast),
                watermark_of(slow),
            )  # in this order: the slow one is further than it was
            if reached[0] is not None and reached not in seen:
                seen.append(reached)
            if reached == (74, 70):
                break
    finally:
        for query in queries:
            query.stop()
    deadline = time.monotonic() + 60
    while signs(warehouse):  # their processes leave the group as they are ended
        assert time.monotonic() < deadline
        time.sleep(0.05)
    steps = [reached for before, reached in pairwise(seen) if reached[0] != before[0]]
    largest = max(fast - slow for fast, slow in steps)
    print(
        f"largest drift after the first batch of each: {largest:g} min, where at most {DRIFT} min are allowed"
    )
    assert steps
    assert largest <= DRIFT + SPAN
    assert {fast for fast, slow in seen if slow < 60 - DRIFT} <= {60}, (
        "it went on while the other was far behind"
    )
