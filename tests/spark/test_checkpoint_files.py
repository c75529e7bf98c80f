"""Checkpoints on a local disk: faster than Spark's own, with the same files, and one query a checkpoint."""

import contextlib
import shutil
import threading

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

from anabranch.spark.jvm.proxy import Jvm
from tests.spark.stream_queries import Stream
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

pytestmark = [pytest.mark.spark, pytest.mark.versions]
SETTING = "spark.sql.streaming.checkpointFileManagerClass"
SPARKS = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
OURS = "anabranch.LocalCheckpointFiles"


@pytest.fixture
def manager(spark, tmp_path):
    jvm = Jvm(spark)
    path = jvm.of("org.apache.hadoop.fs.Path")
    settings = jvm.session.sessionState().newHadoopConf()
    made = jvm.of(OURS)(path(str(tmp_path)), settings)
    for folder in ("offsets", "commits", "state"):
        made.mkdirs(path(f"{tmp_path}/{folder}"))
    return made, lambda name: path(f"{tmp_path}/{name}")


def write(manager, path, data, *, overwrite):
    out = manager.createAtomic(path, overwrite)
    out.write(bytearray(data))
    return out


def test_sessions_on_this_machine_have_it(spark):
    assert spark.conf.get(SETTING) == OURS


def test_of_two_that_write_a_file_one_is_refused(manager, tmp_path):
    files, path = manager
    both = [write(files, path("offsets/0"), data, overwrite=False) for data in (b"first", b"second")]
    both[0].close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        both[1].close()
    assert (tmp_path / "offsets" / "0").read_bytes() == b"first"
    assert files.exists(path("offsets/0"))
    assert [f.getPath().getName() for f in files.list(path("offsets"))] == ["0"], "nothing is left behind"


def test_a_folder_that_is_gone_is_not_made_again(manager, tmp_path):
    files, path = manager
    write(files, path("offsets/0"), b"first", overwrite=False).close()
    shutil.rmtree(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(Py4JJavaError, match="folder .*offsets of the checkpoint is not there"):
            files.createAtomic(path("offsets/1"), overwrite)
    assert not tmp_path.exists()


def test_a_query_whose_checkpoint_is_gone_ends(spark, lake, warehouse, tmp_path):
    source = lake.create_table("db.src", "id BIGINT NOT NULL, v STRING")
    source.append(rows(0, 5))
    checkpoint = tmp_path / "mount" / "checkpoint"
    read = spark.readStream.format("anabranch").options(warehouse=warehouse).load("db.src")
    writer = read.groupBy("v").count().writeStream.outputMode("complete").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        shutil.rmtree(checkpoint.parent)
        source.append(rows(5, 5))
        with pytest.raises(StreamingQueryException, match="of the checkpoint is not there"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert not checkpoint.exists()


def test_one_of_many_wins_at_any_moment(manager, tmp_path):
    files, path = manager
    for number in range(10):
        outs = [write(files, path(f"commits/{number}"), f"{n}".encode(), overwrite=False) for n in range(4)]
        won, start = [], threading.Barrier(4)

        def close(n, outs=outs, won=won, start=start):
            start.wait()
            try:
                outs[n].close()
                won.append(n)
            except Py4JJavaError:
                pass

        threads = [threading.Thread(target=close, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert (tmp_path / "commits" / f"{number}").read_text() == f"{won[0]}"


def test_overwriting_takes_the_checksum_of_another_class_away(manager, spark, tmp_path):
    files, path = manager
    jvm = Jvm(spark)
    theirs = jvm.of(SPARKS)(path(""), jvm.session.sessionState().newHadoopConf())
    write(theirs, path("state/1.delta"), b"by Spark", overwrite=True).close()
    assert (tmp_path / "state" / ".1.delta.crc").exists()
    write(files, path("state/1.delta"), b"by us", overwrite=True).close()
    stream = theirs.open(path("state/1.delta"))
    assert bytes(stream.readAllBytes()) == b"by us"
    stream.close()
    files.delete(path("state/1.delta"))
    assert [*(tmp_path / "state").iterdir()] == []


@pytest.mark.parametrize(
    "classes",
    first_short([(OURS, SPARKS, OURS), pytest.param((SPARKS, OURS, SPARKS))]),
    ids=["ours", "theirs"],
)
def test_a_query_with_state_goes_from_one_to_the_other(spark, lake, warehouse, tmp_path, classes):
    source = lake.create_table("db.src", "id BIGINT NOT NULL, v STRING")
    lake.create_table("db.dst", "v STRING, n BIGINT")
    stream = Stream(spark, warehouse, tmp_path / "checkpoint")
    before = spark.conf.get(SETTING)
    try:
        for number, name in enumerate(classes):
            spark.conf.set(SETTING, name)
            source.append(rows(number * 10, 10))
            counted = stream.source().groupBy("v").count().withColumnRenamed("count", "n")
            stream.run(counted, mode="complete")
    finally:
        spark.conf.set(SETTING, before)
    assert lake.table("db.dst").scan().to_arrow().num_rows == 30
    assert ids_of(source) == [*range(30)]


def test_two_queries_on_one_checkpoint_write_no_row_twice(spark, lake, warehouse, tmp_path):
    source = lake.create_table("db.src", "id BIGINT NOT NULL, v STRING")
    sink = lake.create_table("db.dst", "id BIGINT NOT NULL, v STRING")
    for number in range(6):
        source.append(rows(number, 1))

    def run(session):
        stream = Stream(session, warehouse, tmp_path / "checkpoint")
        read = session.readStream.format("anabranch").options(warehouse=warehouse)
        read = read.option("scan.mode", "from-snapshot").option("scan.snapshot-id", "1")
        stream.run(read.option("read.stream.maxFilesPerTrigger", "1").load("db.src"))

    def race(session):
        with contextlib.suppress(
            Exception
        ):  # one of them is refused sooner or later, or is stopped by the other
            run(session)

    other = spark.newSession()
    other.conf.set(SETTING, OURS)
    other.range(1).count()  # its catalogs and sources come with its first statement
    threads = [threading.Thread(target=race, args=(session,)) for session in (spark, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = ids_of(sink)
    assert written == [*range(len(written))]
    run(spark)
    assert ids_of(sink) == [*range(6)]
