"""Rows written by Spark's own tasks: the same files as through the processes of Python, for all that read them."""

import json
import logging
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as fn

import anabranch.spark
from anabranch.arrow.parquet_footer import is_intact
from anabranch.arrow.thrift import decode_struct
from anabranch.errors import SchemaError
from anabranch.kernel.commit.commit_message import EventTimes
from anabranch.spark.native import compiled
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.writer import NativeWriter
from anabranch.spark.tasks.frame_writer import write_frame
from anabranch.spark.tasks.task_engine import SparkJobError
from anabranch.spark.types.columns import spark_schema
from tests.spark.native_cases import bag, eventually
from tests.spark.written_rows import EVERY_TYPE, KEYS, LEAVES, random_columns, random_rows
from tests.support.lengths import first_short

pytestmark = [pytest.mark.spark, pytest.mark.versions]

_SCHEMA = 2
"""Field of a footer in Parquet's thrift."""


@pytest.fixture
def told(caplog):
    """What the log says of doors."""
    caplog.set_level(logging.WARNING, "anabranch.spark.native.door")
    return lambda: [
        r.getMessage() for r in caplog.records if "is written through the portable door" in r.getMessage()
    ]


@pytest.fixture
def portably(monkeypatch):
    """Write something the portable way."""

    def write(do):
        with monkeypatch.context() as patched:
            patched.setattr(NativeWriter, "of", lambda *_: Obstacle("a test wants it"))
            return do()

    return write


def frame_of(spark, rows, fields):
    return spark.createDataFrame(rows, spark_schema(fields)).coalesce(1)


def facts(written):
    """All that the manifests will say of the files of a write, but names, sizes and times."""
    return sorted(
        (
            m.partition, m.bucket, m.total_buckets,
            [
                (f.row_count, f.value_stats, f.min_sequence_number, f.max_sequence_number, f.schema_id, f.level,
                 f.file_source, f.value_stats_cols, f.write_cols, f.first_row_id, f.extra_files)
                for f in m.new_files
            ],
        )
        for m in written.messages
    )  # fmt: skip


def footers(folder):
    for path in sorted(folder.rglob("*.parquet")):
        data = path.read_bytes()
        size = int.from_bytes(data[-8:-4], "little")
        yield path, data[-8 - size : -8]


def values(table):
    """The rows as our own reader gives them, each as text: NaN is one value, zeros are two."""
    return bag(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def check_both_doors(spark, lake, portably, columns, seed, count=60, **how):
    """The same rows by both doors, in tables that are alike."""
    native = lake.create_table("db.native", columns, **how)
    portable = lake.create_table("db.portable", columns, **how)
    fields = native.schema.fields
    rows = random_rows(random.Random(seed), fields, count)
    frame = frame_of(spark, rows, fields)
    by_spark = write_frame(frame, native)
    by_python = portably(lambda: write_frame(frame, portable))
    assert facts(by_spark) == facts(by_python)
    folders = [lake_folder(table) for table in (native, portable)]
    of_spark, of_python = ([*footers(folder)] for folder in folders)
    assert len(of_spark) == len(of_python) > 0
    for _, footer in of_spark:
        assert is_intact(footer)
        assert b"anabranch.footer-crc32" in footer
        assert decode_struct(footer)[_SCHEMA] == decode_struct(of_python[0][1])[_SCHEMA]
    assert bag(map(repr, contents(folders[0]))) == bag(map(repr, contents(folders[1])))
    native.append(frame)
    portably(lambda: portable.append(frame))
    assert values(native) == values(portable)
    assert in_spark(spark, native) == in_spark(spark, portable)


def contents(folder):
    """All rows of all files, as PyArrow reads them by itself."""
    for path in sorted(folder.rglob("*.parquet")):
        yield from pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()


def lake_folder(table):
    return Path(table.context.storage.native_path("x")).parent


def in_spark(spark, table):
    """The rows as Spark reads them, as text: Python has no moments of the year 0, where a zone may put some."""
    folder = lake_folder(table)
    reader = spark.read.format("anabranch").option("warehouse", str(folder.parent.parent))
    rows = reader.load(f"db.{folder.name}").select(fn.to_json(fn.struct("*")).alias("row"))
    return sorted(row.row for row in rows.collect())


def test_every_type_is_written_as_by_python(spark, lake, portably, told):
    check_both_doors(spark, lake, portably, EVERY_TYPE, seed=1, count=80)
    assert all("a test wants it" in line for line in told())


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.long] if n > 0 else []) for n in range(40)]
)
def test_random_columns_and_partitions_are_written_as_by_python(spark, lake, portably, told, seed):
    chance = random.Random(seed)
    columns = random_columns(chance, chance.randrange(1, 7))
    keys = chance.sample(KEYS, chance.randrange(3))
    columns += "".join(f", k{i} {kind}" for i, kind in enumerate(keys))
    options = {
        "metadata.stats-mode": chance.choice(["truncate(16)", "truncate(2)", "full", "counts", "none"]),
        "file.compression": chance.choice(["zstd", "snappy", "lz4", "gzip", "none"]),
        "file.checksum": chance.choice(["true", "false"]),
    }
    how = {"options": options, "partition_by": [f"k{i}" for i in range(len(keys))]}
    check_both_doors(spark, lake, portably, columns, seed, count=chance.randrange(1, 120), **how)
    assert all("a test wants it" in line for line in told())


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.long] if n > 0 else []) for n in range(20)]
)
def test_queues_are_written_as_by_python(spark, lake, portably, told, seed):
    chance = random.Random(seed)
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(chance.sample(LEAVES, 3))) + ", k0 INT"
    options = {"bucket": "3", "bucket-key": "c0,c1"}
    how = {"options": options, "partition_by": chance.choice([[], ["k0"]])}
    check_both_doors(spark, lake, portably, columns, seed, count=200, **how)
    assert all("a test wants it" in line for line in told())


def test_rows_of_a_queue_keep_their_order(spark, lake):
    table = lake.create_table(
        "db.q", "k INT, p STRING, n BIGINT", partition_by=["p"], options={"bucket": "2", "bucket-key": "k"}
    )
    frame = spark.range(0, 3000, 1, 1).selectExpr(
        "CAST(id % 11 AS INT) k", "CAST(id % 70 AS STRING) p", "id n"
    )
    table.append(frame)
    found = {}
    for row in table.scan().to_arrow().to_pylist():
        found.setdefault((row["k"], row["p"]), []).append(row["n"])
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sum(map(len, found.values())) == 3000


def test_many_partitions_in_one_task_are_one_file_each(spark, lake, told):
    table = lake.create_table("db.p", "p INT, s STRING", partition_by=["p"])
    frame = (
        spark.range(0, 20_000, 1, 1).selectExpr("CAST(id % 150 AS INT) p", "repeat('x', 20) s").coalesce(1)
    )
    written = write_frame(frame, table.with_options({"sink.writers-per-task.warn": "0"}))
    assert sorted(m.new_files[0].row_count for m in written.messages) == [133] * 100 + [134] * 50
    assert [len(m.new_files) for m in written.messages] == [1] * 150
    assert told() == []


def test_files_end_at_the_target_size(spark, lake):
    table = lake.create_table("db.t", "s STRING", options={"target-file-size": "200 kb"})
    table.append(spark.range(0, 20_000, 1, 1).selectExpr("sha2(CAST(id AS STRING), 512) s"))
    sizes = [path.stat().st_size for path in lake_folder(table).rglob("*.parquet")]
    assert len(sizes) > 5
    assert all(150_000 < size < 300_000 for size in sorted(sizes)[1:])
    assert table.scan().to_arrow().num_rows == 20_000


def test_an_empty_frame_writes_no_file(spark, lake, told):
    table = lake.create_table("db.t", "a INT, p STRING", partition_by=["p"])
    table.append(spark.range(0).selectExpr("CAST(id AS INT) a", "'x' p"))
    assert list(lake_folder(table).rglob("*.parquet")) == []
    assert table.snapshot is not None
    assert told() == []


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("INT NOT NULL", "IF(id = 7, NULL, CAST(id AS INT))", "column 'v' is NOT NULL, but a value is null"),
        (
            "ROW<a ARRAY<INT NOT NULL>>",
            "named_struct('a', array(1, IF(id = 7, NULL, 2)))",
            "'v.a.element' is NOT NULL",
        ),
        ("VARCHAR(3)", "IF(id = 7, 'abcd', 'üüü')", "takes at most 3 characters, but a value has 4"),
        ("VARBINARY(3)", "IF(id = 7, X'01020304', X'010203')", "takes at most 3 bytes, but a value has 4"),
        ("TIME(0)", "IF(id = 7, 86400000, 5000)", "86400000 is none"),
        (
            "TIMESTAMP(0)",
            "timestamp_ntz'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, IF(id = 7, 0.5, 1))",
            "lose digits",
        ),
        ("TIMESTAMP(9)", "IF(id = 7, timestamp_ntz'2300-01-01 00:00:00', NULL)", "1677 and 2262"),
        ("STRING", "CAST(IF(id = 7, X'ff', X'41') AS STRING)", "not UTF-8"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_nothing(spark, lake, told, column, value, message):
    table = lake.create_table("db.t", f"v {column}")
    frame = spark.range(0, 1000, 1, 4).selectExpr(f"{value} v")
    with pytest.raises(SchemaError, match=message):
        table.append(frame)
    assert [
        path for path in lake_folder(table).rglob("*") if path.is_file() and "schema" not in str(path)
    ] == []
    assert told() == []


def test_where_java_does_not_compile_python_writes_the_same_rows(spark, lake, told, monkeypatch):
    table = lake.create_table("db.t", "n BIGINT")
    frame = spark.range(0, 1000, 1, 4).selectExpr("id n")
    monkeypatch.setattr(compiled, "_KEPT", {})
    monkeypatch.setattr(
        compiled, "sources", lambda: {"Broken.java": "package anabranch; class Broken { nonsense }"}
    )
    table.append(frame)
    table.append(frame)
    (line,) = told()
    assert (
        "db.t is written through the portable door, by processes of Python: this version of Spark does not compile"
        in line
    )
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == sorted([*range(1000)] * 2)


@pytest.mark.long
def test_executors_without_the_classes_are_written_by_python(spark, lake, told, monkeypatch):
    table = lake.create_table("db.t", "n BIGINT")
    _under_another_name("Un", monkeypatch)
    monkeypatch.setattr(compiled, "_give", lambda *_: None)
    table.append(spark.range(0, 100, 1, 2).selectExpr("id n"))
    (line,) = told()
    assert "executors do not get the classes" in line
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [*range(100)]


@pytest.mark.long
def test_jobs_that_begin_together_all_have_the_classes(spark, lake, told, monkeypatch):
    tables = [lake.create_table(f"db.t{number}", "n BIGINT") for number in range(4)]
    frame = spark.range(0, 100, 1, 2).selectExpr("id n")
    _under_another_name("Together", monkeypatch)
    compile_them = compiled._classes

    def slowly(*given):
        time.sleep(1)
        return compile_them(*given)

    monkeypatch.setattr(compiled, "_classes", slowly)
    with ThreadPoolExecutor(len(tables)) as threads:
        for done in [threads.submit(table.append, frame) for table in tables]:
            done.result()
    assert told() == []
    assert [table.scan().to_arrow().num_rows for table in tables] == [100] * len(tables)


def _under_another_name(prefix, monkeypatch):
    """Classes that are compiled anew, under names that executors cannot have from another test."""
    found = compiled.sources()
    names = re.compile(rf"\b({'|'.join(file.removesuffix('.java') for file in found)})\b")
    texts = {f"{prefix}{file}": names.sub(rf"{prefix}\1", text) for file, text in found.items()}
    given = compiled._given_class
    monkeypatch.setattr(compiled, "_KEPT", {})
    monkeypatch.setattr(compiled, "sources", lambda: texts)
    monkeypatch.setattr(compiled, "_given_class", lambda jvm, name: given(jvm, f"{prefix}{name}"))


def test_a_task_that_fails_leaves_nothing_and_the_others_neither(spark, lake):
    table = lake.create_table("db.t", "n BIGINT, p INT", partition_by=["p"])
    frame = spark.range(0, 40_000, 1, 4).selectExpr(
        "IF(id = 35000, CAST(raise_error('stop') AS BIGINT), id) n", "CAST(id % 3 AS INT) p"
    )
    with pytest.raises(SparkJobError, match="stop"):
        table.append(frame)
    assert list(lake_folder(table).rglob("*.parquet*")) == []
    assert table.snapshot is None


def test_a_query_that_is_cancelled_leaves_nothing(spark, lake):
    table = lake.create_table("db.t", "n BIGINT")
    slow = (
        spark.range(0, 4, 1, 4)
        .selectExpr("id", "explode(sequence(1, 100000)) i")
        .selectExpr(
            "id * i n", "java_method('java.lang.Thread', 'sleep', CAST(IF(i % 100 = 0, 5, 0) AS BIGINT)) s"
        )
        .filter("s != 'x'")
        .select("n")
    )
    failures = []

    def write():
        spark.sparkContext.addJobTag("cancelled-write")
        try:
            table.append(slow)
        except Exception as error:
            failures.append(error)

    thread = InheritableThread(target=write)
    thread.start()
    eventually(lambda: list(lake_folder(table).rglob(".data-*.tmp")))
    spark.sparkContext.cancelJobsWithTag("cancelled-write")
    thread.join()
    assert isinstance(failures[0], SparkJobError)
    eventually(lambda: not list(lake_folder(table).rglob("*.parquet*")), seconds=20)
    assert table.snapshot is None


@pytest.mark.parametrize(
    ("columns", "frame", "reason"),
    first_short(
        [
            ("n BIGINT, d INT DEFAULT 5", "id n, CAST(NULL AS INT) d", "column 'd' has a DEFAULT"),
            ("n BIGINT, p DOUBLE", "id n, 0.5D p", "it is partitioned by 'p', a column of type DOUBLE"),
            ("n INT", "id n", "column 'n' is int and not bigint, as in the rows: each value is checked"),
        ]
    ),
)
def test_what_python_must_write_is_told_once(spark, lake, told, columns, frame, reason):
    table = lake.create_table("db.t", columns, partition_by=["p"] if " p " in columns else [])
    for _ in range(2):
        table.append(spark.range(0, 10, 1, 1).selectExpr(*frame.split(", ")))
    (line,) = told()
    assert line.endswith(f"is written through the portable door, by processes of Python: {reason}.")
    assert table.scan().to_arrow().num_rows == 20


def test_columns_go_by_name_and_values_that_lose_nothing_are_cast(spark, lake, told):
    table = lake.create_table("db.t", "a BIGINT, b STRING, c DECIMAL(20, 4), d DOUBLE")
    table.append(
        spark.range(0, 3, 1, 1).selectExpr(
            "CAST(id AS INT) D", "CAST(id AS DECIMAL(10, 2)) c", "CAST(id AS TINYINT) A"
        )
    )
    assert told() == []
    assert table.scan().to_arrow().to_pylist()[2] == {"a": 2, "b": None, "c": Decimal("2.0000"), "d": 2.0}


def test_statements_are_carried_out_natively(spark, warehouse, lake, told):
    anabranch.spark.attach(spark, warehouse, catalog="native_writes")
    spark.sql("CREATE DATABASE native_writes.db")
    t = "native_writes.db.t"
    spark.sql(f"CREATE TABLE {t} PARTITIONED BY (p) AS SELECT id n, CAST(id % 3 AS INT) p FROM range(9)")
    spark.sql(f"INSERT INTO {t} SELECT id + 10, 1 FROM range(2)")
    spark.range(20, 22).selectExpr("id n", "CAST(2 AS INT) p").writeTo(t).append()
    spark.range(30, 32).selectExpr("id n", "CAST(2 AS INT) p").write.insertInto(t)
    spark.sql(f"INSERT OVERWRITE {t} PARTITION (p = 0) SELECT id + 40 FROM range(2)")
    assert told() == []
    plan = spark.sql(f"EXPLAIN INSERT INTO {t} SELECT id, 1 FROM range(2)").head()[0]
    assert "(by tasks of Spark)" in plan
    lake.table("db.t").alter().add_check("few", "n < 1000").apply()
    plan = spark.sql(f"EXPLAIN INSERT INTO {t} SELECT id, 1 FROM range(2)").head()[0]
    assert "(by processes of Python: the table has the CHECK 'few')" in plan
    lake.table("db.t").alter().drop_check("few").apply()
    rows = spark.table(t).collect()
    assert sorted((row.p, row.n) for row in rows) == [
        *((0, n) for n in (40, 41)), *((1, n) for n in (1, 4, 7, 10, 11)), *((2, n) for n in (2, 5, 8, 20, 21, 30, 31)),
    ]  # fmt: skip
    spark.sql(f"REPLACE TABLE {t} PARTITIONED BY (p) AS SELECT 'x' s, 1 p")
    assert [row.s for row in spark.table(t).collect()] == ["x"]
    assert told() == []


def test_streams_are_written_natively_and_once(spark, warehouse, lake, told, tmp_path):
    anabranch.spark.attach(spark, warehouse, catalog="native_streams")
    source = lake.create_table("db.from", "n BIGINT, p STRING")
    sink = lake.create_table("db.to", "p STRING, x INT, n BIGINT", partition_by=["p"])

    def run():
        rows = spark.readStream.table("native_streams.db.from").selectExpr("n", "p")
        query = rows.writeStream.option("checkpointLocation", str(tmp_path / "c")).queryName("copy")
        query.trigger(availableNow=True).toTable("native_streams.db.to").awaitTermination()

    source.append([{"n": n, "p": f"ü{n % 70}"} for n in range(1000)])
    run()
    source.append([{"n": 1000, "p": None}])
    run()
    run()
    assert told() == []
    rows = sink.scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == [*range(1001)]
    assert all(
        row["x"] is None and row["p"] == (f"ü{row['n'] % 70}" if row["n"] < 1000 else None) for row in rows
    )
    assert sink.snapshot.commit_identifier == 1
    entry = json.loads(sink.snapshot.properties["anabranch.lineage"])
    assert entry["job"] == "copy"
    assert entry["engine"]["batch"] == 1
    assert len(entry["inputs"]) == 1
    assert entry["run"]
    assert entry.get("problems", []) == []


@pytest.mark.long
def test_rows_of_a_stream_into_a_queue_keep_their_order(spark, warehouse, lake, told, tmp_path):
    anabranch.spark.attach(spark, warehouse, catalog="native_queues")
    source = lake.create_table("db.from", "n BIGINT, k INT")
    sink = lake.create_table("db.to", "n BIGINT, k INT", options={"bucket": "80", "bucket-key": "k"})
    source.append([{"n": n, "k": n % 300} for n in range(5000)])
    query = spark.readStream.table("native_queues.db.from").coalesce(1).writeStream
    query = (
        query.option("checkpointLocation", str(tmp_path / "c")).queryName("queue").trigger(availableNow=True)
    )
    query.toTable("native_queues.db.to").awaitTermination()
    assert told() == []
    found = {}
    for row in sink.scan().to_arrow().to_pylist():
        found.setdefault(row["k"], []).append(row["n"])
    assert sum(map(len, found.values())) == 5000
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert len({split.bucket for split in sink.scan().plan().splits}) > 64  # more than are open at once


def test_a_batch_that_is_refused_leaves_nothing_and_says_why(spark, warehouse, lake, tmp_path):
    anabranch.spark.attach(spark, warehouse, catalog="native_refused")
    source = lake.create_table("db.from", "n INT")
    lake.create_table("db.to", "n INT NOT NULL")
    source.append([{"n": 1}, {"n": None}])
    query = spark.readStream.table("native_refused.db.from").writeStream.queryName("refused")
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="column 'n' is NOT NULL, but a value is null"):
        query.toTable("native_refused.db.to").awaitTermination()
    assert list(lake_folder(lake.table("db.to")).rglob("*.parquet*")) == []


def test_partitions_that_occur_are_overwritten_natively(spark, warehouse, lake, told):
    anabranch.spark.attach(spark, warehouse, catalog="native_dynamic")
    table = lake.create_table("db.t", "n BIGINT, p INT", partition_by=["p"])
    table.append([{"n": 1, "p": 1}, {"n": 2, "p": 2}])
    spark.range(5, 7).selectExpr("id n", "2 p").writeTo("native_dynamic.db.t").overwritePartitions()
    assert sorted((row["p"], row["n"]) for row in table.scan().to_arrow().to_pylist()) == [
        (1, 1),
        (2, 5),
        (2, 6),
    ]
    assert told() == []
    assert json.loads(table.snapshot.properties["anabranch.lineage"])["job"] == "anabranch-tests"


def test_event_times_are_those_that_python_finds(spark, lake, portably, told):
    columns = "n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    table = lake.create_table("db.t", columns)
    frame = spark.range(0, 50, 1, 2).selectExpr(
        "id n",
        "CASE WHEN id % 10 = 3 THEN NULL WHEN id = 7 THEN timestamp_ntz'2999-01-01 00:00:00' "
        "ELSE timestamp_ntz'1969-12-31 23:59:50' + make_dt_interval(0, 0, 0, id / 10) END ts",
    )
    by_spark = write_frame(frame, table)
    assert told() == []
    by_python = portably(lambda: write_frame(frame, table))
    found = [m.event_times for m in by_spark.messages]
    assert found == [m.event_times for m in by_python.messages]
    assert sorted((t.newest, t.ahead) for t in found) == [(-7600, 1), (-5100, 0)]
    nothing = write_frame(frame.filter("ts IS NULL"), table)
    assert [m.event_times for m in nothing.messages] == [EventTimes()] * len(nothing.messages) != []
