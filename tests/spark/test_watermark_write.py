"""The watermark that Spark's writes record: batches, streams, and streams from table to table."""

import json
from datetime import datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import anabranch
from anabranch.kernel.log.properties import WATERMARK_PROPERTY

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
BY_SOURCE = {"sink.watermark.source-column": "_source"}
SNAPSHOT_BY_SNAPSHOT = {
    "scan.mode": "from-snapshot",
    "scan.snapshot-id": "1",
    "read.stream.maxFilesPerTrigger": "1",
}
EPOCH = datetime(1970, 1, 1)


def of(*seconds, source=None):
    column = {} if source is None else {"_source": source}
    return [{"id": number, "ts": EPOCH + timedelta(seconds=s), **column} for number, s in enumerate(seconds)]


def frame_of(spark, rows):
    columns = "id BIGINT, ts TIMESTAMP_NTZ" + (", _source STRING" if "_source" in rows[0] else "")
    return spark.createDataFrame(rows, columns)


def recorded(table):
    return [s.watermark for s in sorted(table.snapshots(), key=lambda s: s.id)]


@pytest.fixture
def run(spark, warehouse, tmp_path):
    """Run a query from one table to another until it has taken what is available."""

    def run(source, target, *, reading=None, writing=None):
        frame = (
            spark.readStream.format("anabranch").options(warehouse=warehouse, **(reading or {})).load(source)
        )
        query = (
            frame.writeStream.format("anabranch")
            .options(warehouse=warehouse, checkpointLocation=str(tmp_path / "checkpoint"), **(writing or {}))
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
    assert recorded(table) == [95_000, 95_000, 115_000]


def test_an_instant_is_the_same_wherever_the_session_is(spark, lake, writing):
    table = lake.create_table("db.t", "ts TIMESTAMP(6) WITH LOCAL TIME ZONE, WATERMARK FOR ts AS ts")
    writing(spark.sql("SELECT timestamp_millis(86400123) AS ts"))  # the session's zone is New York
    assert recorded(table) == [86_400_123]


@pytest.mark.long
def test_batch_writes_take_the_slowest_source(spark, lake, writing):
    table = lake.create_table("db.t", f"{COLUMNS}, p INT", partition_by=["p"])
    frame = frame_of(spark, of(100, 70, source="a") + of(300, source="b")).withColumn("p", sf.lit(1))
    writing(frame, sink__watermark__source_column="_source")
    by_source = table.with_options(BY_SOURCE)
    numbered = frame_of(spark, of(400)).withColumn("_source", sf.lit(7)).withColumn("p", sf.lit(3))
    assert by_source.append(numbered).watermark == 95_000
    producers = json.loads(table.snapshot.properties[WATERMARK_PROPERTY])["producers"]
    assert {source: newest for source, (newest, _) in producers["batch"].items()} == {
        "7": 400_000, "a": 100_000, "b": 300_000
    }  # fmt: skip
    assert table.scan().to_arrow().schema.names == ["id", "ts", "p"]
    with pytest.raises(PySparkException, match="no column '_source'"):
        writing(spark.sql("SELECT 1L AS id"), sink__watermark__source_column="_source")
    with pytest.raises(anabranch.SchemaError, match="names the source of a row"):
        by_source.append(spark.sql("SELECT 1L AS id, array('a') AS _source"))


@pytest.mark.long
def test_a_stream_is_never_ahead_of_the_table_it_reads_nor_behind_when_it_ends(lake, run):
    source, target = lake.create_table("db.src", COLUMNS), lake.create_table("db.dst", COLUMNS)
    by_source = source.with_options(BY_SOURCE)
    by_source.append(of(100, source="a") + of(300, source="b"))
    by_source.append(of(200, source="a"))
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(source) == [95_000, 195_000]
    assert recorded(target) == [95_000, 195_000], "its newest row alone would say 295"
    by_source.append(of(250, source="a") + of(260, source="b"))
    run("db.src", "db.dst", reading=SNAPSHOT_BY_SNAPSHOT)
    assert recorded(target) == [95_000, 195_000, 245_000]


@pytest.mark.long
def test_a_stream_has_sources_of_its_own_and_a_repeated_batch_changes_nothing(lake, run, tmp_path):
    source = lake.create_table("db.src", "id BIGINT, ts TIMESTAMP(6), _source STRING")
    target = lake.create_table("db.dst", COLUMNS)
    source.append(of(100, source="a") + of(300, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    source.append(of(400, source="a"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    commits = tmp_path / "checkpoint" / "commits"
    (commits / "1").unlink()  # Spark does not know that it ran
    (commits / ".1.crc").unlink(missing_ok=True)
    source.append(of(500, source="a") + of(600, source="b"))
    run("db.src", "db.dst", writing=BY_SOURCE)
    assert recorded(target) == [95_000, 295_000, 495_000]
    assert target.scan().to_arrow().num_rows == 5
    (user,) = json.loads(target.snapshot.properties[WATERMARK_PROPERTY])["producers"]
    assert user == target.snapshot.commit_user
