"""Frames that Spark's tasks write: few files, order in queues, one commit, and warnings with numbers."""

import logging
import pickle
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import InvalidInputError, NotFoundError, SchemaError
from anabranch.format.rows.bucket import assign_buckets
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import BigIntType
from anabranch.spark import cluster
from anabranch.spark.context.attached import known_options
from anabranch.spark.source.batch import BatchWriter
from anabranch.spark.types.columns import spark_schema
from tests.support.tables import ids_of, make_table

COLUMNS = "id BIGINT, p INT, k BIGINT"


@pytest.fixture
def frame(spark):
    """Rows in 4 parts, each of which has rows of every partition and bucket."""

    def make(count=4_000, partitions=20):
        return spark.range(0, count, 1, 4).selectExpr(
            "id", f"CAST(id % {partitions} AS INT) AS p", "id % 97 AS k"
        )

    return make


def file_counts(table):
    """Files of each partition and bucket."""
    return Counter(
        (split.partition, split.bucket) for split in table.scan().plan().splits for _ in split.files
    )


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if "buckets to write for each task" in r.getMessage()]


def test_a_frame_makes_one_file_for_each_partition(frame, lake, writing):
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"])
    writing(frame())
    assert set(file_counts(table).values()) == {4}  # one of each task
    writing(cluster(frame(), table), mode="overwrite")
    assert set(file_counts(table).values()) == {1}
    snapshot = table.append(frame())
    assert (snapshot.id, snapshot.commit_kind, snapshot.delta_record_count) == (3, "APPEND", 4_000)
    assert set(file_counts(table).values()) == {2}
    assert len(file_counts(table)) == 20
    assert ids_of(table) == sorted([*range(4_000)] * 2)


@pytest.mark.long
def test_rows_of_a_queue_keep_their_order(frame, lake):
    table = lake.create_table("db.q", COLUMNS, options={"bucket": "3", "bucket-key": "k"})
    table.append(frame())
    table.append(frame().selectExpr("id + 4000 AS id", "p", "k"))
    assert set(file_counts(table).values()) == {2}
    rows = table.scan().to_arrow()
    buckets = assign_buckets([rows["k"]], [BigIntType()], 3)
    ids = rows["id"].to_numpy()
    for bucket in range(3):
        assert len(ids[buckets == bucket]) > 1000
        assert (ids[buckets == bucket][1:] > ids[buckets == bucket][:-1]).all()
    assert sorted(ids) == list(range(8_000))


def test_rows_of_a_partitioned_queue_keep_their_order(frame, lake):
    table = lake.create_table("db.q", COLUMNS, partition_by=["p"], options={"bucket": "2", "bucket-key": "k"})
    table.append(frame(partitions=3))
    assert set(file_counts(table).values()) == {1}
    assert len(file_counts(table)) == 6
    for p in range(3):
        rows = table.scan(f"p = {p}").to_arrow()
        buckets = assign_buckets([rows["k"]], [BigIntType()], 2)
        for bucket in range(2):
            ids = rows["id"].to_numpy()[buckets == bucket]
            assert (ids[1:] > ids[:-1]).all()


def test_what_cannot_be_brought_together_is_left_as_it_is(frame, lake, spark):
    rows = frame()
    plain = lake.create_table("db.plain", COLUMNS)
    single = lake.create_table("db.single", COLUMNS, options={"bucket": "1", "bucket-key": "k"})
    assert cluster(rows, plain) is rows
    assert cluster(rows, single) is rows
    single.append(rows)
    assert single.scan(columns=["id"]).to_arrow()["id"].to_pylist() == list(range(4_000))


def test_a_large_partition_is_not_one_task(lake, spark):
    """Spark cuts a partition up that is large beside what it thinks good for a task."""
    table = lake.create_table("db.t", "id BIGINT, p INT, v STRING", partition_by=["p"])
    key = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    rows = spark.range(0, 20_000, 1, 4).selectExpr("id", "1 AS p", "repeat(md5(string(id)), 8) AS v")
    spark.conf.set(key, "256kb")
    try:
        table.append(rows)
    finally:
        spark.conf.unset(key)
    (files,) = file_counts(table).values()
    assert files > 1
    assert ids_of(table) == list(range(20_000))


def test_columns_go_by_name_and_may_be_left_out(lake, spark):
    table = lake.create_table("db.t", "id BIGINT, P INT, k BIGINT", partition_by=["P"])
    table.append(spark.range(10).selectExpr("CAST(1 AS INT) AS p", "id"))
    table.append(spark.range(10).selectExpr("id"))
    assert table.scan("P IS NULL").to_arrow().num_rows == 10
    queue = lake.create_table("db.q", COLUMNS, options={"bucket": "2", "bucket-key": "k,p"})
    queue.append(spark.range(10).selectExpr("id", "id AS k"))
    assert ids_of(queue) == list(range(10))
    with pytest.raises(SchemaError, match="'other' is not in 'db.t'"):
        table.append(spark.range(1).selectExpr("id AS other"))


@pytest.mark.long
def test_overwriting_by_a_frame(frame, lake):
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"])
    table.append(frame(partitions=4))
    table.overwrite(frame(400, partitions=4).where("p = 1"))
    assert table.scan("p = 1").to_arrow().num_rows == 100
    assert table.scan("p <> 1").to_arrow().num_rows == 3_000
    table.overwrite(frame(40, partitions=4).where("p = 2"), partition={"p": 2})
    assert table.scan("p = 2").to_arrow().num_rows == 10


def test_a_failed_write_leaves_nothing(frame, lake, warehouse):
    table = lake.create_table("db.t", "id BIGINT, p INT, k INT NOT NULL", partition_by=["p"])
    broken = frame().selectExpr("id", "p", "CAST(IF(id = 3999, NULL, 1) AS INT) AS k")
    with pytest.raises(SchemaError, match="'k' is NOT NULL"):
        table.append(broken)
    assert table.snapshot is None
    paths = [i.path for i in table.context.storage.list("", recursive=True, include_temporary=True)]
    assert [path for path in paths if not path.startswith("schema/")] == []


def test_an_error_of_the_query_says_what_it_was(lake, spark):
    table = lake.create_table("db.t", "id BIGINT, p BIGINT", partition_by=["p"])
    with pytest.raises(anabranch.AnabranchError, match=r"writing db\.t.*a bad day"):
        table.append(spark.range(10).selectExpr("id", "CAST(raise_error('a bad day') AS BIGINT) AS p"))
    assert table.snapshot is None


def test_tables_in_memory_get_their_rows_through_the_driver(spark):
    table = make_table("memory://clustering")
    table.append(spark.range(3).selectExpr("id", "'x' AS v"))
    assert ids_of(table) == [0, 1, 2]


def test_a_stream_cannot_be_appended_at_once(lake, spark):
    table = lake.create_table("db.t", "value BIGINT")
    stream = spark.readStream.format("rate").load().select("value")
    with pytest.raises(InvalidInputError, match="stream"):
        table.append(stream)


def test_streams_are_clustered_by_partition_and_queues_left_in_order(lake, spark, tmp_path):
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"])
    queue = lake.create_table("db.q", COLUMNS, options={"bucket": "2", "bucket-key": "k"})
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000)
    stream = source.load().selectExpr("value AS id", "CAST(value % 20 AS INT) AS p", "value % 97 AS k")
    assert cluster(stream, queue) is stream
    assert cluster(stream, queue, keep_order=False) is not stream
    query = (
        cluster(stream, table)
        .writeStream.format("anabranch")
        .queryName("clustered")
        .option("path", f"{lake.url}/db.db/t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        until = time.monotonic() + 60
        while (table.snapshot is None or table.snapshot.id < 2) and time.monotonic() < until:
            assert query.exception() is None
            time.sleep(0.1)
    finally:
        query.stop()
    assert set(file_counts(table.at(2)).values()) <= {1, 2}
    assert table.at(2).scan().to_arrow().num_rows == 2_000


def test_tables_by_name_are_those_of_the_sessions_warehouse(spark, frame):
    Path(known_options(spark)["warehouse"]).mkdir(exist_ok=True)
    with pytest.raises(NotFoundError, match=r"db\.nowhere"):
        cluster(frame(), "db.nowhere")
    other = spark.newSession()
    with pytest.raises(NotFoundError, match="knows no warehouse") as caught:
        cluster(other.range(1), "db.nowhere")
    assert "attach" in caught.value.hint


def test_a_warning_comes_before_the_job_if_the_frame_is_easy_to_count(frame, lake, caplog):
    options = {"sink.writers-per-task.warn": "3"}
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"], options=options)
    with caplog.at_level(logging.WARNING):
        table.append(frame(partitions=20))
    (warning,) = warnings_of(caplog)
    assert "20 partitions x 1 bucket / 2 tasks = 10 buckets" in warning
    assert "at least 7 tasks" in warning


def test_plain_writes_warn_from_the_last_append_or_after_the_commit(lake, spark, caplog):
    options = {"sink.writers-per-task.warn": "3"}
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"], options=options)
    rows = pa.table({"id": range(20), "p": pa.array(range(20), pa.int32()), "k": [None] * 20})
    schema = spark_schema(table.schema.fields)

    def write():
        writer = pickle.loads(
            pickle.dumps(BatchWriter.of(table, schema, {"path": "db.t"}, overwrite=False, slots=2))
        )
        before = len(warnings_of(caplog))
        batches = rows.cast(to_arrow_schema(table.schema.fields)).to_batches()
        writer.commit([writer.write(iter(batches)), writer.write(iter(batches))])
        return before, len(warnings_of(caplog)) - before

    with caplog.at_level(logging.WARNING):
        assert write() == (0, 1)
        assert "in fact each wrote 20" in warnings_of(caplog)[0]
        caplog.clear()
        assert write() == (1, 0)
        assert "20 partitions x 1 bucket / 2 tasks = 10 buckets" in warnings_of(caplog)[0]


def test_enough_tasks_are_taken_where_spark_may_have_them(frame, lake, spark, caplog):
    options = {"sink.writers-per-task.warn": "3"}
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"], options=options)
    spark.conf.set("spark.sql.shuffle.partitions", "50")
    try:
        with caplog.at_level(logging.WARNING):
            table.append(frame(partitions=20))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert all("at least" not in warning for warning in warnings_of(caplog))


def test_a_query_is_not_run_twice_to_count_it(frame, lake, spark, caplog):
    options = {"sink.writers-per-task.warn": "3"}
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"], options=options)
    grouped = frame(partitions=20).groupBy("p").count().selectExpr("p", "count AS id", "count AS k")
    with caplog.at_level(logging.WARNING):
        table.append(grouped)
    first = warnings_of(caplog)
    assert len(first) == 1  # from what the tasks wrote
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        table.append(grouped)
    (second,) = warnings_of(caplog)  # expected from what they wrote the last time
    assert "20 partitions x 1 bucket / 2 tasks" in second
