"""``format("anabranch")`` in classic sessions: by Spark's own tasks where these can, with the results of the Python way."""

import logging
from contextlib import nullcontext

import pytest

import anabranch
from anabranch.errors import NotFoundError
from anabranch.lineage.model import LINEAGE_PROPERTY, LineageEntry
from tests.spark.python_way import by_python
from tests.support.tables import ids_of, rows

pytestmark = [pytest.mark.spark, pytest.mark.versions]
COLUMNS = "id BIGINT, v STRING, p INT"


@pytest.fixture
def told(caplog):
    """What the log says of the Python way."""
    caplog.set_level(logging.WARNING, "anabranch.spark.native.door")
    return lambda: [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]


@pytest.fixture
def table(lake, spark, writing):
    table = lake.create_table("db.t", COLUMNS, partition_by=["p"])
    writing(frame(spark, 0, 30))
    return table


def frame(spark, first, count):
    return spark.range(first, first + count, 1, 2).selectExpr(
        "id", "concat('v', id) v", "CAST(id % 3 AS INT) p"
    )


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_a_read_takes_filters_and_columns(table, reading, told):
    found = reading().where("p = 1 AND id < 9").select("v", "id")
    assert sorted(map(tuple, found.collect())) == [("v1", 1), ("v4", 4), ("v7", 7)]
    assert "1 files" in plan_of(found), "those of one partition"
    assert "p IS NOT NULL" in plan_of(found)
    assert told() == []


@pytest.mark.long
def test_what_was_loaded_stays_what_it_was(table, reading):
    before = reading()
    table.append([{"id": 100, "v": "later", "p": 0}])
    assert before.count() == 30
    assert before.where("p = 0").count() == 10
    assert reading().count() == 31


def test_columns_that_are_given_must_be_the_tables(spark, table, warehouse):
    given = spark.read.format("anabranch").option("warehouse", warehouse)
    assert given.schema("p INT, id BIGINT").load("db.t").columns == ["p", "id"]
    assert {tuple(row) for row in given.schema("p INT, id BIGINT").load("db.t").where("id < 2").collect()} == {
        (0, 0), (1, 1),
    }  # fmt: skip
    with pytest.raises(Exception, match="was asked for"):
        given.schema("p STRING, id BIGINT").load("db.t").collect()


def test_a_write_tells_what_its_rows_were_computed_from(lake, table, reading, writing, told):
    copy = lake.create_table("db.copy", COLUMNS)
    writing(reading().where("p = 2"), "db.copy")
    assert copy.scan().count() == 10
    entry = LineageEntry.from_json(copy.snapshot.properties[LINEAGE_PROPERTY], where="snapshot")
    assert [(read.name, read.end.snapshot) for read in entry.inputs] == [("db.t", 1)]
    assert entry.problems == ()
    assert told() == []


def test_a_write_in_place_of_others_replaces_the_partitions_it_has_rows_of(spark, table, writing):
    writing(frame(spark, 100, 3).where("p = 1"), mode="overwrite")
    found = table.scan(columns=["id", "p"]).to_arrow().to_pylist()
    assert [row["id"] for row in found if row["p"] == 1] == [100]
    assert len([row for row in found if row["p"] != 1]) == 20


@pytest.mark.long
@pytest.mark.parametrize("ways", [("spark", "python"), ("python", "spark")], ids="-".join)
def test_a_stream_changes_ways_between_runs(spark, lake, stream, ways):
    """Offsets and checkpoints are the same, so each row arrives once whichever way a run takes."""
    source = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    sink = lake.create_table("db.copy", "id BIGINT NOT NULL, v STRING")
    for number, way in enumerate(ways):
        source.append(rows(number * 10, 10))
        with by_python(spark) if way == "python" else nullcontext():
            query = stream.run(stream.source("db.t"), "db.copy")
        described = query.lastProgress.sources[0].description
        assert ("NativeStream" in described) == (way == "spark")
    assert ids_of(sink) == [*range(20)]
    entries = [
        LineageEntry.from_json(s.properties[LINEAGE_PROPERTY], where="snapshot") for s in sink.snapshots()
    ]
    assert [[read.end.snapshot for read in entry.inputs] for entry in entries] == [
        [2],
        [1],
    ]  # the newest first


def test_without_the_class_python_gives_the_same_rows(spark, lake, table, reading, writing):
    copy = lake.create_table("db.copy", COLUMNS)
    with by_python(spark):
        writing(reading().where("p = 2"), "db.copy")
        assert "anabranch db.t" not in plan_of(reading())
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == list(range(2, 30, 3))


def test_rows_of_a_batch_go_on_in_the_session_of_the_batch(spark, lake, table, warehouse, tmp_path):
    copy = lake.create_table("db.copy", COLUMNS)
    anabranch.spark.attach(spark, warehouse, catalog="other")

    def write(batch, _number):
        batch.write.format("anabranch").mode("append").option("warehouse", warehouse).save("db.copy")
        assert batch.sparkSession.read.format("anabranch").option("warehouse", warehouse).load("db.t").count()

    source = spark.readStream.format("anabranch").option("warehouse", warehouse).load("db.t")
    query = source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == list(range(30))


@pytest.mark.long
def test_sessions_are_attached_again_and_beside_others(spark, table, warehouse):
    other = spark.newSession()
    for session in (other, other, spark):
        anabranch.spark.attach(session, warehouse, catalog="again")
        assert session.read.format("anabranch").load("db.t").count() == 30
        with by_python(session):
            assert session.read.format("anabranch").load("db.t").count() == 30


@pytest.mark.long
def test_a_name_that_means_another_warehouse_from_now_on_is_told(spark, table, warehouse, tmp_path, caplog):
    session, other = spark.newSession(), str(tmp_path / "other")
    first = anabranch.connect(warehouse, spark=session)
    second = anabranch.connect(other)
    second.create_table("db.t", data=[{"id": 1}])
    for place in (warehouse, other, other):
        second = anabranch.connect(place, spark=session)
    said = [r.getMessage() for r in caplog.records if "no longer" in r.getMessage()]
    assert len(said) == 1, said
    assert "'lake'" in said[0]
    assert warehouse in said[0]
    assert other in said[0]
    assert session.sql("SELECT count(*) FROM lake.db.t").first()[0] == 1
    assert first.sql("SELECT count(*) FROM db.t").first()[0] == 30, "a lake keeps to its own"
    assert second.sql("SELECT count(*) FROM db.t").first()[0] == 1


def test_a_table_of_sparks_own_catalog_is_told_apart(spark, table, reading):
    with pytest.raises(Exception, match="a table of Spark's own catalog cannot be USING anabranch"):
        reading().write.format("anabranch").saveAsTable("own")
    with pytest.raises(Exception, match="a table of Spark's own catalog cannot be USING anabranch"):
        spark.sql("CREATE TABLE own USING anabranch OPTIONS (path 'db.t')")


def test_what_is_not_there_is_told_when_it_is_loaded(spark, lake, warehouse):
    lake.create_table("db.t", COLUMNS)
    with pytest.raises(Exception, match="tables there are: t"):
        spark.read.format("anabranch").option("warehouse", warehouse).load("db.nope")
    with pytest.raises(Exception, match="did you mean 'scan.filter'"):
        spark.read.format("anabranch").options(**{"warehouse": warehouse, "scan.filtre": "x"}).load("db.t")
    with pytest.raises(NotFoundError):
        lake.table("db.nope")


@pytest.mark.long
def test_a_stream_that_goes_on_does_not_need_where_it_began(lake, stream):
    source = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    sink = lake.create_table("db.copy", "id BIGINT NOT NULL, v STRING")
    for number in range(3):
        source.append(rows(number * 10, 10))
        if number == 2:
            source.expire_snapshots(retain_max=2, retain_min=2)
        stream.run(stream.source("db.t", scan__mode="from-snapshot", scan__snapshot_id=1), "db.copy")
    assert ids_of(sink) == [*range(30)]
