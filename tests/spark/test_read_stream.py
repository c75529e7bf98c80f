"""Streams whose watermark is the table's."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import anabranch
import anabranch.spark
from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.jobs.failure import as_ours
from tests.spark.events import EVENTS, add, from_first

pytestmark = pytest.mark.spark

ONE_SNAPSHOT = {"read.stream.maxFilesPerTrigger": "1"}
SNAPSHOTS = ((1, 2, 12), (5, 8, 13, 15), (31,), (1, 33), (3,), (40, 22))


@pytest.fixture
def lake(spark, warehouse):
    return anabranch.connect(warehouse, spark=spark)


def filled(lake, columns):
    made = lake.create_table("db.t", columns)
    for minutes in SNAPSHOTS:
        add(made, *minutes)
    return made


def event_times(frame):
    return {f.name for f in frame.schema.fields if "spark.watermarkDelayMs" in f.metadata}


def all_of(spark, frame, checkpoint):
    """What a stream delivers of all that there is, to the end of its last batch without data."""
    name = f"out_{checkpoint.name.replace('-', '_')}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table(name).collect(), query.recentProgress


@pytest.mark.long
def test_rows_in_windows_and_late_rows_are_the_rows_of_the_table(spark, lake, tmp_path):
    # Spark's own withWatermark takes instants only; here the event time may be a TIMESTAMP as well.
    filled(lake, EVENTS.replace("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3)"))
    stream = lake.read_stream("db.t", late_rows="drop", **from_first(), **ONE_SNAPSHOT)
    assert stream.columns == ["id", "at"]
    counts = stream.groupBy(F.window("at", "10 minutes")).count()
    found, progress = all_of(spark, counts, tmp_path / "windows")
    # The watermark ends at minute 35: of the windows that are closed, every row that was not late is there.
    assert sorted(row["count"] for row in found) == [3, 3]
    assert all(s.numRowsDroppedByWatermark == 0 for p in progress for s in p.stateOperators)
    late, _ = all_of(spark, lake.read_stream("db.t", late_rows="only", **from_first()), tmp_path / "late")
    assert sorted(row["id"] for row in late) == [10, 30, 50, 220]
    read = sum(len(minutes) for minutes in SNAPSHOTS)
    still_open = 3  # minutes 31, 33 and 40
    assert sum(row["count"] for row in found) + still_open + len(late) == read


def test_sparks_watermark_is_the_tables_after_each_batch(spark, lake, tmp_path):
    table = filled(lake, EVENTS)
    stream = lake.read_stream("db.t", **from_first(), **ONE_SNAPSHOT).dropDuplicatesWithinWatermark(["id"])
    _, progress = all_of(spark, stream, tmp_path / "checkpoint")
    seen = [p.eventTime["watermark"][11:16] for p in progress]
    assert seen == ["00:00", "00:07", "00:10", "00:26", "00:28", "00:28", "00:35"]
    recorded = [s.watermark for s in sorted(table.snapshots(), key=lambda s: s.id)]
    assert [f"00:{w // 60_000 % 60:02}" for w in recorded] == seen[1:]


def test_the_event_time_is_marked_and_nothing_else(spark, lake):
    lake.create_table("db.t", f"`a.b` INT, {EVENTS}")
    stream = lake.read_stream("db.t", late_rows="keep", **{"read.stream.maxRowsPerTrigger": 5})
    assert stream.columns == ["a.b", "id", "at"]
    assert event_times(stream) == {"at"}
    assert stream.schema["at"].metadata["spark.watermarkDelayMs"] == 300_000
    here = anabranch.spark.read_stream(spark, "db.t")  # the session was attached to this warehouse last
    assert event_times(here) == {"at"}


def test_streams_without_a_watermark(lake):
    lake.create_table("db.plain", "id BIGINT, at TIMESTAMP(3)")
    assert event_times(lake.read_stream("db.plain")) == set()
    lake.create_table("db.t", EVENTS)
    without = lake.read_stream("db.t", **{"scan.columns": "id"})
    assert without.columns == ["id"]
    assert event_times(lake.read_stream("db.t", late_rows="only")) == set()
    assert event_times(lake.read_stream("db.t", **{"scan.late-rows": "only"})) == set()


def test_what_cannot_be_read_says_so(spark, lake, warehouse):
    lake.create_table("db.plain", "id BIGINT")
    with pytest.raises(NotFoundError):
        lake.read_stream("db.none")
    with pytest.raises(OptionError, match=r"scan\.late-rows"):
        lake.read_stream("db.plain", late_rows="some")
    with pytest.raises(InvalidInputError, match="the lake was opened without"):
        anabranch.connect(warehouse).read_stream("db.plain")
    with pytest.raises(NotFoundError, match="knows no warehouse"):
        anabranch.spark.read_stream(spark.newSession(), "db.plain")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"])
def test_an_outer_join_by_a_range_of_instants_runs_and_of_other_times_is_explained(
    spark, lake, tmp_path, kind
):
    columns = EVENTS.replace("TIMESTAMP(3) WITH LOCAL TIME ZONE", kind)
    for name, minutes in (("l", (0, 1, 90)), ("r", (1, 90))):
        add(lake.create_table(f"db.{name}", columns), *minutes)
    left, right = (lake.read_stream(f"db.{name}", **from_first()).alias(name) for name in "lr")
    near = "l.id = r.id AND r.at >= l.at AND r.at <= l.at + INTERVAL 5 MINUTES"
    both = left.join(right, F.expr(near), "leftOuter").selectExpr("l.id AS l", "r.id AS r")
    if kind == "TIMESTAMP(3)":
        with pytest.raises(AnalysisException) as refused:
            all_of(spark, both, tmp_path / "joined")
        assert "TIMESTAMP WITH LOCAL TIME ZONE" in as_ours(refused.value).hint
    else:
        found, _ = all_of(spark, both, tmp_path / "joined")
        assert sorted((row.l, row.r) for row in found if row.l < 900) == [(0, None), (10, 10)]
