"""The streaming source as Spark calls it, without a JVM: what it must do is in its offsets."""

import pytest

from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS
from tests.spark.stream_readers import ids, latest, reader_of, rows_read, through_log
from tests.support.moments import forget
from tests.support.tables import make_table, rows

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def test_all_rows_first_then_those_added(table):
    table.append(rows(0, 3))
    reader = reader_of(table)
    start = reader.initialOffset()
    table.append(rows(3, 2))
    end = latest(reader, start)
    assert ids(reader, start, end) == [0, 1, 2, 3, 4]
    assert latest(reader, end) == end
    table.append(rows(5, 1))
    later = latest(reader, end)
    assert ids(reader, end, later) == [5]


def test_a_new_object_repeats_a_batch_from_its_offsets_alone(table):
    table.append(rows(0, 3))
    reader = reader_of(table)
    start = reader.initialOffset()
    end = latest(reader, start)
    table.append(rows(3, 2))
    later = latest(reader, end)
    table.append(rows(5, 2))
    again = reader_of(table)
    assert ids(again, end, later) == [3, 4]
    assert ids(again, end, latest(again, later)) == [3, 4, 5, 6]


@pytest.mark.parametrize("mode", ["latest", "latest-full"])
def test_the_first_batch_is_the_same_although_its_beginning_is_asked_anew(table, mode):
    # Spark does not store where a query begins. Between the crash and the restart the table has grown.
    table.append(rows(0, 3))
    reader = reader_of(table, scan__mode=mode)
    start = reader.initialOffset()
    table.append(rows(3, 2))
    end = through_log(latest(reader, start))
    before = ids(reader, start, end)
    table.append(rows(5, 2))
    restarted = reader_of(table, scan__mode=mode)
    beginning = restarted.initialOffset()
    assert beginning != start
    assert ids(restarted, beginning, end) == before
    assert ids(restarted, end, latest(restarted, end)) == [5, 6]


@pytest.mark.parametrize("mode", ["latest", "latest-full"])
def test_an_empty_first_batch_stays_empty_when_it_is_repeated(table, mode):
    # Spark plans a first batch also where there is nothing: it ends where it begins. Then it is killed.
    reader = reader_of(table, scan__mode=mode)
    end = through_log(latest(reader, reader.initialOffset()))
    assert end == reader.initialOffset()
    table.append(rows(0, 3))
    restarted = reader_of(table, scan__mode=mode)
    beginning = restarted.initialOffset()
    assert beginning != end
    assert ids(restarted, beginning, end) == []
    assert ids(restarted, end, latest(restarted, end)) == [0, 1, 2]


def test_latest_begins_with_what_comes_next(table):
    table.append(rows(0, 3))
    reader = reader_of(table, scan__mode="latest")
    start = reader.initialOffset()
    assert latest(reader, start) == start
    assert reader.partitions(start, start) == []
    table.append(rows(3, 1))
    assert ids(reader, start, latest(reader, start)) == [3]


def test_a_given_snapshot_is_the_first_one_delivered(table):
    for i in range(4):
        table.append(rows(i, 1))
    reader = reader_of(table, scan__snapshot_id=3)
    start = reader.initialOffset()
    assert ids(reader, start, latest(reader, start)) == [2, 3]


@needs_limits
def test_limits_apply_unless_the_trigger_wants_everything(table):
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

    for i in range(5):
        table.append(rows(2 * i, 2))
    reader = reader_of(table, **{"read.stream.maxFilesPerTrigger": 2}, scan__snapshot_id=1)
    assert reader.getDefaultReadLimit() == ReadMaxFiles(2)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert ids(reader, start, end) == [0, 1, 2, 3]
    everything = reader.latestOffset(start, ReadAllAvailable())
    assert ids(reader, start, everything) == list(range(10))
    by_rows = reader_of(table, **{"read.stream.maxRowsPerTrigger": 3}, scan__snapshot_id=1)
    assert by_rows.getDefaultReadLimit() == ReadMaxRows(3)
    assert ids(by_rows, start, latest(by_rows, start)) == [0, 1]


@needs_limits
def test_available_now_ends_at_what_was_there_when_it_began(table):
    for i in range(3):
        table.append(rows(i, 1))
    reader = reader_of(table, **{"read.stream.maxFilesPerTrigger": 2}, scan__snapshot_id=1)
    reader.prepareForTriggerAvailableNow()
    position = reader.initialOffset()
    table.append(rows(3, 1))
    found = []
    while (following := latest(reader, position)) != position:
        found.append(ids(reader, position, following))
        position = following
    assert found == [[0, 1], [2]]
    assert reader.reportLatestOffset()["snapshot"] == 4


def test_spark_4_1_may_ask_for_the_newest_offset_before_it_says_where_it_is(table, monkeypatch):
    monkeypatch.setattr("anabranch.spark.streams.stream_reader.HAS_READ_LIMITS", False)
    for i in range(4):
        table.append(rows(i, 1))
    first = reader_of(table, scan__snapshot_id=1)
    start = first.initialOffset()
    end = first.latestOffset()
    assert ids(first, start, end) == [0, 1, 2, 3]
    for number in (1, 2):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    table.append(rows(4, 2))
    restarted = reader_of(table, scan__snapshot_id=1)
    newest = restarted.latestOffset()
    assert ids(restarted, end, newest) == [4, 5]
    assert restarted.latestOffset() == newest
    anew = reader_of(table, scan__snapshot_id=1)
    anew.latestOffset()
    with pytest.raises(NotFoundError, match="the earliest is 3"):
        anew.initialOffset()


def test_only_chosen_rows_and_columns_are_read(table):
    table.append(rows(0, 10))
    reader = reader_of(table, "v", scan__filter="id >= 8")
    start = reader.initialOffset()
    assert rows_read(reader, start, latest(reader, start)) == [{"v": "v8"}, {"v": "v9"}]


def test_columns_added_later_do_not_disturb_a_stream(table):
    reader = reader_of(table)
    start = reader.initialOffset()
    table.append(rows(0, 1))
    table.alter().add_column("w", "INT").rename_column("v", "value").apply()
    table.append([{"id": 1, "value": "v1", "w": 5}])
    found = rows_read(reader, start, latest(reader, start))
    assert found == [{"id": 0, "v": "v0"}, {"id": 1, "v": "v1"}]


def test_an_overwrite_stops_the_stream_by_default(table):
    table.append(rows(0, 2))
    reader = reader_of(table, scan__mode="latest")
    start = reader.initialOffset()
    table.overwrite(rows(10, 2))
    with pytest.raises(OptionError, match=r"scan.on-overwrite is 'fail'"):
        latest(reader, start)
    added = reader_of(table, scan__mode="latest", scan__on_overwrite="added")
    assert ids(added, start, latest(added, start)) == [10, 11]


def test_offsets_of_another_table_are_refused(table, tmp_path):
    other = make_table(tmp_path, "db.other")
    offset = reader_of(other).initialOffset()
    with pytest.raises(InvalidInputError, match=r"belongs to table 'db.other'"):
        reader_of(table).partitions(offset, offset)


def test_a_table_that_was_rolled_back_is_noticed(table):
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    reader = reader_of(table)
    end = latest(reader, reader.initialOffset())
    forget(table, 2)
    table.append(rows(4, 1))
    with pytest.raises(NotFoundError, match="HISTORY_REWRITTEN"):
        latest(reader_of(table), end)
