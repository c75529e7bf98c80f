"""The watermark that Spark's writes record: batches, streams, and streams from table to table."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import anabranch
from anabranch.kernel.properties import WATERMARK_PROPERTY

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
BY_SOURCE = {"sink.watermark.source-column": "_source"}
INSTANTS = COLUMNS.replace("(6)", "(6) WITH LOCAL TIME ZONE")
SNAPSHOT_BY_SNAPSHOT = {
    "scan.mode": "from-snapshot",
    "scan.snapshot-id": "1",
    "read.stream.maxFilesPerTrigger": "1",
}
EPOCH = datetime(1970, 1, 1)


def of(*seconds, source=None):
    column = {} if source is None else {"_source": source}
    return [{"id": number, "ts": EPOCH + timedelta(seconds=s), **column} for number, s in enumerate(seconds)]


def instants(*seconds):
    return [{**row, "ts": row["ts"].replace(tzinfo=UTC)} for row in of(*seconds)]


def frame_of(spark, rows):
    columns = "id BIGINT, ts TIMESTAMP_NTZ" + (", _source STRING" if "_source" in rows[0] else "")
    return spark.createDataFrame(rows, columns)


def recorded(table):
    return [s.watermark for s in sorted(table.snapshots(), key=lambda s: s.id)]


@pytest.fixture
def run(spark, warehouse, tmp_path):
    """Run a query from one table to another until it has taken what is available."""

    def run(source, target, *, change=lambda frame: frame, reading=None, writing=None, checkpoint=None):
        frame = (
            spark.readStream.format("anabranch").options(warehouse=warehouse, **(reading or {})).load(source)
        )
        folder = tmp_path / (checkpoint or f"checkpoint-{target}")
        query = (
            change(frame)
            .writeStream.format("anabranch")
            .options(warehouse=warehouse, checkpointLocation=str(folder), **(writing or {}))
            .queryName(f"to-{target}")
            .trigger(availableNow=True)
            .start(target)
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    return run


def test_batch_writes_record_it(spark, lake, writing):
    table = lake.create_table("db.t", COLUMNS)
    writing(frame_of(spark, of(100, 70)).repartition(2))
    writing(frame_of(spark, of(50)), mode="overwrite")
    table.append(frame_of(spark, of(120)))
    table.overwrite(frame_of(spark, of(90)))
    assert recorded(table) == [95_000, 95_000, 115_000, 115_000]


def test_an_instant_is_the_same_wherever_the_session_is(spark, lake, writing):
    table = lake.create_table("db.t", "ts TIMESTAMP(6) WITH LOCAL TIME ZONE, WATERMARK FOR ts AS ts")
    writing(spark.sql("SELECT timestamp_millis(86400123) AS ts"))  # the session's zone is New York
    assert recorded(table) == [86_400_123]


def test_batch_writes_take_the_slowest_source(spark, lake, writing):
    table = lake.create_table("db.t", f"{COLUMNS}, p INT", partition_by=["p"])
    frame = frame_of(spark, of(100, 70, source="a") + of(300, source="b")).withColumn("p", sf.lit(1))
    writing(frame, sink__watermark__source_column="_source")
    table.with_options(BY_SOURCE).append(frame_of(spark, of(400, source="b")).withColumn("p", sf.lit(2)))
    numbered = frame_of(spark, of(400)).withColumn("_source", sf.lit(7)).withColumn("p", sf.lit(3))
    table.with_options(BY_SOURCE).append(numbered)
    table.with_options(BY_SOURCE).append(frame_of(spark, of(200, source="a")).withColumn("p", sf.lit(4)))
    assert recorded(table) == [95_000, 95_000, 95_000, 195_000]
    assert sorted(json.loads(table.snapshot.properties[WATERMARK_PROPERTY])["producers"]["batch"]) == [
        "7",
        "a",
        "b",
    ]
    assert [f.name for f in table.schema.fields] == ["id", "ts", "p"]
    with pytest.raises(PySparkException, match="no column '_source'"):
        writing(spark.sql("SELECT 1L AS id"), sink__watermark__source_column="_source")
    with pytest.raises(anabranch.SchemaError, match="names the source of a row"):
        table.with_options(BY_SOURCE).append(spark.sql("SELECT 1L AS id, array('a') AS _source"))


def test_a_stream_is_never_ahead_of_the_tables_it_reads(lake, run):
    source, target = lake.create_table("db.src", COLUMNS), lake.create_table("db.dst", COLUMNS)
    by_source = source.with_options(BY_SOURCE)
    by_source.append(of(100, source="a") + of(300, source="b"))  # 95
    by_source.append(of(200, source="a"))  # 195
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(source) == [95_000, 195_000]
    assert recorded(target) == [95_000, 195_000], "its newest row alone would say 295"
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(target) == [95_000, 195_000]
    by_source.append(of(250, source="a") + of(260, source="b"))  # 245
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(target) == [95_000, 195_000, 245_000], "nothing is a batch behind when the query ends"


def test_the_middle_of_a_snapshot_is_not_its_end(lake, run):
    source = lake.create_table("db.src", f"{COLUMNS}, p INT", partition_by=["p"])
    target = lake.create_table("db.dst", f"{COLUMNS}, p INT")
    source.append([{**row, "p": 1} for row in of(100)])
    source.append([{**row, "p": p} for p, row in enumerate(of(200, 300))])
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(source) == [95_000, 295_000]
    assert recorded(target) == [95_000, 95_000, 295_000]


def test_a_table_without_a_watermark_bounds_nothing(lake, run):
    source = lake.create_table("db.src", "id BIGINT, ts TIMESTAMP(6)")
    target = lake.create_table("db.dst", COLUMNS)
    source.append(of(100))
    run("db.src", "db.dst")
    assert recorded(target) == [95_000]


def test_a_stream_has_sources_of_its_own(lake, run):
    source = lake.create_table("db.src", "id BIGINT, ts TIMESTAMP(6), _source STRING")
    target = lake.create_table("db.dst", COLUMNS)
    source.append(of(100, source="a") + of(300, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    source.append(of(400, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    source.append(of(500, source="a"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    assert recorded(target) == [95_000, 95_000, 395_000]
    (user,) = json.loads(target.snapshot.properties[WATERMARK_PROPERTY])["producers"]
    assert user == target.snapshot.commit_user


def test_a_batch_that_is_repeated_records_it_once(lake, run, tmp_path):
    source = lake.create_table("db.src", "id BIGINT, ts TIMESTAMP(6), _source STRING")
    target = lake.create_table("db.dst", COLUMNS)
    source.append(of(100, source="a") + of(300, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    source.append(of(400, source="a"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    (tmp_path / "checkpoint-db.dst" / "commits" / "1").unlink()  # Spark does not know that it ran
    (tmp_path / "checkpoint-db.dst" / "commits" / ".1.crc").unlink(missing_ok=True)
    source.append(of(500, source="a") + of(600, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    assert recorded(target) == [95_000, 295_000, 495_000]
    assert target.scan().to_arrow().num_rows == 5


def test_windows_of_a_table_record_their_own(lake, run):
    source = lake.create_table("db.src", INSTANTS)
    target = lake.create_table(
        "db.dst", "start TIMESTAMP(6) WITH LOCAL TIME ZONE, events BIGINT, WATERMARK FOR start AS start"
    )
    source.append(instants(1, 2, 11, 25))
    source.append(instants(26, 31, 47))

    def counted(frame):
        by_window = frame.withWatermark("ts", "5 seconds").groupBy(sf.window("ts", "10 seconds")).count()
        return by_window.select(sf.col("window.start").alias("start"), sf.col("count").alias("events"))

    run("db.src", "db.dst", change=counted, reading=SNAPSHOT_BY_SNAPSHOT)
    found = {row["start"].second: row["events"] for row in target.scan().to_arrow().to_pylist()}
    assert found == {0: 2, 10: 1, 20: 2, 30: 1}
    assert recorded(target)[-1] == 30_000, "of the newest closed window, when the query ends"


def test_a_table_without_a_definition_records_what_spark_has(lake, run):
    columns = "id BIGINT, ts TIMESTAMP(6) WITH LOCAL TIME ZONE"
    source, target = lake.create_table("db.src", columns), lake.create_table("db.dst", columns)
    source.append(instants(100))
    source.append(instants(200))
    marked = {"change": lambda frame: frame.withWatermark("ts", "5 seconds"), "reading": SNAPSHOT_BY_SNAPSHOT}
    run("db.src", "db.dst", **marked)
    assert recorded(target) == [None, 95_000], "a batch behind, as Spark computes it"
