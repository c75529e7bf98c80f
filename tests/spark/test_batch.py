"""Batch reads and writes through the data source, against the embedded engine."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import anabranch
from tests.support.tables import ids_of, rows

pytestmark = pytest.mark.spark

ALL_TYPES = """
    b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT NOT NULL, f4 FLOAT, f8 DOUBLE, d DECIMAL(20, 3),
    day DATE, clock TIME(3), t0 TIMESTAMP(0), t3 TIMESTAMP(3), t6 TIMESTAMP(6), t9 TIMESTAMP(9),
    z3 TIMESTAMP(3) WITH LOCAL TIME ZONE, z9 TIMESTAMP(9) WITH LOCAL TIME ZONE,
    c CHAR(3), v VARCHAR(9), s STRING, x BYTES, a ARRAY<INT>, m MAP<STRING, TIMESTAMP(9)>,
    r ROW<p BIGINT, q ARRAY<STRING>>
"""
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 123456)
ROW = {
    "b": True, "i1": -1, "i2": 300, "i4": 70000, "i8": 2**40, "f4": 0.5, "f8": -0.25,
    "d": decimal.Decimal("12345.678"), "day": dt.date(1960, 2, 29), "clock": dt.time(23, 59, 59, 999000),
    "t0": MOMENT.replace(microsecond=0), "t3": MOMENT.replace(microsecond=123000), "t6": MOMENT, "t9": MOMENT,
    "z3": MOMENT.replace(microsecond=123000, tzinfo=dt.UTC), "z9": MOMENT.replace(tzinfo=dt.UTC),
    "c": "abc", "v": "xyz", "s": "text", "x": b"\x00\xff", "a": [1, None, 3],
    "m": [("k", MOMENT), ("n", None)], "r": {"p": 5, "q": ["u", None]},
}  # fmt: skip


def failing(action):
    """The text of the error that Spark passes on from a Python process."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_all_types_come_out_as_the_embedded_engine_has_them(lake, reading):
    table = lake.create_table("db.t", ALL_TYPES)
    schema = table.scan().to_arrow().schema
    table.append(pa.Table.from_pylist([ROW, {"i8": 7}], schema=schema))
    full, empty = reading().orderBy("i8", ascending=False).collect()
    found = full.asDict(recursive=True)
    expected = ROW | {"clock": 86_399_999, "m": {"k": MOMENT, "n": None}, "x": bytearray(b"\x00\xff")}
    # Spark's Row shows instants in the zone of this process.
    for name in ("z3", "z9"):
        expected[name] = ROW[name].astimezone().replace(tzinfo=None)
    assert found == expected
    assert {k: v for k, v in empty.asDict().items() if v is not None} == {"i8": 7}


def test_nanoseconds_are_cut_off_towards_the_past(lake, reading):
    table = lake.create_table("db.t", "t TIMESTAMP(9)")
    nanos = pa.array([-1, 1_999], pa.int64()).view(pa.timestamp("ns"))
    table.append(pa.table({"t": nanos}))
    micros = [row[0] for row in reading().select(f.expr("unix_micros(cast(t as timestamp_ltz))")).collect()]
    shift = [m // 1_000_000 for m in micros]
    assert micros[0] - micros[1] == -2
    assert shift[0] == shift[1] - 1


def test_all_types_go_in_as_the_embedded_engine_reads_them(lake, spark, reading, writing):
    table = lake.create_table("db.t", ALL_TYPES)
    copy = lake.create_table("db.copy", ALL_TYPES)
    table.append(pa.Table.from_pylist([ROW, {"i8": 7}], schema=table.scan().to_arrow().schema))
    writing(reading(), "db.copy")
    assert copy.scan().to_arrow().sort_by("i8").equals(table.scan().to_arrow().sort_by("i8"))


def test_columns_go_by_name_and_missing_ones_become_null(lake, spark, writing):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING, w INT")
    writing(spark.range(3).select(f.lit(5).cast("tinyint").alias("W"), "id"))
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": i, "v": None, "w": 5} for i in range(3)
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["cast(id as string) id"], "column 'id' is STRING, but 'db.t' has BIGINT NOT NULL"),
        (["id", "id other"], "column 'other' is not in 'db.t'"),
        (["'x' v"], "the rows lack column 'id' of 'db.t', which is NOT NULL"),
        (["id", "v", "v V"], "two columns of the rows are both 'v'"),
        (["id", "to_variant_object(named_struct('a', 1)) v"], "no column of a table can hold"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(lake, spark, writing, columns, message):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    frame = spark.range(3).withColumn("v", f.lit("x")).selectExpr(*columns)
    assert message in failing(lambda: writing(frame))
    assert table.snapshot is None


def test_digits_that_a_column_does_not_have_are_refused_not_cut_off(lake, spark, writing):
    table = lake.create_table("db.t", "t TIMESTAMP(3) WITH LOCAL TIME ZONE")
    micros = spark.range(1).selectExpr("timestamp_micros(1234567) as t")
    assert "would lose digits" in failing(lambda: writing(micros))
    writing(micros.selectExpr("date_trunc('millisecond', t) as t"))
    assert table.scan().to_arrow()["t"].cast("int64").to_pylist() == [1234]


def test_a_null_in_a_not_null_column_is_refused_and_leaves_no_files(
    lake, spark, writing, warehouse, tmp_path
):
    table = lake.create_table("db.t", "id BIGINT NOT NULL")
    frame = spark.range(0, 10, 1, 1).selectExpr("nullif(id, 5) as id")
    assert "NOT NULL" in failing(lambda: writing(frame))
    assert table.snapshot is None
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_failing_task_leaves_no_files_of_any_task(lake, spark, writing, tmp_path):
    lake.create_table("db.t", "id BIGINT NOT NULL")
    frame = spark.range(0, 1000, 1, 4).selectExpr("if(id = 999, raise_error('boom'), id) as id")
    assert "boom" in failing(lambda: writing(frame))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_merge_schema_adds_and_widens_columns(lake, spark, writing):
    table = lake.create_table("db.t", "id INT, v STRING")
    frame = spark.range(2).selectExpr("id + 5000000000 AS ID", "'x' AS note")
    writing(frame, mergeSchema="true")
    assert {f.name: str(f.type) for f in table.schema.fields} == {
        "id": "BIGINT",
        "v": "STRING",
        "note": "STRING",
    }
    assert table.scan("note = 'x'").to_arrow()["id"].to_pylist() == [5_000_000_000, 5_000_000_001]
    message = failing(lambda: writing(spark.sql("SELECT 'x' AS id, 1 AS more"), mergeSchema="true"))
    assert "add_column('id_2', 'STRING')" in message
    assert len(table.schemas()) == 2
    lake.table("db.t").append(spark.sql("SELECT 1L AS id, 2 AS more"), schema="merge")
    assert table.scan("more = 2").count() == 1
    made = lake.create_table("db.made", data=spark.sql("SELECT 1L AS id, 'x' AS v"))
    assert made.scan().to_arrow().to_pylist() == [{"id": 1, "v": "x"}]


def test_defaults_and_checks_hold_for_spark_too(lake, spark, writing, tmp_path):
    table = lake.create_table(
        "db.t", "id BIGINT NOT NULL, v STRING NOT NULL DEFAULT 'none', CONSTRAINT positive CHECK (id > 0)"
    )
    writing(spark.range(1, 3))
    assert table.scan().to_arrow()["v"].to_pylist() == ["none", "none"]
    assert "'positive'" in failing(lambda: writing(spark.range(-1, 3)))
    spark.range(1, 2).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in")).selectExpr("id - 5 AS id")
    query = (
        stream.writeStream.format("anabranch")
        .options(warehouse=lake.url, checkpointLocation=str(tmp_path / "c"))
        .queryName("rules")
        .trigger(availableNow=True)
        .start("db.t")
    )
    assert "'positive'" in failing(query.awaitTermination)
    assert table.scan().count() == 2


def test_the_default_mode_says_what_to_use(lake, spark, warehouse):
    lake.create_table("db.t", "id BIGINT NOT NULL")
    writer = spark.range(3).write.format("anabranch").option("warehouse", warehouse)
    text = failing(lambda: writer.save("db.t"))
    assert "append" in text.lower()


def test_overwrite_replaces_the_partitions_of_the_new_rows(lake, spark, writing, reading):
    table = lake.create_table("db.t", "dt STRING NOT NULL, id BIGINT", partition_by=["dt"])
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "dt string, id long")
    writing(frame)
    writing(frame.where("dt = 'b'").selectExpr("dt", "id + 10 as id"), mode="overwrite")
    assert sorted(map(tuple, reading().collect())) == [("a", 1), ("b", 12)]
    assert table.snapshot.commit_kind == "OVERWRITE"
    empty = frame.where("false")
    writing(empty, mode="overwrite", overwrite__partition="dt=a")
    assert sorted(map(tuple, reading().collect())) == [("b", 12)]
    writing(empty, mode="overwrite", dynamic_partition_overwrite="false")
    assert reading().count() == 0
    assert "outside of partition" in failing(
        lambda: writing(frame, mode="overwrite", overwrite__partition="dt=a")
    )


@pytest.mark.long
def test_queues_keep_the_order_of_the_frame(lake, spark, writing, reading):
    table = lake.create_table("db.t", "id BIGINT, n BIGINT", options={"bucket": "2", "bucket-key": "id"})
    writing(spark.range(0, 100, 1, 4).selectExpr("id % 5 as id", "id as n"))
    writing(spark.range(100, 200, 1, 4).selectExpr("id % 5 as id", "id as n"))
    for read in (table.scan().to_arrow().to_pylist(), [r.asDict() for r in reading().collect()]):
        for key in range(5):
            assert [row["n"] for row in read if row["id"] == key] == list(range(key, 200, 5))


@pytest.mark.long
def test_filters_and_columns_said_at_opening_are_left_out_of_the_read(lake, reading):
    table = lake.create_table("db.t", "dt STRING NOT NULL, id BIGINT, v STRING", partition_by=["dt"])
    for day in ("a", "b"):
        table.append(pa.table({"dt": [day] * 3, "id": [1, 2, 3], "v": ["x"] * 3}))
    frame = reading(scan__filter="dt = 'b' AND id >= 2", scan__columns="id, dt")
    assert frame.columns == ["id", "dt"]
    assert frame.rdd.getNumPartitions() == 1
    assert sorted(map(tuple, frame.collect())) == [(2, "b"), (3, "b")]


@pytest.mark.long
def test_filters_that_compute_keep_the_same_rows(spark, lake, reading):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    table.append(rows(0, 10))
    asked = "upper(v) IN ('V3', 'V4') AND id % 2 = 0"
    assert [row.id for row in reading(scan__filter=asked).collect()] == [4]
    known = anabranch.connect(lake.url, spark=spark).table("db.t")
    assert [row.id for row in known.scan(asked).to_spark().collect()] == [4]


@pytest.mark.long
def test_one_frame_can_be_filtered_in_different_ways(spark, lake, reading):
    """Spark's push-down into Python sources mixes up plans; this source must not take part in it."""
    lake.create_table("db.t", "id BIGINT NOT NULL, v STRING").append(rows(0, 10))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reading()
        assert frame.filter("id = 3").count() == 1
        assert frame.count() == 10
        assert frame.filter("id < 5").union(frame.filter("id >= 5")).count() == 10
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_frame_goes_on_to_mean_what_it_was_opened_on(lake, reading):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    empty = reading()
    table.append(rows(0, 3))
    frame = reading()
    table.append(rows(3, 3))
    table.alter().add_column("w", "INT").apply()
    assert (empty.count(), frame.count(), reading().count()) == (0, 3, 6)
    assert reading().columns == ["id", "v", "w"]


def test_moments_of_a_table(lake, reading):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    first = table.append(rows(0, 3))
    table.alter().add_column("w", "INT").apply()
    table.append(pa.table({"id": [3], "v": ["v3"], "w": [1]}))
    old = reading(scan__snapshot_id=1)
    assert (old.count(), old.columns) == (3, ["id", "v"])
    assert reading(scan__version="snapshot.1").count() == 3
    assert reading(scan__timestamp_millis=first.time_millis).count() == 3
    today = reading(scan__snapshot_id=1, scan__mode="from-snapshot")
    assert (today.count(), today.columns) == (3, ["id", "v", "w"])
    assert "a read sees one moment" in failing(lambda: reading(scan__snapshot_id=1, scan__version="1"))
    assert "snapshot 9 does not exist" in failing(lambda: reading(scan__snapshot_id=9))


def test_moments_that_are_kept(lake, reading):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    first = table.append(rows(0, 3))
    table.create_tag("good")
    table.create_savepoint()
    table.alter().add_column("w", "INT").apply()
    table.append(pa.table({"id": [3], "v": ["v3"], "w": [1]}))
    table.context.storage.delete("snapshot/snapshot-1")
    for options in (
        {"scan__savepoint_id": 1}, {"scan__version": "savepoint.1"}, {"scan__version": "good"},
        {"scan__tag_name": "good"}, {"scan__timestamp_millis": first.time_millis},
    ):  # fmt: skip
        frame = reading(**options)
        assert (frame.count(), frame.columns) == (3, ["id", "v"]), options
    assert "kept as 'savepoint.1'" in failing(lambda: reading(scan__snapshot_id=1))
    assert "savepoints there are: 1" in failing(lambda: reading(scan__savepoint_id=2))
    too_early = {"scan__timestamp_millis": first.time_millis - 1}
    assert "nearest savepoint is 1" in failing(lambda: reading(**too_early))
    assert "no watermark" in failing(lambda: reading(scan__watermark=5))


def test_tables_are_found_by_path_too(lake, spark, writing, warehouse):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    path = f"{warehouse}/db.db/t"
    spark.range(3).write.format("anabranch").mode("append").save(path)
    assert ids_of(table) == [0, 1, 2]
    assert spark.read.format("anabranch").option("path", path).load().count() == 3
    assert spark.read.format("anabranch").load(f"file://{path}").count() == 3


def test_the_warehouse_of_the_session_is_the_default(spark, tmp_path):
    import anabranch

    home = anabranch.connect(str(tmp_path / "home"))
    home.create_table("db.t", "id BIGINT NOT NULL, v STRING").append(rows(0, 4))
    other = spark.newSession()
    anabranch.spark.attach(other, str(tmp_path / "home"))
    assert other.read.format("anabranch").load("db.t").count() == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("db.missing", {}, "table 'db.missing' does not exist"),
        ("t", {}, "'t' does not name a table"),
        ("db.t", {"anabranch__jbo": "x"}, "did you mean 'anabranch.job'?"),
        ("db.t", {"scan__snapshot_id": "x"}, "scan.snapshot-id"),
        ("db.t", {"scan__columns": "id,nope"}, "nope"),
        ("db.t", {"scan__filter": "nope = 1"}, "nope"),
        ("db.t", {"branch": "fix"}, "branch 'fix' does not exist"),
    ],
)
def test_what_cannot_be_read_is_said_clearly(lake, reading, name, options, message):
    lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    assert message in failing(lambda: reading(name, **options).count())


def test_a_schema_given_by_the_user_must_be_the_tables(lake, spark, warehouse):
    lake.create_table("db.t", "id BIGINT NOT NULL, v STRING").append(rows(0, 3))
    reader = spark.read.format("anabranch").option("warehouse", warehouse)
    assert reader.schema("id long, v string").load("db.t").count() == 3
    text = failing(lambda: reader.schema("id int, v string").load("db.t").count())
    assert "leave out .schema(...)" in text


def test_a_spark_schema_makes_a_table(lake, spark, writing, reading):
    frame = spark.range(3).selectExpr("id", "named_struct('a', id, 'b', array(id)) as s", "now() as t")
    lake.create_table("db.t", frame.schema)
    writing(frame)
    assert reading().schema.simpleString() == frame.schema.simpleString()
    assert reading().count() == 3


def test_a_lake_with_a_session_makes_itself_known_to_it(spark, tmp_path):
    lake = anabranch.connect(str(tmp_path), spark=spark)
    table = lake.create_table("db.known", "id BIGINT")
    table.append([{"id": 1}, {"id": 2}])
    assert spark.read.format("anabranch").load("db.known").count() == 2
    table.append(spark.range(3, 5))
    assert ids_of(table) == [1, 2, 3, 4]
