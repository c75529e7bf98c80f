"""What a batch of Spark was computed from is said in its commit, whatever way it was written."""

import logging

import pytest

import anabranch
from anabranch.lineage.model import ColumnOrigin, SourceInput, TableInput, lineage_of
from anabranch.spark.catalog import register_catalog
from anabranch.storage.open import open_storage
from tests.support.tables import SCHEMA, rows


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("lineage") / "warehouse")


@pytest.fixture(scope="module")
def lake(spark, place):
    """A warehouse of its own, under the name `traced`."""
    register_catalog(spark, "traced", {"warehouse": place})
    lake = anabranch.Lake(open_storage(place), spark=spark)
    orders = lake.create_table("db.orders", SCHEMA)
    orders.append(rows(1, 2))
    orders.append(rows(3, 2))
    lake.create_table("db.items", SCHEMA).append(rows(1, 1))
    lake.create_table("db.out", SCHEMA)
    lake.create_table("db.parts", SCHEMA, partition_by=["v"])
    return lake


@pytest.fixture
def out(lake):
    return lake.table("db.out")


def entry_of(table):
    return lineage_of(table.snapshot.properties, where="test")


def read(entry):
    return sorted(
        (i.name, i.after, i.through) if isinstance(i, TableInput) else (i.kind, i.source)
        for i in entry.inputs
    )


def test_insert_names_its_sources_as_they_were_read(spark, out):
    spark.sql(
        "INSERT INTO traced.db.out SELECT o.id, upper(i.v) AS v FROM traced.db.orders VERSION AS OF 1 o "
        "JOIN traced.db.items i USING (id) WHERE id NOT IN (SELECT id FROM traced.db.parts)"
    )
    entry = entry_of(out)
    assert read(entry) == [("db.items", 0, 1), ("db.orders", 0, 1), ("db.parts", 0, 0)]
    application = spark.sparkContext.applicationId
    assert (entry.job, entry.run) == ("anabranch-tests", application)
    assert (entry.engine.name, entry.engine.application, entry.engine.batch) == ("spark", application, None)
    assert entry.columns[1] == ColumnOrigin("v", ("db.items.v",))
    assert entry.problems == ()


@pytest.mark.long
def test_frames_name_what_spark_read_when_it_wrote_them(spark, lake, place, out, tmp_path):
    orders = lake.table("db.orders")
    (tmp_path / "a.json").write_text('{"id": 1, "v": "x"}\n')
    files = spark.read.schema("id long, v string").json(str(tmp_path))
    kept = spark.table("traced.db.orders").cache()
    kept.count()
    later = spark.table("traced.db.orders")
    portable = spark.read.format("anabranch").option("warehouse", place).load("db.orders")
    orders.append(rows(9, 1))
    now = orders.snapshot.id

    later.union(files).writeTo("traced.db.out").append()
    seen = entry_of(out).inputs
    assert read(entry_of(out)) == [("db.orders", 0, seen[0].through), ("files", f"file:{tmp_path}")]
    assert seen[0].through == now or out.scan("id = 9").to_arrow().num_rows == 0
    kept.write.mode("append").saveAsTable("traced.db.out")
    kept.unpersist()
    assert read(entry_of(out)) == [("db.orders", 0, now - 1)]
    portable.write.insertInto("traced.db.out")
    assert read(entry_of(out)) == [("db.orders", 0, now - 1)]
    out.append(orders.at(1).scan().to_spark())
    assert read(entry_of(out)) == [("db.orders", 0, 1)]
    assert entry_of(out).problems == ()


@pytest.mark.long
def test_tables_that_are_made_with_rows_and_partitions_that_are_replaced(spark, lake):
    spark.sql("CREATE TABLE traced.db.made AS SELECT id, v FROM traced.db.items")
    made = lake.table("db.made")
    assert read(entry_of(made)) == [("db.items", 0, 1)]
    spark.sql("CREATE OR REPLACE TABLE traced.db.made AS SELECT id FROM traced.db.orders VERSION AS OF 2")
    assert read(entry_of(made)) == [("db.orders", 0, 2)]
    assert entry_of(made).columns == (ColumnOrigin("id", ("db.orders.id",)),)
    spark.table("traced.db.items").writeTo("traced.db.parts").overwritePartitions()
    parts = lake.table("db.parts")
    assert read(entry_of(parts)) == [("db.items", 0, 1)]
    assert entry_of(parts).job == "anabranch-tests"


@pytest.mark.long
def test_the_job_of_the_block_is_the_producer(spark, lake, place, out, caplog):
    frame = spark.createDataFrame([(1, "x")], "id long, v string")
    with lake.job("nightly", code="c1") as job:
        spark.sql("INSERT INTO traced.db.out SELECT * FROM traced.db.items")
        entry = entry_of(out)
        assert (entry.job, entry.run, entry.code) == ("nightly", job.run, "c1")
        assert read(entry) == [("db.items", 0, 1)]
        lake.table("db.orders").at(1).scan().to_arrow()
        spark.sql(
            "INSERT INTO traced.db.out SELECT * FROM traced.db.items"
        )  # whose text may hold what was read
        assert read(entry_of(out)) == [("db.items", 0, 1), ("db.orders", 0, 1)]
        out.append(frame)  # it may hold whatever the job has read
        assert read(entry_of(out)) == [("db.items", 0, 1), ("db.orders", 0, 1)]
        frame.write.format("anabranch").mode("append").option("warehouse", place).save("db.out")
        entry = entry_of(out)
        assert (entry.job, entry.run) == ("nightly", job.run)
        assert read(entry) == [("db.items", 0, 1), ("db.orders", 0, 1)]
        steps = list(lake.table("db.orders").tail(start="snapshot.1", idle=0))
        assert steps
        out.append(frame)
        assert len(read(entry_of(out))) == 3, "the steps of the tail too"
        out.append(frame)
        assert read(entry_of(out)) == [("db.items", 0, 1), ("db.orders", 0, 1)]
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        frame.writeTo("traced.db.out").option("anabranch.job", "by-option").append()
    entry = entry_of(out)
    assert (entry.job, entry.inputs) == ("by-option", ())
    assert "RDD" in entry.problems[0]
    assert sum("by-option" in record.message for record in caplog.records) == 1


def test_what_a_batch_of_a_stream_writes_names_what_the_batch_read(spark, lake, out, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "v": "x"}\n')

    stream = spark.readStream.schema("id long, v string").json(str(tmp_path / "in"))
    writer = stream.writeStream.foreachBatch(lambda frame, _: out.append(frame))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    entry = entry_of(out)
    assert (entry.engine.query, entry.engine.batch, entry.run) == (query.id, 0, query.runId)
    assert entry.inputs == (SourceInput("files", "source 0", None, {"logOffset": 0}, f"file:{tmp_path}/in"),)
    assert entry.problems == ()


def test_nothing_of_it_stops_a_write(spark, out, monkeypatch):
    def broken(*_):
        raise TypeError("no such thing")

    before = out.snapshot.id
    monkeypatch.setattr("anabranch.spark.lineage.plans.executed_leaves", broken)
    spark.sql("INSERT INTO traced.db.out SELECT * FROM traced.db.items")
    assert out.snapshot.id == before + 1
    entry = entry_of(out)
    assert (entry.job, entry.inputs) == ("anabranch-tests", ())
    assert "no such thing" in entry.problems[0]
    monkeypatch.setattr("anabranch.spark.lineage.batch_lineage.producer", broken)
    spark.sql("INSERT INTO traced.db.out SELECT * FROM traced.db.items")
    assert (entry_of(out).job, out.snapshot.id) == ("spark", before + 2)
