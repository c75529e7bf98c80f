"""Writing to the tables of a catalog: INSERT, OVERWRITE, AS SELECT, frames and streams."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import anabranch
import anabranch.spark
from tests.spark.statements import Rows, run

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("catalog-writes"))


@pytest.fixture(scope="module")
def session(spark, place):
    session = anabranch.spark.attach(spark.newSession(), place, catalog="water")
    session.sql("CREATE NAMESPACE water.db")
    return session


@pytest.fixture(scope="module")
def lake(place):
    return anabranch.connect(place)


def bag(lake, name, *columns):
    return sorted(
        tuple(row.values()) for row in lake.table(name).scan(columns=columns or None).to_arrow().to_pylist()
    )


def test_inserts_and_overwrites(session, lake):
    lake.create_table("db.i", "id BIGINT NOT NULL, v STRING, dt STRING", partition_by=["dt"])
    everything = "SELECT * FROM water.db.i"
    run(session.sql, [
        ("INSERT INTO water.db.i VALUES (1, 'a', 'x'), (2, 'b', 'y')", []),
        ("INSERT INTO water.db.i BY NAME SELECT 'x' AS dt, 3 AS id", []),
        ("INSERT INTO water.db.i (dt, id) VALUES ('z', 4)", []),
        (everything, Rows([(1, "a", "x"), (2, "b", "y"), (3, None, "x"), (4, None, "z")])),
        ("INSERT INTO water.db.i VALUES ('q', 'a', 'x')", "Cannot safely cast"),
        ("INSERT INTO water.db.i VALUES (NULL, 'a', 'x')", "NULL"),
        ("INSERT OVERWRITE water.db.i PARTITION (dt = 'x') SELECT id + 10, v FROM water.db.i WHERE dt = 'x'", []),
        (everything, Rows([(11, "a", "x"), (2, "b", "y"), (13, None, "x"), (4, None, "z")])),
        ("INSERT INTO water.db.i REPLACE WHERE dt >= 'y' VALUES (5, 'c', 'y')", []),
        (everything, Rows([(11, "a", "x"), (13, None, "x"), (5, "c", "y")])),
        ("INSERT INTO water.db.i REPLACE WHERE dt >= 'y' VALUES (6, 'c', 'x')", "lie outside of the partitions"),
        ("INSERT INTO water.db.i REPLACE WHERE id > 5 VALUES (6, 'c', 'x')", "'id' is no partition column"),
        ("INSERT INTO water.db.i REPLACE WHERE upper(dt) = 'X' VALUES (6, 'c', 'x')", "cannot overwrite"),
        ("SET spark.sql.sources.partitionOverwriteMode = dynamic", None),
        ("INSERT OVERWRITE water.db.i VALUES (7, 'd', 'y'), (8, 'e', 'w')", []),
        ("RESET spark.sql.sources.partitionOverwriteMode", None),
        (everything, Rows([(11, "a", "x"), (13, None, "x"), (7, "d", "y"), (8, "e", "w")])),
        ("SHOW PARTITIONS water.db.i", [("dt=w",), ("dt=x",), ("dt=y",)]),
        ("SHOW PARTITIONS water.db.i PARTITION (dt = 'x')", [("dt=x",)]),
        ("ALTER TABLE water.db.i DROP PARTITION (dt = 'x')", []),
        ("ALTER TABLE water.db.i DROP PARTITION (dt = 'nope')", "cannot be found"),
        ("ALTER TABLE water.db.i ADD PARTITION (dt = 'q')", "it comes with its first rows"),
        ("TRUNCATE TABLE water.db.i PARTITION (dt = 'w')", []),
        (everything, [(7, "d", "y")]),
        ("INSERT OVERWRITE water.db.i SELECT id + 1, v, dt FROM water.db.i", []),
        (everything, [(8, "d", "y")]),
        ("TRUNCATE TABLE water.db.i", []),
        (everything, []),
    ])  # fmt: skip


def test_rows_are_never_changed_one_by_one(session, lake):
    table = lake.create_table("db.only", "id BIGINT, dt STRING", partition_by=["dt"])
    session.sql("INSERT INTO water.db.only VALUES (1, 'x')")
    before = table.snapshot.id
    refused = "tables are append-only"
    run(session.sql, [
        ("DELETE FROM water.db.only WHERE id = 1", refused),
        ("DELETE FROM water.db.only WHERE dt = 'x'", refused),
        ("DELETE FROM water.db.only", refused),
        ("UPDATE water.db.only SET id = 2", refused),
        ("MERGE INTO water.db.only t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", refused),
    ])  # fmt: skip
    assert table.snapshot.id == before


def test_tables_from_queries(session, lake):
    run(session.sql, [
        ("CREATE TABLE water.db.c PARTITIONED BY (p) AS SELECT id, id % 2 AS p FROM range(4)", []),
        ("SELECT * FROM water.db.c", Rows([(0, 0), (1, 1), (2, 0), (3, 1)])),
        ("CREATE TABLE water.db.f AS SELECT if(id = 3, raise_error('boom'), id) AS id FROM range(4)", "boom"),
        ("CREATE TABLE water.db.c AS SELECT 1 AS id", "already exists"),
        ("SHOW TABLES IN water.db LIKE 'f'", []),
    ])  # fmt: skip
    table = lake.table("db.c")
    ids = {f.name: f.id for f in table.schema.fields}
    run(session.sql, [
        ("REPLACE TABLE water.db.c AS SELECT 1 AS id", "partition columns would become ()"),
        (("REPLACE TABLE water.db.c PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '3', 'bucket-key' = 'id') "
         "AS SELECT 1L AS id, 0L AS p"), "bucket would become 3"),
        (("REPLACE TABLE water.db.c PARTITIONED BY (p) AS SELECT if(id = 3, raise_error('boom'), id) AS z, p "
         "FROM water.db.c"), "boom"),
        ("SELECT count(*) FROM water.db.c", [(4,)]),
        (("REPLACE TABLE water.db.c PARTITIONED BY (p) COMMENT 'new' "
         "AS SELECT 'n' AS w, cast(id AS STRING) AS id, p FROM water.db.c WHERE id > 0"), []),
        ("SELECT * FROM water.db.c", Rows([("n", "1", 1), ("n", "2", 0), ("n", "3", 1)])),
        ("SELECT * FROM water.db.c VERSION AS OF 1", Rows([(0, 0), (1, 1), (2, 0), (3, 1)])),
        ("SELECT commit_kind FROM water.db.`c$snapshots` ORDER BY snapshot_id", [("APPEND",), ("OVERWRITE",)]),
        ("CREATE OR REPLACE TABLE water.db.c (p BIGINT, k INT) PARTITIONED BY (p)", []),
        ("SELECT * FROM water.db.c", []),
    ])  # fmt: skip
    now = {f.name: f.id for f in table.schema.fields}
    assert now["p"] == ids["p"]
    assert table.schema.comment is None
    assert [len(table.schemas()), table.snapshot.id] == [3, 3]


def test_a_replacement_that_dies_in_between_leaves_the_old_rows(session, lake, monkeypatch):
    from anabranch.spark.catalog import replacement

    session.sql("CREATE TABLE water.db.r AS SELECT id, 'old' AS v FROM range(3)")

    def dies(*_):
        raise anabranch.StorageError("the store is gone")

    monkeypatch.setattr(replacement, "Overwrite", dies)
    with pytest.raises(PySparkException, match="the store is gone"):
        session.sql("REPLACE TABLE water.db.r AS SELECT id, 1 AS w FROM range(9)")
    monkeypatch.undo()
    assert lake.table("db.r").schema.field("w") is not None
    assert bag(lake, "db.r") == [(i, None) for i in range(3)]
    session.sql("REPLACE TABLE water.db.r AS SELECT id, 1 AS w FROM range(2)")
    assert bag(lake, "db.r") == [(0, 1), (1, 1)]


@pytest.mark.long
def test_frames(session, lake):
    frame = session.createDataFrame([(1, "x"), (2, "y")], "id BIGINT, dt STRING")
    frame.writeTo("water.db.f").partitionedBy("dt").tableProperty("bucket", "2").tableProperty(
        "bucket-key", "id"
    ).create()
    opened = session.table("water.db.f")
    assert opened.count() == 2
    frame.selectExpr("id + 10 AS id", "dt").writeTo("water.db.f").append()
    frame.where("dt = 'x'").writeTo("water.db.f").overwritePartitions()
    assert bag(lake, "db.f") == [(1, "x"), (2, "y"), (12, "y")]
    frame.where("dt = 'y'").writeTo("water.db.f").overwrite(f.col("dt") == "y")
    frame.write.mode("append").saveAsTable("water.db.f")
    frame.write.insertInto("water.db.f")
    assert bag(lake, "db.f") == [(1, "x")] * 3 + [(2, "y")] * 3
    frame.write.mode("overwrite").insertInto("water.db.f")
    assert bag(lake, "db.f") == [(1, "x"), (2, "y")]
    with pytest.raises(PySparkException, match="partition columns would become"):
        frame.write.mode("overwrite").saveAsTable("water.db.f")
    frame.selectExpr("dt", "id", "1 AS n").write.mode("overwrite").partitionBy("dt").saveAsTable("water.db.f")
    assert bag(lake, "db.f") == [("x", 1, 1), ("y", 2, 1)]
    assert {s.commit_kind for s in lake.table("db.f").snapshots()} == {"APPEND", "OVERWRITE"}


def test_streams(session, lake, tmp_path):
    session.sql("CREATE TABLE water.db.s AS SELECT id FROM range(3)")

    def once(frame, name, checkpoint):
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / checkpoint)).queryName(
            checkpoint
        )
        query = writer.trigger(availableNow=True).toTable(name)
        query.awaitTermination()

    once(session.readStream.table("water.db.s"), "water.db.s2", "a")
    assert bag(lake, "db.s2") == [(0,), (1,), (2,)]
    source = session.readStream.format("anabranch").option("warehouse", lake.url).load("db.s")
    session.sql("INSERT INTO water.db.s VALUES (8)")
    once(source, "water.db.s2", "a")
    assert bag(lake, "db.s2") == [(0,), (1,), (2,), (8,)]


def test_an_overwrite_after_reading_drops_nothing_that_came_meanwhile(session, lake, place):
    table = lake.create_table("db.guarded", "id BIGINT, p STRING", partition_by=["p"])
    option = "overwrite.if-unchanged-since"

    def by_source(number, seen):
        writer = session.createDataFrame([(number, "a")], "id BIGINT, p STRING").write.format("anabranch")
        writer.mode("overwrite").option("warehouse", place).option(option, str(seen)).save("db.guarded")

    def by_catalog(number, seen):
        frame = session.createDataFrame([(number, "a")], "id BIGINT, p STRING")
        frame.writeTo("water.db.guarded").option(option, str(seen)).overwritePartitions()

    for number, write in enumerate((by_source, by_catalog), 10):
        table.append([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}])
        seen = table.snapshot.id
        write(number, seen)
        table.append([{"id": 3, "p": "a"}])
        before = bag(lake, "db.guarded", "id")
        with pytest.raises(PySparkException, match="CHANGED_SINCE"):
            write(20, seen)
        assert bag(lake, "db.guarded", "id") == before
        assert (number,) in before


def test_a_table_is_verified_and_repaired_by_calls(session, lake):
    table = lake.create_table("db.checked", "id BIGINT")
    table.append([{"id": 1}])
    verify = "CALL water.sys.verify(table => 'db.checked')"
    assert session.sql(verify).collect() == []
    table.context.storage.put("snapshot/LATEST", b"99")
    assert len(session.sql(verify).collect()) == 1
    step, left = session.sql("CALL water.sys.repair(table => 'db.checked')").collect()
    assert (step["what"], step["path"]) == ("step", "snapshot/LATEST")
    assert "snapshots 2 to 99" in left["text"], "if the hint was right they are lost"
    assert session.sql(verify).collect() == []
