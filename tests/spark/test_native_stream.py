"""Tables as streams through the catalog: batches by Spark's own Parquet reader, offsets as everywhere."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

import anabranch
import anabranch.spark
from anabranch.spark.catalog import source
from tests.support.lengths import first_short

pytestmark = [pytest.mark.spark, pytest.mark.versions]

FIRST = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
ONE_FILE = {"read.stream.maxFilesPerTrigger": "1"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("native-stream"))


@pytest.fixture(scope="module")
def session(spark, place):
    return anabranch.spark.attach(spark.newSession(), place, catalog="river")


@pytest.fixture(scope="module")
def lake(place):
    return anabranch.connect(place)


@pytest.fixture
def doors(session, lake):
    """A stream of a table by each of the doors."""

    def by(door, name, **options):
        reader = session.readStream.options(**{**FIRST, **options})
        if door == "native":
            return reader.table(f"river.{name}")
        return reader.format("anabranch").option("warehouse", lake.url).load(name)

    return by


@pytest.fixture
def run(tmp_path):
    """Let a query take what is there, with one checkpoint for all runs of a test; its rows and offsets."""
    taken = []

    def take(frame):
        query = (
            frame.writeStream.foreachBatch(lambda rows, number: taken.extend(map(tuple, rows.collect())))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = taken.copy()
        taken.clear()
        return found

    return take


@pytest.fixture
def portable(caplog):
    """Why batches went through the portable door."""
    caplog.set_level(logging.WARNING, "anabranch.spark.native.stream")
    return lambda: [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]


@pytest.fixture
def natively(monkeypatch):
    """The portable door is locked."""

    def locked(*arguments):
        raise AssertionError("the portable door was used")

    monkeypatch.setattr(source, "source_scan", locked)


def offsets(tmp_path):
    folder = tmp_path / "checkpoint" / "offsets"
    names = sorted((p.name for p in folder.iterdir() if p.name.isdigit()), key=int)
    return [json.loads((folder / name).read_text().splitlines()[-1]) for name in names]


@pytest.mark.long
def test_a_query_changes_doors_between_restarts(doors, lake, run, tmp_path, natively, monkeypatch):
    """The partition column is the first: Spark's reader would put it behind the others."""
    table = lake.create_table("db.doors", "p STRING, id BIGINT NOT NULL", partition_by=["p"])
    arrow = table.writer().schema

    def append(*ids):
        table.append(pa.table({"p": [f"{i % 2}=/" for i in ids], "id": ids}).cast(arrow))

    append(0, 1)
    assert sorted(run(doors("native", "db.doors", **ONE_FILE))) == [("0=/", 0), ("1=/", 1)]
    append(2, 3)
    monkeypatch.undo()
    assert sorted(run(doors("portable", "db.doors"))) == [("0=/", 2), ("1=/", 3)]
    append(4, 5)
    assert sorted(run(doors("native", "db.doors"))) == [("0=/", 4), ("1=/", 5)]
    positions = [(o["snapshot"], o["files"]) for o in offsets(tmp_path)]
    assert positions[-2:] == [(2, None), (3, None)]
    # A batch that was planned and not done is done again, by whichever door.
    (tmp_path / "checkpoint" / "commits" / str(len(positions) - 1)).unlink()
    for crc in Path(tmp_path / "checkpoint" / "commits").glob(f".{len(positions) - 1}.crc"):
        crc.unlink()
    assert sorted(run(doors("portable", "db.doors"))) == [("0=/", 4), ("1=/", 5)]
    assert [o["snapshot"] for o in offsets(tmp_path)] == [p[0] for p in positions]


@pytest.mark.long
def test_a_stream_goes_on_when_what_it_began_with_is_gone(doors, lake, run, natively):
    table = lake.create_table("db.gone", "id BIGINT")
    table.append(pa.table({"id": [1]}))
    assert run(doors("native", "db.gone")) == [(1,)]
    for number in (2, 3):
        table.append(pa.table({"id": [number]}))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert {s.id for s in table.snapshots()} == {2, 3}
    assert sorted(run(doors("native", "db.gone"))) == [(2,), (3,)]


def test_every_batch_chooses_its_door(doors, lake, run, portable):
    table = lake.create_table("db.chosen", "id INT, a STRING")
    table.append(pa.table({"id": pa.array([1], pa.int32()), "a": ["x"]}))
    table.alter().rename_column("a", "b").add_column("a", "STRING").apply()
    table.append(
        pa.table({"id": pa.array([2], pa.int32()), "b": ["y"], "a": [None]}).cast(table.writer().schema)
    )
    stream = doors("native", "db.chosen", **ONE_FILE)
    assert sorted(run(stream)) == [(1, "x", None), (2, "y", None)]
    (said,) = portable()
    assert "before columns were renamed" in said


@pytest.fixture
def live(doors, tmp_path):
    """A running query into a table in memory."""
    queries = []

    def start(door, name, into):
        write = doors(door, name).writeStream.format("memory").queryName(into)
        queries.append(write.option("checkpointLocation", str(tmp_path / into)).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


@pytest.mark.parametrize("door", first_short(["native", "portable"]))
def test_a_running_stream_goes_on_under_the_names_it_began_with(doors, session, lake, live, door):
    table = lake.create_table("db.renamed", "id BIGINT, a STRING, b STRING")
    table.append(pa.table({"id": [1], "a": ["x"], "b": ["y"]}))
    query = live(door, "db.renamed", "renamed")
    query.processAllAvailable()
    session.sql("ALTER TABLE river.db.renamed RENAME COLUMN a TO c")
    session.sql("ALTER TABLE river.db.renamed DROP COLUMN b")
    table.append(pa.table({"id": [2], "c": ["z"]}))
    query.processAllAvailable()
    rows = session.table("renamed").orderBy("id").collect()
    assert [row.asDict() for row in rows] == [{"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "z", "b": None}]
    lake.drop_table("db.renamed")


@pytest.mark.long
@pytest.mark.parametrize("door", first_short(["native", "portable"]))
def test_a_stream_that_cannot_go_on_says_why(session, lake, live, door):
    lake.drop_table("db.widened", if_exists=True)
    table = lake.create_table("db.widened", "id INT")
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    query = live(door, "db.widened", "widened")
    query.processAllAvailable()
    session.sql("ALTER TABLE river.db.widened ALTER COLUMN id TYPE BIGINT")
    table.append(pa.table({"id": [2**40]}))
    with pytest.raises(PySparkException) as error:
        query.processAllAvailable()
    assert "UndeclaredThrowable" not in str(error.value)
    assert "hint:" in str(error.value)
    lake.drop_table("db.widened")


@pytest.mark.long
def test_rows_of_a_bucket_keep_their_order(doors, session, lake, run, natively):
    options = {"bucket": "2", "bucket-key": "k", "parquet.row-group.rows": "40"}
    table = lake.create_table("db.queue", "k INT, n BIGINT", options=options)
    for start in range(0, 400, 100):
        ids = range(start, start + 100)
        table.append(
            pa.table({"k": pa.array([i % 5 for i in ids], pa.int32()), "n": ids}).cast(table.writer().schema)
        )
    session.conf.set("spark.sql.files.maxPartitionBytes", "300")
    try:
        found = run(doors("native", "db.queue").select("n", fn.spark_partition_id()))
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
    tasks = {task for _, task in found}
    assert len(found) == 400
    assert len(tasks) == 2
    for task in tasks:
        numbers = [n for n, t in found if t == task]
        assert numbers == sorted(numbers)


def test_a_stream_in_event_time_is_read_natively_with_the_watermark_of_each_batch(doors, lake, run, natively):
    """It is the last column, also where the table's partition column is the first, and a batch has files of several."""
    columns = "p STRING, id BIGINT, at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at - INTERVAL '5' MINUTE"
    table = lake.create_table("db.timed", columns, partition_by=["p"])

    def append(*rows):
        table.append([{"p": p, "id": i, "at": None if m is None else moment(m)} for p, i, m in rows])

    def moment(minute):
        return datetime(2024, 5, 6, 7, minute, tzinfo=UTC)

    def batches(**options):
        stream = doors("by name", "db.timed", **options, **{"scan.watermark-column": "true"})
        assert stream.columns == ["p", "id", "at", "_watermark"]
        rows = run(stream.selectExpr("p", "id", "at", "unix_millis(_watermark)"))
        return [(p, i, None if at is None else at.astimezone(UTC), mark) for p, i, at, mark in rows]

    def millis(minute):
        return int(moment(minute).timestamp() * 1000)

    append((None, 0, None))  # the table has no watermark yet
    append(("a=/", 1, 20))
    append(("b", 2, 10))  # nor does it go back
    assert batches(**ONE_FILE) == [
        (None, 0, None, 0),
        ("a=/", 1, moment(20), millis(15)),
        ("b", 2, moment(10), millis(15)),
    ]
    append(("a=/", 3, 30), (None, 4, 31), ("", 5, 32))
    append(("b", 6, 40))
    assert sorted(batches(), key=lambda row: row[1]) == [
        ("a=/", 3, moment(30), millis(35)),
        (None, 4, moment(31), millis(35)),
        ("", 5, moment(32), millis(35)),
        ("b", 6, moment(40), millis(35)),
    ]


@pytest.mark.long
@pytest.mark.parametrize("kind", first_short(["TIMESTAMP_LTZ(3)", "STRING"]))
@pytest.mark.parametrize("name", first_short(["_watermark", "_WaterMark"]))
def test_a_column_of_the_table_that_is_called_as_the_watermark(doors, lake, run, name, kind):
    value = "mine" if kind == "STRING" else datetime(2024, 1, 1, tzinfo=UTC)
    lake.drop_table("db.own", if_exists=True)
    table = lake.create_table(
        "db.own",
        f"id BIGINT, at TIMESTAMP_LTZ(3), `{name}` {kind}, WATERMARK FOR at AS at - INTERVAL '1' MINUTE",
    )
    table.append([{"id": 1, "at": datetime(2024, 1, 1, 0, 5, tzinfo=UTC), name: value}])
    ((_, _, found),) = run(doors("by name", "db.own"))
    assert found == value or found.astimezone(UTC) == value
    table.append([{"id": 2, "at": datetime(2024, 1, 1, 0, 9, tzinfo=UTC), name: None}])
    marked = doors("by name", "db.own", **{"scan.columns": "id,at", "scan.watermark-column": "true"})
    assert run(marked.selectExpr("id", "unix_millis(_watermark)")) == [(2, 1704067680000)]


def test_columns_by_option_are_refused(doors, lake, run):
    """Spark has its columns by then; it would give all of them."""
    lake.create_table("db.wide", "a BIGINT, b BIGINT").append(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(PySparkException, match=r"(?s)that a stream has scan\.columns.*select\("):
        run(doors("native", "db.wide", **{"scan.columns": "a"}))


@pytest.mark.long
def test_what_filters_rows_goes_through_the_portable_door(doors, lake, run, portable):
    table = lake.create_table("db.filtered", "id BIGINT, v STRING")
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    assert run(doors("native", "db.filtered", **{"scan.filter": "id > 2"})) == [(3, "c")]
    assert "filters rows" in portable()[0]


def test_an_error_of_the_stream_reaches_the_user(doors, lake, run):
    table = lake.create_table("db.refused", "id BIGINT")
    table.append(pa.table({"id": [1]}))
    table.replace(pa.table({"id": [2]}))
    with pytest.raises(
        PySparkException,
        match=r"(?s)takes away rows that a stream may have delivered.*scan\.on-overwrite=skip",
    ):
        run(doors("native", "db.refused"))
