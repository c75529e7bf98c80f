"""Compaction beside the streams that write: small files go, rows stay, and nothing is left when a query ends."""

import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from anabranch.spark.context.notices import Notice, leave, make_folder, take
from anabranch.spark.sessions import _check_scheduling, attach
from anabranch.spark.tasks.compactor import Compactor
from tests.support.faults import FaultyStorage, fail, run
from tests.support.tables import SCHEMA, ids_of, rows

pytestmark = pytest.mark.spark
SMALL = {"compaction.max.file-num": "4"}


def eventually(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
    return found


def compactors():
    return [thread for thread in threading.enumerate() if isinstance(thread, Compactor)]


def compactions(table):
    return [s for s in table.snapshots() if s.commit_kind == "COMPACT"]


def live_files(table):
    return [file.path for split in table.scan().plan().splits for file in split.files]


def unknown_files(table):
    """Data files that no snapshot has."""
    found = table.context.storage.list("bucket-0", include_temporary=True)
    snapshots = [table.at(s.id) for s in table.snapshots()]
    return {info.path for info in found} - {path for t in snapshots for path in live_files(t)}


@pytest.mark.long
def test_a_queue_is_compacted_while_a_stream_writes_it(lake, warehouse, spark, tmp_path):
    src = lake.create_table("db.src", SCHEMA)
    queue = lake.create_table("db.queue", SCHEMA, options={**SMALL, "bucket": "1"})
    # Spark begins a stream of an empty table with an empty batch, or not, as it happens.
    src.append(rows(0, 1))
    reader = spark.readStream.format("anabranch").option("read.stream.maxFilesPerTrigger", "1")
    sink = reader.option("warehouse", warehouse).load("db.src").writeStream.format("anabranch")
    sink = sink.options(warehouse=warehouse, checkpointLocation=str(tmp_path / "checkpoint"))
    query = sink.queryName("copy").trigger(processingTime="100 milliseconds").start("db.queue")
    count = 1
    try:
        while not (queue.snapshot and compactions(queue)) and count < 100:
            eventually(lambda count=count: queue.snapshot is not None and len(ids_of(queue)) == count)
            src.append(rows(count, 1))
            count += 1
        eventually(lambda: len(ids_of(queue)) == count)
    finally:
        query.stop()
    eventually(lambda: not compactors())
    assert queue.scan(columns=["id"]).to_arrow()["id"].to_pylist() == list(range(count))
    assert len(live_files(queue)) < count
    assert unknown_files(queue) == set()
    batches = {
        s.commit_identifier: (s.delta_record_count, s.properties["anabranch.lineage"])
        for s in queue.snapshots()
        if s.commit_kind == "APPEND"
    }
    assert batches.keys() == set(range(count)), batches


@pytest.fixture
def table(lake):
    table = lake.create_table("db.t", SCHEMA, options=SMALL)
    for i in range(9):
        table.append(rows(i, 1))
    return table


@pytest.fixture
def compacting(spark):
    """Run a compactor for a query that is not there."""
    started = []

    def start(table, *faults, **options):
        options = {key.replace("__", "."): value for key, value in options.items()}
        context = replace(table.context, storage=FaultyStorage(table.context.storage, faults))
        started.append(Compactor(spark, Notice("query", context, options), "run"))
        started[-1].start()
        started[-1].wake()
        return started[-1]

    yield start
    for compactor in started:
        compactor.end(hurry=True)
        compactor.join(30)
        assert not compactor.is_alive()


def test_a_compactor_does_all_that_is_worth_it(table, compacting):
    compacting(table)
    eventually(lambda: len(live_files(table)) == 3)
    assert ids_of(table) == list(range(9))
    assert all(s.properties["anabranch.rewrite"] for s in compactions(table))
    assert unknown_files(table) == set()


def test_write_only_leaves_files_alone(table, compacting):
    table.alter().set_option("write-only", "true").apply()
    idle = compacting(table)
    eventually(lambda: not idle._woken.is_set())
    busy = compacting(table, **{"write-only": "false"})
    eventually(lambda: compactions(table))
    busy.end()
    eventually(lambda: not busy.is_alive())
    assert len(compactions(table)) == 1


def nap(path):
    time.sleep(60)


@pytest.mark.long
def test_a_query_that_ends_cancels_what_runs_and_the_next_does_it(table, compacting, spark, monkeypatch):
    monkeypatch.setattr("anabranch.spark.tasks.compactor._DYING_SECONDS", 0.5)
    tracker = spark.sparkContext.statusTracker()
    # A task has written its file and then hangs.
    first = compacting(table, run("after", "open_output", nap, where="bucket-0/*"))
    eventually(lambda: unknown_files(table) and tracker.getActiveStageIds())
    began = time.monotonic()
    while first.is_alive():
        first.end()
        time.sleep(0.1)
    assert time.monotonic() - began < 30
    assert not tracker.getActiveStageIds()
    assert unknown_files(table) == set()
    assert compactions(table) == []
    compacting(table)
    eventually(lambda: len(live_files(table)) == 3)
    assert ids_of(table) == list(range(9))


def test_what_fails_is_said_once_and_tried_again(table, compacting, caplog, monkeypatch):
    monkeypatch.setattr("anabranch.spark.tasks.compactor._LONGEST_REST_SECONDS", 0.1)
    caplog.set_level(logging.DEBUG, "anabranch.spark.tasks.compactor")
    compactor = compacting(table, fail("put_if_absent", times=2))

    def woken():
        compactor.wake()
        return compactions(table)

    eventually(woken)
    assert ids_of(table) == list(range(9))
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "write-only" in said[0].getMessage()
    assert "the test made snapshot/snapshot-10 fail" in said[0].getMessage()


def test_notices(table, tmp_path):
    folder = make_folder()
    try:
        assert folder.stat().st_mode & 0o777 == 0o700
        first = Notice("q", table.context, {"a": "1"})
        leave(first, folder)
        leave(replace(first, options={"a": "2"}), folder)
        leave(replace(first, query="other"), folder)
        assert sorted((n.query, n.options["a"]) for n in take(folder)) == [("other", "1"), ("q", "2")]
        (folder / "broken.notice").write_bytes(b"of another version")
        assert take(folder) == []
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()
    leave(first, folder)  # the session's process is elsewhere, or gone: nobody is told, nothing fails
    assert not folder.exists()


def test_folders_of_killed_processes_go(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    abandoned, alive = (tmp_path / f"anabranch-session-{pid}-x" for pid in (ended.pid, os.getpid()))
    abandoned.mkdir()
    alive.mkdir()
    (abandoned / "a.notice").write_bytes(b"secret")
    assert make_folder().parent == tmp_path
    assert not abandoned.exists()
    assert alive.exists()


def test_attach_says_once_where_pools_have_no_effect(spark, warehouse, caplog):
    attach(spark, warehouse)
    caplog.clear()  # of the warehouse that the session may have had before
    attach(spark, warehouse)
    assert caplog.messages == []

    context = SimpleNamespace(applicationId="unfair", getConf=dict)
    for _ in range(2):
        _check_scheduling(SimpleNamespace(sparkContext=context))
    (said,) = caplog.messages
    assert "spark.scheduler.mode=FAIR" in said
