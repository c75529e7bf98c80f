"""Consumers of Spark's streams: where they stand, when they move, and what they keep from expiring."""

import logging
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import InvalidNameError, NotFoundError, OptionError
from anabranch.kernel.log.consumers import consumer_lags, find_consumer
from anabranch.options import CONSUMER_ID
from anabranch.runtime import SystemClock
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types.columns import arrow_schema
from tests.support.faults import FaultyStorage, fail, run
from tests.support.tables import ids_of, make_table, rows

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 does not say where a batch begins")


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "warehouse")


def reader_of(table, **options):
    options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}
    return stream_reader(table, arrow_schema(table.schema.fields), {CONSUMER_ID.key: "etl", **options})


def latest(reader, start):
    if not HAS_READ_LIMITS:
        return reader.latestOffset()
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def stands_at(table, name="etl"):
    return find_consumer(table.context, name).next_snapshot


def lag(table):
    (found,) = consumer_lags(table.context)
    return found.snapshots, found.rows


def test_a_new_stream_is_protected_from_its_first_moment(table):
    for i in range(4):
        table.append(rows(i, 1))
    start = reader_of(table, scan__snapshot_id=2).initialOffset()
    assert stands_at(table) == 2
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert table.context.snapshots.earliest_id() == 2
    reader = reader_of(table, scan__snapshot_id=2)
    assert reader.initialOffset() == start
    assert sum(p.value.row_count for p in reader.partitions(start, latest(reader, start))) == 3


def overtaken(table):
    """The table, whose expiry is done just when a consumer is about to be stored."""

    def go_on(_):
        for i in (1, 2):
            table.append(rows(i, 1))
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")

    storage = FaultyStorage(table.context.storage, [run("before", "put", go_on, where="*consumer-etl")])
    return anabranch.Table(replace(table.context, storage=storage))


def test_what_expired_before_a_new_consumer_was_stored_is_not_begun_with(table):
    table.append(rows(0, 1))
    reader = reader_of(overtaken(table))
    start = reader.initialOffset()
    assert table.context.snapshots.earliest_id() > 1
    assert start["snapshot"] == stands_at(table) == 3
    assert sum(p.value.row_count for p in reader.partitions(start, latest(reader, start))) == 3


def test_no_consumer_is_left_where_what_it_was_to_begin_with_has_expired(table):
    table.append(rows(0, 1))
    with pytest.raises(NotFoundError, match="the earliest is"):
        reader_of(overtaken(table), scan__snapshot_id=1).initialOffset()
    assert find_consumer(table.context, "etl") is None
    tail = anabranch.Table(overtaken(table).context).tail("etl", idle=0)
    assert sum(batch.num_rows for batch in tail) == 5


def test_making_a_reader_stores_nothing(table):
    reader_of(table)  # Spark makes readers in tasks as well
    assert find_consumer(table.context, "etl") is None


def test_the_consumer_moves_when_spark_has_committed_and_not_before(table):
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    reader = reader_of(table, scan__snapshot_id=1)
    start = reader.initialOffset()
    end = latest(reader, start)
    reader.partitions(start, end)
    assert (stands_at(table), lag(table)) == (1, (2, 4))
    reader.commit(end)
    assert (stands_at(table), lag(table)) == (3, (0, 0))


@needs_limits
def test_what_the_next_batch_begins_with_has_been_committed(table):
    # Spark calls commit() for a batch when it makes the next one, which may be never.
    table.append(rows(0, 2))
    reader = reader_of(table, scan__snapshot_id=1)
    end = latest(reader, reader.initialOffset())
    assert stands_at(table) == 1
    assert latest(reader, end) == end
    assert stands_at(table) == 2


def test_a_stream_without_a_checkpoint_goes_on_where_its_consumer_is(table):
    table.append(rows(0, 2))
    reader = reader_of(table)
    end = latest(reader, reader.initialOffset())
    reader.commit(end)
    table.append(rows(2, 1))
    again = reader_of(table, scan__mode="from-snapshot", scan__snapshot_id=1)
    start = again.initialOffset()
    assert start["snapshot"] == 1
    assert [p.value.row_count for p in again.partitions(start, latest(again, start))] == [1]


@needs_limits
def test_a_consumer_remembers_the_place_inside_of_a_snapshot(table):
    for i in range(3):
        table.append(rows(i, 1))
    limit = {"read.stream.maxFilesPerTrigger": 2}
    reader = reader_of(table, **limit)
    start = reader.initialOffset()
    reader.commit(latest(reader, start))
    assert stands_at(table) == 3
    again = reader_of(table, **limit)
    begin = again.initialOffset()
    assert (begin["snapshot"], begin["files"], begin["full"]) == (3, 2, True)
    assert [p.value.row_count for p in again.partitions(begin, latest(again, begin))] == [1]


def test_a_checkpoint_wins_over_the_consumer_and_says_so(table, caplog):
    for i in range(3):
        table.append(rows(i, 1))
    first = reader_of(table, scan__snapshot_id=1)
    start = first.initialOffset()
    end = latest(first, start)
    table.reset_consumer("etl", 2)
    restarted = reader_of(table)
    with caplog.at_level(logging.WARNING):
        restarted.partitions(start, end)
    assert "goes on from its checkpoint" in caplog.text
    assert "the end of snapshot 1" in caplog.text
    assert stands_at(table) == 1
    restarted.commit(end)
    assert stands_at(table) == 4
    caplog.clear()
    same = reader_of(table)
    same.partitions(end, end)
    assert not caplog.records


def test_a_consumer_that_was_deleted_is_made_again_where_the_checkpoint_is(table):
    table.append(rows(0, 1))
    reader = reader_of(table)
    end = latest(reader, reader.initialOffset())
    table.delete_consumer("etl")
    restarted = reader_of(table)
    restarted.partitions(end, end)
    assert stands_at(table) == 2


def test_a_consumer_that_cannot_be_stored_does_not_stop_the_stream(table, caplog):
    table.append(rows(0, 1))
    reader_of(table).initialOffset()
    storage = FaultyStorage(table.context.storage, [fail("put", where="*consumer-etl")])
    flaky = anabranch.Table(replace(table.context, storage=storage))
    reader = reader_of(flaky)
    end = latest(reader, reader.initialOffset())
    reader.commit(end)
    assert "stays behind" in caplog.text
    assert stands_at(table) == 1
    reader.commit(end)
    assert stands_at(table) == 2


def test_a_consumer_that_cannot_be_looked_at_does_not_stop_the_stream(table, caplog):
    table.append(rows(0, 1))
    reader = reader_of(table)
    end = latest(reader, reader.initialOffset())
    storage = FaultyStorage(table.context.storage, [fail("get", where="*consumer-etl")])
    restarted = reader_of(anabranch.Table(replace(table.context, storage=storage)))
    restarted.commit(end)
    assert "stays behind" in caplog.text
    restarted.commit(end)
    assert stands_at(table) == 2


class _Clock(SystemClock):
    seconds = 0.0

    def monotonic(self):
        return self.seconds


@needs_limits
def test_a_stream_that_has_nothing_to_read_gives_signs_of_life(tmp_path):
    table = make_table(tmp_path, options={"consumer.expiration-time": "30 s"})
    clock = _Clock()
    timed = replace(table.context.runtime, clock=clock)
    storage = FaultyStorage(table.context.storage, ())
    reader = reader_of(anabranch.Table(replace(table.context, runtime=timed, storage=storage)))
    start = reader.initialOffset()
    stored = []
    for seconds in range(0, 25, 5):
        clock.seconds = float(seconds)
        assert latest(reader, start) == start
        stored.append(storage.counts()["put"])
    assert stored == [1, 1, 2, 2, 3]


def test_names_that_cannot_be_are_refused_before_anything_is_stored(table):
    with pytest.raises(InvalidNameError):
        reader_of(table, consumer_id="a/b")
    with pytest.raises(OptionError, match="takes none"):
        reader_of(table, scan__mode="latest", scan__snapshot_id=1)
    assert consumer_lags(table.context) == []


def test_a_gap_is_an_error_that_says_from_where_it_goes_on(table):
    for i in range(4):
        table.append(rows(i, 1))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    with pytest.raises(NotFoundError, match="the earliest is 3") as caught:
        reader_of(table, scan__snapshot_id=2).initialOffset()
    assert "scan.snapshot-id=3" in caught.value.hint
    assert find_consumer(table.context, "etl") is None


@pytest.mark.spark
def test_nothing_is_lost_while_a_query_is_stopped(lake, stream):
    src, dst = (lake.create_table(name, "id BIGINT NOT NULL, v STRING") for name in ("db.src", "db.dst"))
    src.append(rows(0, 3))
    stream.run(stream.source(consumer_id="etl"))
    assert ids_of(dst) == [0, 1, 2]
    behind, _ = lag(src)
    assert behind == (
        0 if HAS_READ_LIMITS else 1
    )  # Spark 4.1 says that a batch is done when it makes the next

    for i in range(3, 9):
        src.append(rows(i, 1))
    src.compact(full=True)
    src.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert src.context.snapshots.earliest_id() == stands_at(src) == 2 - behind
    (shown,) = src.consumers()
    assert (shown.name, shown.rows) == ("etl", 6 + 3 * behind)

    stream.run(stream.source(consumer_id="etl"))  # from its checkpoint
    assert ids_of(dst) == list(range(9))


@pytest.mark.long
@needs_limits
@pytest.mark.spark
def test_a_query_without_a_checkpoint_goes_on_from_its_consumer(lake, stream):
    src, dst = (lake.create_table(name, "id BIGINT NOT NULL, v STRING") for name in ("db.src", "db.dst"))
    src.append(rows(0, 3))
    stream.run(stream.source(consumer_id="etl"))
    src.append(rows(3, 1))
    stream.checkpoint = stream.checkpoint.with_name("another")
    stream.run(stream.source(consumer_id="etl"), query="anew")
    assert ids_of(dst) == [0, 1, 2, 3]
    assert lag(src) == (0, 0)
