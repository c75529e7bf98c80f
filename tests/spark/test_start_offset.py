"""A stream that begins exactly where another one stood: the option scan.start-offset, without a JVM."""

import json

import pytest

from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS
from tests.spark.stream_readers import ids, latest, reader_of, through_log
from tests.support.tables import make_table, rows


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path, partition_by=["v"])  # every row is a file of its own
    for i in range(4):
        table.append(rows(10 * i, 2))
    return table


def begun_at(table, offset, **options):
    return reader_of(table, scan__start_offset=json.dumps(offset), **options)


def course(table, reader):
    """The offsets that a stream stands at, from its beginning to what is there now."""
    offsets = [through_log(reader.initialOffset())]
    while (end := through_log(latest(reader, offsets[-1]))) != offsets[-1]:
        offsets.append(end)
    return offsets


def test_it_delivers_what_comes_after_and_nothing_else(table):
    every = {"read__stream__maxFilesPerTrigger": 1} if HAS_READ_LIMITS else {}
    offsets = course(table, reader_of(table, scan__mode="from-snapshot", scan__snapshot_id=1, **every))
    assert any(offset["files"] for offset in offsets) or not HAS_READ_LIMITS
    for place, offset in enumerate(offsets):
        reader = begun_at(table, offset)
        start = through_log(reader.initialOffset())
        assert start["origin"] is None
        rest = [number for first in offsets[place:-1] for number in _between(table, offsets, first)]
        assert ids(reader, start, through_log(latest(reader, start))) == sorted(rest)


def _between(table, offsets, first):
    reader = reader_of(table)
    return ids(reader, first, offsets[offsets.index(first) + 1])


def test_it_is_the_same_at_every_start(table):
    offset = reader_of(table, scan__mode="from-snapshot", scan__snapshot_id=3).initialOffset()
    first = begun_at(table, offset)
    start = first.initialOffset()
    end = latest(first, start)
    table.append(rows(90, 2))
    again = begun_at(table, offset)
    assert again.initialOffset() == start
    assert ids(again, start, through_log(end)) == [20, 21, 30, 31]


def test_the_option_takes_the_place_of_what_the_table_says(table):
    table.alter().set_option("scan.mode", "latest").set_option("consumer-id", "me").apply()
    offset = reader_of(table, scan__mode="from-snapshot", scan__snapshot_id=4).initialOffset()
    reader = begun_at(table, offset)
    start = reader.initialOffset()
    assert ids(reader, start, latest(reader, start)) == [30, 31]


def test_rewritten_history_is_an_error(table):
    offset = {**reader_of(table).initialOffset(), "full": False, "files": None, "stamp": "0" * 32}
    reader = begun_at(table, offset)
    start = reader.initialOffset()
    with pytest.raises(NotFoundError, match="HISTORY_REWRITTEN"):
        latest(reader, start)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"scan__start_offset": "[1"}, OptionError, "which is no JSON"),
        ({"scan__start_offset": '{"snapshot": 3}'}, InvalidInputError, "is no offset of an Anabranch table"),
    ],
)
def test_what_is_no_offset_is_refused(table, options, error, said):
    with pytest.raises(error, match=said):
        reader_of(table, **options)


def test_one_beginning_only(table):
    offset = json.dumps(reader_of(table).initialOffset())
    for other in ({"scan__mode": "latest"}, {"scan__tag_name": "good"}, {"consumer_id": "me"}):
        with pytest.raises(OptionError, match="says where the stream begins, and so does"):
            reader_of(table, scan__start_offset=offset, **other)


def test_another_tables_offset_is_refused(table, tmp_path):
    other = make_table(tmp_path / "other")
    other.append(rows(0, 1))
    reader = begun_at(table, reader_of(other).initialOffset())
    with pytest.raises(InvalidInputError, match="belongs to table"):
        reader.initialOffset()
