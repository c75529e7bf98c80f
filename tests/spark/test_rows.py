"""Rows between Spark's Arrow batches and data files, without a JVM."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from anabranch.errors import SchemaError, UnsupportedFeatureError
from anabranch.kernel.actions.append import Append
from anabranch.kernel.scan.split import SplitFile
from anabranch.spark.rows.row_reader import partitions_of, snapshot_rows, spread
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.types.columns import arrow_schema, spark_schema
from anabranch.streaming.offsets import FeedFile, FeedSplit
from tests.support.tables import make_table, rows


def read(table):
    schema = table.schema
    reader = pickle.loads(
        pickle.dumps(snapshot_rows(table.context, schema, arrow_schema(schema.fields), snapshot=None))
    )
    return [batch for p in partitions_of(table.scan().plan().splits) for batch in reader.read(p)]


def write(table, schema, *batches):
    writer = pickle.loads(pickle.dumps(RowWriter.of(table, schema)))
    messages = writer.write(iter(batches))
    table.commit(Append(messages))


def test_batches_stay_small_whatever_the_files_hold(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 150_000))
    sizes = [batch.num_rows for batch in read(table)]
    assert sum(sizes) == 150_000
    assert max(sizes) == 65_536
    wide = make_table(tmp_path, "db.wide")
    wide.append(pa.table({"id": range(40), "v": ["x" * (1 << 20)] * 40}))
    assert max(batch.num_rows for batch in read(wide)) < 20


def test_times_of_day_go_through_spark_as_numbers_also_inside_of_types(tmp_path):
    table = make_table(tmp_path, schema="id BIGINT, t TIME(3), r ROW<ts ARRAY<TIME(0)>, m TIMESTAMP(3)>")
    schema = spark_schema(table.schema.fields)
    assert schema["t"].dataType == st.IntegerType()
    given = [
        {"id": 1, "t": 86_399_999, "r": {"ts": [0, None, 1000], "m": None}},
        {"id": 2, "t": None, "r": None},
    ]
    write(table, schema, pa.RecordBatch.from_pylist(given, schema=arrow_schema(table.schema.fields)))
    assert [row for batch in read(table) for row in batch.to_pylist()] == given
    late = pa.RecordBatch.from_pylist(
        [{"id": 3, "r": {"ts": [], "m": 1234567}}], schema=arrow_schema(table.schema.fields)
    )
    with pytest.raises(SchemaError, match="lose data"):
        write(table, schema, late)


def test_a_batch_that_does_not_fit_leaves_no_files(tmp_path):
    table = make_table(tmp_path)
    schema = st.StructType().add("id", st.LongType()).add("v", st.StringType())
    good = pa.record_batch({"id": [1], "v": ["a"]})
    bad = pa.record_batch({"id": pa.array([None], pa.int64()), "v": ["b"]})
    with pytest.raises(SchemaError, match="NOT NULL"):
        write(table, schema, good, bad)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_tables_that_cannot_be_written_are_refused_before_rows_are(tmp_path):
    table = make_table(tmp_path)
    path = table.context.layout.schema_path(0)
    text = table.context.storage.get(path).decode().replace('"primaryKeys": []', '"primaryKeys": ["id"]')
    table.context.storage.put(path, text.encode())
    from anabranch.spark.context.tables import open_table

    again = open_table({"path": "db.t", "warehouse": str(tmp_path)})
    with pytest.raises(UnsupportedFeatureError, match="primary key"):
        RowWriter.of(again, spark_schema(table.schema.fields))


def step(*splits):
    """Splits of a stream, each given as the rows, in thousands, and the megabytes of its files."""
    return [
        FeedSplit(b"p", 0, tuple(FeedFile(SplitFile(f"{n}-{i}", size << 20, count * 1000, 0, "parquet"))
                                 for i, (count, size) in enumerate(files)))
        for n, files in enumerate(splits)
    ]  # fmt: skip


def spread_over(slots, *splits):
    found = spread(given := step(*splits), slots)
    assert [file for split in found for file in split.files] == [f for split in given for f in split.files]
    return [len(split.files) for split in found]


def test_a_backlog_of_small_files_is_shared_by_all_tasks():
    assert spread_over(2, [(250, 1)] * 16) == [8, 8]
    assert spread_over(3, [(1, 3)] * 12) == [4, 4, 4]
    assert spread_over(4, [(250, 1)] * 4) == [2, 2]  # for more tasks it is too little
    assert spread_over(2, [(4000, 1)], [(250, 1)] * 2) == [1, 2]
    assert spread_over(2, [(4000, 100)]) == [1]  # a file is read as a whole


def test_little_is_not_shared():
    assert spread_over(8, [(1, 0)] * 100) == [100]
    assert spread_over(8) == []
