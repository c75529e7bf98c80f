"""Native reading in sessions of every kind, and where Spark is not what it was."""

import itertools
import logging
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
from pyspark.sql import SparkSession

import anabranch
import anabranch.spark
from anabranch.spark.context.notices import JAVA_FOLDER, LEFT_BY_OTHERS
from anabranch.spark.jvm import handles, proxy
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native import internals
from anabranch.spark.native.frame import native_frame
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

_NUMBERS = itertools.count()

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "warehouse")


@pytest.fixture
def table(place):
    made = make_table(place)
    made.append(rows(0, 10))
    return made


@pytest.fixture
def portable(caplog):
    caplog.set_level(logging.WARNING, "anabranch.spark.native")
    return lambda: [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]


def cloned(session):
    """As a streaming query makes one for its batches."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


@pytest.mark.parametrize("make", first_short([SparkSession.newSession, cloned]))
def test_a_session_made_from_an_attached_one(spark, place, table, portable, make):
    anabranch.spark.attach(spark, place, catalog="parent")
    session = make(spark)
    assert native_frame(session, table.scan()).filter("id > 5").count() == 4  # no catalog is needed for it
    anabranch.spark.attach(session, place, catalog="parent")
    assert session.sql("SELECT count(*) FROM parent.db.t WHERE id > 5").first()[0] == 4
    assert spark.sql("SELECT count(*) FROM parent.db.t").first()[0] == 10
    assert portable() == []


@pytest.mark.parametrize("make", first_short([SparkSession.newSession, cloned]))
def test_a_session_made_from_an_attached_one_has_its_catalogs(spark, place, table, portable, make):
    assert "anabranch" in spark.conf.get(
        "spark.sql.catalog.lake"
    )  # of the first session of all, which all have
    first = anabranch.spark.attach(spark.newSession(), place, catalog="handed")
    session = make(first)
    if make is cloned:
        assert session.sql("SELECT count(*) FROM handed.db.t WHERE id > 5").first()[0] == 4
        session.sql("INSERT INTO handed.db.t SELECT * FROM handed.db.t WHERE id = 1")
        assert first.sql("SELECT count(*) FROM handed.db.t").first()[0] == 11
    session.sql("SHOW NAMESPACES IN lake").collect()
    assert portable() == []


@pytest.mark.long
def test_sessions_made_while_another_thread_adds_catalogs(spark, place, table, caplog):
    first = anabranch.spark.attach(spark.newSession(), place, catalog="meanwhile")
    over = threading.Event()

    def add():
        while not over.is_set():
            anabranch.spark.attach(spark.newSession(), place, catalog=f"added_{next(_NUMBERS)}")

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        try:
            for _ in range(12):
                assert cloned(first).sql("SELECT count(*) FROM meanwhile.db.t").first()[0] == 10
        finally:
            over.set()
        adding.result()
    assert [r.getMessage() for r in caplog.records if "its catalogs" in r.getMessage()] == []


@pytest.mark.long
def test_batches_of_a_stream_know_the_catalogs_of_its_session(spark, place, table, tmp_path):
    session = anabranch.spark.attach(spark.newSession(), place, catalog="streamed")
    session.sql("CREATE TABLE streamed.db.out (id BIGINT, known BIGINT)")

    def write(batch, number):
        batch.createOrReplaceTempView("batch")
        batch.sparkSession.sql(
            "INSERT INTO streamed.db.out SELECT b.id, (SELECT count(*) FROM streamed.db.t) FROM batch b WHERE b.id > 7"
        )

    stream = session.readStream.table("streamed.db.t").writeStream.foreachBatch(write)
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert [tuple(row) for row in session.table("streamed.db.out").orderBy("id").collect()] == [
        (8, 10),
        (9, 10),
    ]


def test_batches_of_a_stream_read_and_write_tables(spark, place, table, portable, tmp_path):
    """Their session is a copy, which is attached like any other."""
    session = anabranch.spark.attach(spark.newSession(), place, catalog="batches")
    session.sql("CREATE TABLE batches.db.out (id BIGINT, known BIGINT)")

    def write(batch, number):
        here = anabranch.spark.attach(batch.sparkSession, place, catalog="batches")
        batch.createOrReplaceTempView("batch")
        here.sql(
            "INSERT INTO batches.db.out SELECT b.id, (SELECT count(*) FROM batches.db.t) FROM batch b WHERE b.id > 7"
        )

    stream = session.readStream.table("batches.db.t").writeStream.foreachBatch(write)
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    found = anabranch.connect(place).table("db.out").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == [8, 9]
    assert {row["known"] for row in found} == {10}
    assert portable() == []


@pytest.fixture
def without(monkeypatch):
    """Let Spark lack a class."""
    of, loaded = Jvm.of, handles.class_of

    def lack(name):
        monkeypatch.setattr(internals, "_TRIED", WeakKeyDictionary())
        monkeypatch.setattr(Jvm, "of", lambda jvm, asked: of(jvm, _gone(asked, name)))
        monkeypatch.setattr(proxy, "_MADE", WeakKeyDictionary())
        for module in (handles, internals):
            monkeypatch.setattr(module, "class_of", lambda jvm, asked: loaded(jvm, _gone(asked, name)))

    return lack


def _gone(asked, name):
    return f"{asked}Gone" if asked.rpartition(".")[2] == name else asked


@pytest.mark.parametrize(
    "name",
    [
        *("HadoopFsRelation", "ParquetFileFormat", "PartitionDirectory", "PartitionPath", "PartitionSpec"),
        *("InMemoryFileIndex", "SharedInMemoryCache", "ParquetScanBuilder", "PythonSQLUtils"),
        "Coalesce",
    ],
)
def test_what_spark_lacks_is_known_before_a_frame_is_given_out(spark, without, name):
    assert internals.missing(Jvm(spark)) is None
    without(name)
    assert "internals are not as expected" in internals.missing(Jvm(spark))


@pytest.mark.long
def test_without_an_internal_tables_are_read_through_the_portable_door(
    spark, place, table, portable, without, tmp_path
):
    session = anabranch.spark.attach(spark.newSession(), place, catalog="less")
    without("ParquetScanBuilder")
    assert native_frame(session, table.scan()).filter("id > 5").count() == 4
    assert session.sql("SELECT id FROM less.db.t WHERE id > 5").count() == 4
    for said in portable():
        assert "without Spark's own Parquet reader and without Spark's filters leaving out files" in said
        assert "internals are not as expected" in said
    assert len(portable()) == 2
    stream = session.readStream.table("less.db.t").writeStream.format("memory").queryName("less")
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert session.table("less").count() == 10
    assert "batches of the stream of db.t go through the portable door" in portable()[2]


@pytest.mark.long
def test_without_offsets_of_its_own_a_stream_is_the_portable_one(
    spark, place, table, portable, without, tmp_path
):
    session = anabranch.spark.attach(spark.newSession(), place, catalog="fewer")
    without("PythonStreamingSourceOffset")
    stream = session.readStream.table("fewer.db.t").writeStream.format("memory").queryName("fewer")
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert session.table("fewer").count() == 10
    assert len(portable()) == 1


def test_the_classes_for_executors_lie_where_the_next_start_sweeps(spark, table):
    """Folders that did not name their process stayed for ever after it was killed."""
    assert native_frame(spark, table.scan()).count() == 10
    folder = Path(tempfile.gettempdir())
    assert list(folder.glob(f"{JAVA_FOLDER}{os.getpid()}-*/anabranch-*.jar"))
    assert JAVA_FOLDER in LEFT_BY_OTHERS
