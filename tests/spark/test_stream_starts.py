"""Where Spark's streams begin, and which columns they have."""

import pyarrow as pa
import pytest
from py4j.java_gateway import is_instance_of

from anabranch.errors import NotFoundError, OptionError, SchemaError
from anabranch.spark.source.data_source import AnabranchSource
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS
from tests.spark.stream_queries import failing
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "warehouse")


def source_of(tmp_path, **options):
    options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}
    return AnabranchSource({"warehouse": str(tmp_path / "warehouse"), "path": "db.t", **options})


def columns(source):
    return source.schema().names


def test_a_stream_has_the_columns_of_today_or_of_the_moment_it_begins_at(table, tmp_path):
    table.append(rows(0, 1))
    table.create_tag("good")
    table.alter().add_column("w", "INT").apply()
    table.append([{"id": 1, "v": "v1", "w": 5}])
    assert columns(source_of(tmp_path, scan__tag_name="good")) == ["id", "v"]
    today = source_of(tmp_path, scan__tag_name="good", scan__mode="from-snapshot")
    assert columns(today) == ["id", "v", "w"]
    whole = source_of(tmp_path, scan__timestamp_millis=0, scan__mode="from-timestamp")
    assert columns(whole) == ["id", "v", "w"]


def test_what_a_stream_began_at_may_be_gone_when_it_is_restarted(table, tmp_path):
    table.append(rows(0, 1))
    table.create_tag("good")
    options = {"scan__tag_name": "good", "scan__mode": "from-snapshot"}
    first = source_of(tmp_path, **options)
    start = first.streamReader(first.schema()).initialOffset()
    table.delete_tag("good")
    table.append(rows(1, 1))
    again = source_of(tmp_path, **options)
    reader = again.streamReader(again.schema())
    end = {**start, "snapshot": 2, "stamp": table.snapshot.stamp, "files": None}
    assert sum(p.value.row_count for p in reader.partitions(start, end)) == 2
    with pytest.raises(NotFoundError, match="tag 'good' does not exist"):
        reader.initialOffset()
    without = source_of(tmp_path, scan__tag_name="good")  # Spark does not say yet whether it is a stream
    with pytest.raises(NotFoundError, match="tag 'good' does not exist") as caught:
        without.schema()
    assert "if scan.mode is set to from-snapshot" in caught.value.hint


@pytest.mark.parametrize("begin", [{"scan__timestamp_millis": 0}, {"scan__snapshot_id": 3}])
def test_a_stream_may_begin_where_a_batch_has_nothing_to_read(table, tmp_path, begin):
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    source = source_of(tmp_path, **begin)
    assert columns(source) == ["id", "v"]
    start = source.streamReader(source.schema()).initialOffset()
    assert start["snapshot"] == (0 if "scan__timestamp_millis" in begin else 2)
    with pytest.raises(NotFoundError):
        source.reader(source.schema())


def test_a_stream_of_changes_says_what_was_added_and_what_was_taken_away(table, tmp_path):
    table.append(rows(0, 2))
    source = source_of(tmp_path, scan__on_overwrite="changes", scan__mode="latest")
    assert columns(source) == ["id", "v", "_change"]
    assert not source.schema()["_change"].nullable
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    table.overwrite(rows(5, 1))
    end = {**start, "snapshot": 2, "stamp": table.snapshot.stamp}
    found = [row for p in reader.partitions(start, end) for b in reader.read(p) for row in b.to_pylist()]
    assert [(row["id"], row["_change"]) for row in found] == [(0, "delete"), (1, "delete"), (5, "insert")]
    with pytest.raises(OptionError, match="one of streams"):
        source.reader(source.schema())


def test_the_change_column_cannot_be_left_out(tmp_path):
    table = make_table(tmp_path / "warehouse", options={"scan.on-overwrite": "changes"})
    table.append(rows(0, 1))
    source = source_of(tmp_path)
    assert columns(source) == ["id", "v"]  # a batch read has no changes
    with pytest.raises(OptionError, match="leave out _change"):
        source.streamReader(source.schema())


def test_the_watermark_column_is_there_when_it_is_asked_for(table, tmp_path):
    table.append(rows(0, 1))
    source = source_of(tmp_path, scan__watermark_column="true", scan__columns="id")
    assert columns(source) == ["id", "_watermark"]
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = {**start, "files": None, "full": False}
    (partition,) = reader.partitions(start, end)
    (batch,) = reader.read(partition)
    assert [row["_watermark"].timestamp() for row in batch.to_pylist()] == [0]


def test_columns_of_the_same_name_are_refused(tmp_path):
    make_table(tmp_path / "warehouse", schema="id BIGINT, _change STRING")
    with pytest.raises(SchemaError, match="has a column '_change'"):
        source_of(tmp_path, scan__on_overwrite="changes").schema()
    assert columns(source_of(tmp_path, scan__on_overwrite="changes", scan__columns="id")) == ["id", "_change"]
    assert columns(source_of(tmp_path)) == ["id", "_change"]


def test_a_column_of_that_name_is_not_taken_for_the_one_that_is_added(tmp_path):
    table = make_table(tmp_path / "warehouse", schema="id BIGINT, _change STRING, _watermark TIMESTAMP")
    table.append(pa.table({"id": [7], "_change": ["mine"]}))
    asked = {"scan__columns": "id", "scan__watermark_column": "true", "scan__on_overwrite": "changes"}
    source = source_of(tmp_path, **asked)
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, {**start, "files": None, "full": False})
    (batch,) = reader.read(partition)
    (row,) = batch.to_pylist()
    assert (row["id"], row["_change"], row["_watermark"].timestamp()) == (7, "insert", 0)
    stored = make_table(
        tmp_path / "other", schema="id BIGINT, _change STRING", options={"scan.on-overwrite": "changes"}
    )
    stored.append(pa.table({"id": [7], "_change": ["mine"]}))
    source = source_of(tmp_path, warehouse=tmp_path / "other")
    with pytest.raises(OptionError, match="leave out _change"):
        source.streamReader(source.schema())


def test_a_read_that_says_where_it_begins_says_all_of_that_itself(tmp_path):
    table = make_table(
        tmp_path / "warehouse", options={"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}
    )
    for i in range(3):
        table.append(rows(i, 1))

    def begins_at(**options):
        source = source_of(tmp_path, **options)
        return source.streamReader(source.schema()).initialOffset()["snapshot"]

    assert begins_at() == 1
    assert begins_at(scan__mode="latest") == 3
    assert begins_at(scan__snapshot_id=3) == 2


@pytest.mark.long
@pytest.mark.spark
def test_a_query_begins_with_a_savepoint_whose_snapshot_has_expired(lake, stream):
    src, dst = (lake.create_table(name, "id BIGINT NOT NULL, v STRING") for name in ("db.src", "db.dst"))
    for i in range(3):
        src.append(rows(i, 1))
    src.create_savepoint()
    for i in range(3, 6):
        src.append(rows(i, 1))
    for number in (1, 2, 3):
        src.context.storage.delete(src.context.layout.snapshot_path(number))
    begin = {
        "scan.mode": "from-snapshot-full",
        "scan.savepoint-id": 1,
        "read.stream.maxFilesPerTrigger": 2,
    }
    stream.run(stream.source(**begin))
    assert ids_of(dst) == [0, 1, 2, 3, 4, 5]
    if HAS_READ_LIMITS:
        assert [s.total_record_count for s in sorted(dst.snapshots(), key=lambda s: s.id)] == [2, 4, 6]
    src.append(rows(6, 1))
    src.delete_savepoint(1)
    stream.run(stream.source(**begin))
    assert ids_of(dst) == list(range(7))


@pytest.mark.spark
def test_a_query_that_cannot_begin_says_from_where_it_can(lake, stream):
    src = lake.create_table("db.src", "id BIGINT NOT NULL, v STRING")
    lake.create_table("db.dst", "id BIGINT NOT NULL, v STRING")
    for i in range(4):
        src.append(rows(i, 1))
    src.create_tag("old", 1)
    for number in (1, 2):
        src.context.storage.delete(src.context.layout.snapshot_path(number))
    message = failing(lambda: stream.run(stream.source(scan__tag_name="old")))
    assert "the earliest is 3" in message
    assert "scan.mode=from-snapshot, scan.snapshot-id=3" in message


@pytest.mark.parametrize("name", ["anabranch", "anabranch-kafka"])
def test_streams_that_start_at_the_same_time_may_change_what_they_share(spark, name):
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    shared = sources.lookupDataSource(name).dataSourceCls().envVars()
    # Spark adds to it in the thread of each stream; with a HashMap, five jobs that started at once failed for good.
    assert is_instance_of(spark.sparkContext._gateway, shared, "java.util.concurrent.ConcurrentMap")
