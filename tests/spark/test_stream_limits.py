"""How much a batch takes, and how long it waits for more."""

import time
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import OptionError
from anabranch.runtime import SystemClock
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types.columns import arrow_schema
from tests.support.tables import ids_of, make_table, rows

pytestmark = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")


class Clock(SystemClock):
    seconds = 100.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(tmp_path, clock):
    made = make_table(tmp_path / "warehouse")
    runtime = replace(made.context.runtime, clock=clock)
    return anabranch.Table(replace(made.context, runtime=runtime))


def reader_of(table, options=None, **more):
    more = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in more.items()}
    options = {f"read.stream.{key}": str(value) for key, value in (options or {}).items()}
    return stream_reader(table, arrow_schema(table.schema.fields), {**options, **more})


def latest(reader, start):
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def batches(reader, start):
    """Rows of each batch until there is nothing new."""
    found = []
    while (end := latest(reader, start)) != start:
        found.append(sum(p.value.row_count for p in reader.partitions(start, end)))
        start = end
    return found


@pytest.mark.parametrize("mode", ["latest-full", "from-snapshot"])
@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ({"maxFilesPerTrigger": 2}, [7, 11, 9]),
        ({"maxRowsPerTrigger": 10}, [7, 5, 6, 9]),
        ({"maxRowsPerTrigger": 1}, [3, 4, 5, 6, 9]),  # a file is not divided
        ({"maxRowsPerTrigger": 1000, "maxFilesPerTrigger": 4}, [18, 9]),
        ({"maxBytesPerTrigger": 1}, [3, 4, 5, 6, 9]),
    ],
)
def test_limits_hold_inside_of_one_snapshot(tmp_path, mode, limit, sizes):
    table = make_table(tmp_path, schema="p INT NOT NULL, id BIGINT", partition_by=["p"])
    table.append([{"p": p, "id": i} for p, n in enumerate((3, 4, 5, 6, 9)) for i in range(n)])
    begin = {"scan__snapshot_id": 1} if mode == "from-snapshot" else {}
    reader = reader_of(table, limit, scan__mode=mode, scan__plan_sort_partition="true", **begin)
    assert batches(reader, reader.initialOffset()) == sizes


def test_a_batch_waits_for_enough_rows(table, clock):
    table.append(rows(0, 1))
    reader = reader_of(table, {"minRowsPerTrigger": 5, "maxTriggerDelayMs": 60_000})
    first = reader.initialOffset()
    start = latest(reader, first)
    assert start != first  # when the last batch was is not known, so the first one waits for nothing
    for i in range(4):
        assert latest(reader, start) == start
        table.append(rows(1 + i, 1))
    clock.seconds += 59
    assert latest(reader, start) == start
    table.append(rows(5, 2))
    assert batches(reader, start) == [6]


def test_a_batch_waits_no_longer_than_the_delay(table, clock):
    table.append(rows(0, 1))
    reader = reader_of(table, {"minRowsPerTrigger": 5, "maxTriggerDelayMs": 60_000})
    start = latest(reader, reader.initialOffset())
    table.append(rows(1, 1))
    clock.seconds += 59.9
    assert latest(reader, start) == start
    clock.seconds += 0.1
    end = latest(reader, start)
    assert end["snapshot"] == 2
    clock.seconds += 60
    assert latest(reader, end) == end  # nothing is new, so the delay goes on
    table.append(rows(2, 1))
    assert latest(reader, end)["snapshot"] == 3
    assert latest(reader, end) == end  # it was given out


def test_waiting_counts_rows_only_when_something_was_committed(table, monkeypatch):
    reader = reader_of(table, {"minRowsPerTrigger": 5, "maxTriggerDelayMs": 60_000})
    table.append(rows(0, 1))
    start = latest(reader, reader.initialOffset())
    table.append(rows(1, 1))
    counted = []
    feed = type(reader._feed)
    count = feed.rows_between
    monkeypatch.setattr(feed, "rows_between", lambda *args: counted.append(args) or count(*args))
    for _ in range(5):
        assert latest(reader, start) == start
    assert len(counted) == 1
    table.append(rows(2, 1))
    assert latest(reader, start) == start
    assert len(counted) == 2


def test_the_most_and_the_fewest_rows_go_together(table):
    reader = reader_of(table, {"minRowsPerTrigger": 6, "maxTriggerDelayMs": 60_000, "maxRowsPerTrigger": 4})
    start = latest(reader, reader.initialOffset())
    table.append(rows(0, 1))
    start = latest(reader, start)
    for i in range(1, 9, 2):
        table.append(rows(i, 2))
    assert batches(reader, start) == [4]  # then four rows are left, and wait for two more


def test_who_takes_what_is_there_and_ends_waits_for_nothing(table):
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

    pace = {"minRowsPerTrigger": 5, "maxTriggerDelayMs": 60_000}
    table.append(rows(0, 1))
    once = reader_of(table, pace)
    assert once.getDefaultReadLimit() == ReadMinRows(5)
    start = latest(once, once.initialOffset())
    table.append(rows(1, 1))
    assert latest(once, start) == start
    assert once.latestOffset(start, ReadAllAvailable())["snapshot"] == 2
    now = reader_of(table, {**pace, "maxRowsPerTrigger": 1}, scan__snapshot_id=1)
    now.prepareForTriggerAvailableNow()
    assert batches(now, now.initialOffset()) == [1, 1]


@pytest.mark.parametrize("alone", ["minRowsPerTrigger", "maxTriggerDelayMs"])
def test_the_fewest_rows_need_a_delay(table, alone):
    with pytest.raises(OptionError, match=rf"read.stream.{alone} is set, but read.stream.m\w+ is not"):
        reader_of(table, {alone: 5})


def test_limits_may_be_stored_with_the_table(tmp_path):
    table = make_table(tmp_path, options={"read.stream.maxFilesPerTrigger": "1"})
    table.append(rows(0, 1))
    table.append(rows(1, 2))
    reader = reader_of(table)
    assert batches(reader, reader.initialOffset()) == [1, 2]
    more = reader_of(table, {"maxFilesPerTrigger": 2})
    assert batches(more, more.initialOffset()) == [3]


@pytest.mark.spark
def test_a_query_waits_for_enough_rows(lake, stream):
    src, dst = (lake.create_table(name, "id BIGINT NOT NULL, v STRING") for name in ("db.src", "db.dst"))
    src.append(rows(0, 2))
    pace = {"read.stream.minRowsPerTrigger": 3, "read.stream.maxTriggerDelayMs": 3_600_000}
    writer = stream.source(**pace).writeStream.format("anabranch").option("warehouse", stream.warehouse)
    writer = writer.option("checkpointLocation", str(stream.checkpoint)).queryName("patient")
    query = writer.trigger(processingTime="50 milliseconds").start("db.dst")
    deadline = time.monotonic() + 240

    def wait_for(count):
        while len(ids_of(dst)) < count and time.monotonic() < deadline:
            assert query.exception() is None
            time.sleep(0.05)

    try:
        wait_for(2)
        for i in range(2, 5):
            src.append(rows(i, 1))
        wait_for(5)
    finally:
        query.stop()
    assert [s.total_record_count for s in sorted(dst.snapshots(), key=lambda s: s.id)] == [2, 5]
