"""Streams from and to tables, run by Spark."""

import json
import time

import pytest

from anabranch.lineage.model import SourceInput, TableInput, lineage_of
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS
from tests.spark.stream_queries import Stream, failing
from tests.support.tables import ids_of, rows

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture
def tables(lake):
    schema = "id BIGINT NOT NULL, v STRING"
    return lake.create_table("db.src", schema), lake.create_table("db.dst", schema)


def test_a_table_is_copied_and_followed_with_its_lineage(tables, stream):
    src, dst = tables
    src.append(rows(0, 5))
    src.append(rows(5, 5))
    query = stream.run(stream.source())
    assert ids_of(dst) == list(range(10))
    src.append(rows(10, 3))
    again = stream.run(stream.source())
    assert ids_of(dst) == list(range(13))
    stream.run(stream.source())
    assert ids_of(dst) == list(range(13))

    first, second = sorted(dst.snapshots(), key=lambda s: s.id)
    assert {s.commit_user for s in (first, second)} == {f"copy@{dst.branch_uuid}"}
    assert [s.commit_identifier for s in (first, second)] == [0, 1]
    entry = lineage_of(second.properties, where="2")
    assert (entry.job, entry.run, entry.problems) == ("copy", str(again.runId), ())
    assert (entry.engine.query, entry.engine.batch) == (str(query.id), 1)
    assert entry.engine.application == stream.spark.conf.get("spark.app.id")
    (given,) = entry.inputs
    assert isinstance(given, TableInput)
    assert (given.name, given.table_uuid, given.branch_uuid) == ("db.src", src.table_uuid, src.branch_uuid)
    assert (given.after, given.through) == (2, 3)
    assert given.end.stamp == src.snapshot.stamp
    began = lineage_of(first.properties, where="1").inputs[0]
    assert (began.after, began.through) == (0, 2)


@pytest.mark.long
@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")
def test_limits_make_more_and_smaller_batches(tables, stream):
    src, dst = tables
    for i in range(5):
        src.append(rows(i, 1))
    stream.run(stream.source(**{"read.stream.maxFilesPerTrigger": 2}))
    assert ids_of(dst) == list(range(5))
    assert [s.total_record_count for s in sorted(dst.snapshots(), key=lambda s: s.id)] == [2, 4, 5]


@pytest.mark.long
def test_a_query_restarts_after_the_snapshot_it_began_with_has_expired(tables, stream):
    src, dst = tables
    src.append(rows(0, 1))
    src.append(rows(1, 1))
    begin = {"scan.mode": "from-snapshot", "scan.snapshot-id": 1}
    stream.run(stream.source(**begin))
    src.append(rows(2, 1))
    src.context.storage.delete(src.context.layout.snapshot_path(1))
    stream.run(stream.source(**begin))
    assert ids_of(dst) == [0, 1, 2]


@pytest.mark.long
def test_a_running_query_takes_what_comes(tables, stream):
    src, dst = tables
    src.append(rows(0, 2))
    frame = stream.source(scan__mode="latest")
    writer = frame.writeStream.format("anabranch").option("warehouse", stream.warehouse)
    writer = writer.option("checkpointLocation", str(stream.checkpoint)).option("anabranch.job", "follow")
    query = writer.trigger(processingTime="100 milliseconds").start("db.dst")
    try:
        deadline = time.monotonic() + 60
        for i in range(2, 6):
            while not query.lastProgress and time.monotonic() < deadline:
                time.sleep(0.05)
            src.append(rows(i, 1))
            while i not in ids_of(dst) and time.monotonic() < deadline:
                assert query.exception() is None
                time.sleep(0.05)
    finally:
        query.stop()
    assert ids_of(dst) == [2, 3, 4, 5]
    assert dst.snapshot.commit_user == f"follow@{dst.branch_uuid}"


@pytest.mark.long
def test_queues_stay_in_order_through_a_stream(lake, stream):
    options = {"bucket": "2", "bucket-key": "id"}
    src = lake.create_table("db.src", "id BIGINT, n BIGINT", options=options)
    dst = lake.create_table("db.dst", "id BIGINT, n BIGINT", options=options)
    for start in range(0, 60, 10):
        src.append([{"id": n % 3, "n": n} for n in range(start, start + 10)])
    stream.run(stream.source())
    found = dst.scan().to_arrow().to_pylist()
    for key in range(3):
        assert [row["n"] for row in found if row["id"] == key] == list(range(key, 60, 3))


def test_files_are_inputs_too(spark, tables, stream, tmp_path):
    _, dst = tables
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "v": "x"}\n')
    stream.run(spark.readStream.schema("id long, v string").json(str(tmp_path / "in")))
    assert ids_of(dst) == [1]
    (given,) = lineage_of(dst.snapshot.properties, where="1").inputs
    assert given == SourceInput("files", "source 0", None, {"logOffset": 0}, f"file:{tmp_path}/in")


def test_event_time_watermarks_reach_the_snapshots(spark, lake, stream):
    src = lake.create_table("db.src", "id BIGINT, t TIMESTAMP(3) WITH LOCAL TIME ZONE")
    dst = lake.create_table("db.dst", "id BIGINT, t TIMESTAMP(3) WITH LOCAL TIME ZONE")
    for second in (100, 200):
        _append_at(src, second)
        stream.run(stream.source().withWatermark("t", "10 seconds"))
    assert dst.snapshot.watermark == 90_000


def _append_at(table, second):
    import pyarrow as pa

    moment = pa.array([second * 1000], pa.int64()).view(pa.timestamp("ms", tz="UTC"))
    table.append(pa.table({"id": [second], "t": moment}))


def test_complete_mode_replaces_the_rows(tables, lake, stream):
    src, _ = tables
    totals = lake.create_table("db.totals", "n BIGINT")
    for expected in (3, 6):
        src.append(rows(expected, 3))
        frame = stream.source().groupBy().count().withColumnRenamed("count", "n")
        stream.run(frame, "db.totals", mode="complete")
        assert totals.scan().to_arrow()["n"].to_pylist() == [expected]


@pytest.mark.long
def test_a_query_that_begins_anew_under_an_old_name_is_not_taken_for_the_old_one(tables, stream, tmp_path):
    src, dst = tables
    src.append(rows(0, 2))
    stream.run(stream.source())
    stream.checkpoint = tmp_path / "another"
    stream.run(stream.source())
    assert ids_of(dst) == [0, 0, 1, 1]


@pytest.mark.long
def test_two_queries_of_one_name_are_an_error_and_lose_nothing(tables, stream, tmp_path):
    src, _ = tables
    other = Stream(stream.spark, stream.warehouse, tmp_path / "other")
    for i in range(2):
        src.append(rows(i, 1))
        if i == 0:
            other.run(other.source(), query="same")  # fixes its floor before the other query begins
        stream.run(stream.source(), query="same")
    src.append(rows(3, 1))
    text = failing(lambda: other.run(other.source(), query="same"))
    assert "another query" in text
    assert "anabranch.job" in text


def test_a_repeated_batch_is_found_and_its_files_are_removed(tables, stream, tmp_path):
    src, dst = tables
    src.append(rows(0, 2))
    stream.run(stream.source())
    files = set(dst.context.storage.list("bucket-0"))
    (stream.checkpoint / "commits" / "0").unlink()  # the crash between our commit and Spark's
    (stream.checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    stream.run(stream.source())
    assert ids_of(dst) == [0, 1]
    assert dst.snapshot.id == 1
    assert set(dst.context.storage.list("bucket-0")) == files


@pytest.mark.long
def test_a_batch_is_known_also_if_a_dying_driver_went_on_to_the_next(tables, stream, tmp_path):
    src, dst = tables
    for i in range(3):
        src.append(rows(i, 1))
        stream.run(stream.source())
    # As if the driver had died after batch 0, but its JVM had gone on to commit batches 1 and 2.
    for batch in (1, 2):
        (stream.checkpoint / "commits" / str(batch)).unlink()
        (stream.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)
    (stream.checkpoint / "offsets" / "2").rename(tmp_path / "offsets-2")
    (stream.checkpoint / "offsets" / ".2.crc").unlink(missing_ok=True)
    for _ in range(2):  # Spark 4.1 ends after the batch it repeats
        stream.run(stream.source())
        assert ids_of(dst) == [0, 1, 2]
    src.append(rows(3, 1))
    stream.run(stream.source())
    assert ids_of(dst) == [0, 1, 2, 3]


@pytest.mark.long
def test_a_batch_that_comes_again_with_other_inputs_is_refused(tables, stream):
    src, dst = tables
    for i in range(2):
        src.append(rows(i, 1))
        stream.run(stream.source())
    for log in ("commits", "offsets"):
        (stream.checkpoint / log / "1").unlink()
        (stream.checkpoint / log / ".1.crc").unlink(missing_ok=True)
    src.append(rows(2, 1))
    text = failing(lambda: stream.run(stream.source()))
    assert "batch 1 of the same query, but of other inputs" in text
    assert ids_of(dst) == [0, 1]


def test_a_sink_without_a_usable_checkpoint_is_refused(spark, tables, stream, warehouse, tmp_path):
    src, dst = tables
    src.append(rows(0, 2))
    writer = stream.source().writeStream.format("anabranch").option("warehouse", warehouse).queryName("q")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "implicit"))
    try:
        text = failing(lambda: writer.trigger(availableNow=True).start("db.dst").awaitTermination())
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "checkpointLocation" in text
    assert dst.snapshot is None


@pytest.mark.long
def test_the_identity_stays_in_the_checkpoint(tables, stream):
    src, dst = tables
    src.append(rows(0, 1))
    stream.run(stream.source(), query="first")
    src.append(rows(1, 1))
    stream.run(stream.source(), query="second", **{"anabranch.code-version": "abc"})
    assert {s.commit_user for s in dst.snapshots()} == {f"first@{dst.branch_uuid}"}
    assert lineage_of(dst.snapshot.properties, where="2").code == "abc"
    stored = json.loads((stream.checkpoint / "anabranch" / f"sink-{dst.branch_uuid}.json").read_text())
    assert stored["job"] == "first"
    assert stored["floor"]["snapshot"] == 0


def test_a_driver_may_die_while_it_writes_down_the_first_batch(tables, stream):
    src, dst = tables
    src.append(rows(0, 3))
    (stream.checkpoint / "offsets").mkdir(parents=True)
    (stream.checkpoint / "offsets" / ".0.4fd3.tmp").write_text("v1")
    stream.run(stream.source())
    assert ids_of(dst) == [0, 1, 2]


@pytest.mark.long
def test_errors_of_the_source_reach_the_user(tables, stream):
    src, _ = tables
    src.append(rows(0, 2))
    stream.run(stream.source())
    src.overwrite(rows(5, 1))
    assert "scan.on-overwrite=skip" in failing(lambda: stream.run(stream.source()))
    stream.run(stream.source(scan__on_overwrite="added"))
