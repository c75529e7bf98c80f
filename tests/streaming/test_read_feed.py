"""Reading the splits of a feed, with columns that say what is true of the rows."""

import itertools
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from anabranch.errors import SchemaError
from anabranch.scan.feed import FeedReader
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import BEGINNING, Position
from tests.support.tables import make_table, rows

_names = itertools.count()


@pytest.fixture
def table():
    return make_table(f"memory://feed{next(_names)}", options={"bucket": "1"})


def feed(table, **options):
    options = {f"scan.{key.replace('_', '-')}": value for key, value in options.items()}
    return Feed.of(table.context, table.schema, options)


def newest(table):
    return Position(table.snapshot.id, table.snapshot.stamp)


def test_plain_rows_are_read_as_by_any_reader(table):
    table.append(rows(0, 3))
    source = feed(table)
    splits = source.splits(BEGINNING, newest(table))
    reader = FeedReader.of(source, ("id",))
    assert reader.schema == reader.reader.schema
    assert reader.read_table(splits) == reader.reader.read_table([s.split for s in splits])
    assert reader.read_table(splits, limit=2).num_rows == 2
    assert reader.count(splits) == 3


def test_changes_say_what_was_added_and_taken_away(table):
    table.append(rows(0, 2))
    table.overwrite(rows(5, 1))
    source = feed(table, on_overwrite="changes")
    splits = pickle.loads(pickle.dumps(source.splits(BEGINNING, newest(table))))
    reader = FeedReader.of(source)
    found = reader.read_table(splits)
    assert found.schema == reader.schema
    assert found.select(["id", "_change"]).to_pylist() == [
        {"id": 0, "_change": "insert"},
        {"id": 1, "_change": "insert"},
        {"id": 0, "_change": "delete"},
        {"id": 1, "_change": "delete"},
        {"id": 5, "_change": "insert"},
    ]
    assert reader.read_table(splits, limit=3) == found.slice(0, 3)
    assert pa.Table.from_batches(reader.read_batches(splits)) == found
    assert reader.count(splits) == 5
    assert reader.read_table([]).schema == reader.schema
    only = FeedReader.of(source, ()).read_table(splits)
    assert only.column_names == ["_change"]
    assert only.num_rows == 5


def test_the_watermark_is_the_same_for_all_rows_of_a_step(table):
    table.append(rows(0, 2))
    source = feed(table)
    splits = source.splits(BEGINNING, newest(table))
    reader = FeedReader.of(source, ("id",), watermark_column=True)
    assert reader.schema.field("_watermark").type == pa.timestamp("us", "UTC")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert reader.read_table(splits)["_watermark"].to_pylist() == [epoch, epoch]

    def carried(watermark):
        marked = [_with_watermark(split, watermark) for split in splits]
        return reader.read_table(marked)["_watermark"].cast(pa.int64()).unique().to_pylist()

    assert carried(1_700_000_000_123) == [1_700_000_000_123_000]
    assert carried(-5) == [0]  # Spark's clock of event time begins in 1970
    assert carried(2**63 - 1) == [(2**63 - 1) // 1000 * 1000]


def _with_watermark(split, watermark):
    files = tuple(f._replace(watermark=watermark) for f in split.files)
    return type(split)(split.partition, split.bucket, files)


def test_a_column_of_that_name_is_refused():
    table = make_table(f"memory://feed{next(_names)}", schema="id BIGINT, _change STRING")
    source = feed(table, on_overwrite="changes")
    with pytest.raises(SchemaError, match="'_change'"):
        FeedReader.of(source)
    assert FeedReader.of(source, ("id",)).schema.names == ["id", "_change"]


def test_a_reader_travels(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 2))
    source = feed(table, on_overwrite="changes")
    splits = source.splits(BEGINNING, newest(table))
    reader = pickle.loads(pickle.dumps(FeedReader.of(source, threads=2)))
    assert reader.reader.threads == 2
    assert reader.read_table(splits).num_rows == 2


def test_a_rollback_is_told_as_what_it_did(table):
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    table.rollback(1)
    changes = table.changes(2, on_overwrite="changes").to_arrow()
    assert changes.select(["id", "_change"]).to_pylist() == [{"id": 1, "_change": "delete"}]
    table.rollback(2)
    changes = table.changes(3, on_overwrite="changes", columns=["id"]).to_arrow()
    assert changes.to_pylist() == [{"id": 1, "_change": "insert"}]
