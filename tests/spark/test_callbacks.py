"""The connections by which the JVM calls Python: few, whatever Spark does, and for nobody else."""

import gc
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from py4j.clientserver import ClientServerConnection

import anabranch
import anabranch.spark
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from tests.spark.native_cases import eventually

pytestmark = [pytest.mark.spark, pytest.mark.versions]

KEPT = 4
"""Connections that stay open while nobody calls."""


@pytest.fixture
def session(spark, tmp_path):
    found = anabranch.spark.attach(spark.newSession(), str(tmp_path / "warehouse"), catalog="calls")
    found.sql("CREATE NAMESPACE calls.db")
    found.sql("CREATE TABLE calls.db.t (id BIGINT, part INT) PARTITIONED BY (part)")
    found.sql("INSERT INTO calls.db.t SELECT id, id % 3 FROM range(30)")
    return found


def test_what_a_call_returned_is_there_when_the_jvm_looks_for_it(session, monkeypatch):
    """Py4J gives up an object of the JVM that nobody has here: a JVM that came to it later found null."""
    call = ClientServerConnection._call_proxy

    def answers_late(self, *arguments):
        answer = call(self, *arguments)
        gc.collect()
        time.sleep(2.5)  # Py4J looks once in a second what to give up
        return answer

    class Maker(JavaProxy):
        class Java:
            implements: ClassVar = ["java.util.function.Supplier"]

        jvm = Jvm(session)

        def get(self):
            return self.jvm.root.java.util.ArrayList()

    monkeypatch.setattr(ClientServerConnection, "_call_proxy", answers_late)
    found = session._jvm.java.util.Optional.empty().orElseGet(Maker())
    assert found is not None
    assert list(found) == []


class Held:
    """Threads and files of this process, and threads of the JVM."""

    def __init__(self, session):
        self._beans = session._jvm.java.lang.management.ManagementFactory.getThreadMXBean()

    def threads(self):
        return threading.active_count()

    def files(self):
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def jvm_threads(self):
        return self._beans.getThreadCount()


def shuffled(session):
    """A query whose stages are planned by threads that Spark starts for it."""
    rows = session.sql("SELECT part, count(*) FROM calls.db.t GROUP BY part").collect()
    assert [row[1] for row in rows] == [10, 10, 10]


@pytest.mark.long
def test_queries_with_shuffles_leave_no_threads_and_no_files_behind(session):
    held = Held(session)
    shuffled(session)
    threads, files = held.threads(), held.files()
    for _ in range(2 * KEPT):
        shuffled(session)
    eventually(lambda: held.threads() < threads + KEPT)
    eventually(lambda: held.files() < files + KEPT)


@pytest.mark.long
def test_threads_that_call_at_once_leave_no_more_behind(session):
    held = Held(session)
    shuffled(session)
    threads, files = held.threads(), held.files()
    with ThreadPoolExecutor(2 * KEPT) as pool:
        list(pool.map(lambda _: shuffled(session), range(2 * KEPT)))
    eventually(lambda: held.threads() < threads + KEPT)
    eventually(lambda: held.files() < files + KEPT)


@pytest.mark.long
def test_calls_within_calls_of_the_same_thread_go_on(session):
    """A write asks Python for itself, which asks the JVM, which asks Python for what is read."""
    for _ in range(3):
        session.sql(
            "INSERT INTO calls.db.t SELECT id, (SELECT max(part) FROM calls.db.t) FROM calls.db.t WHERE id = 1"
        )
    assert session.sql("SELECT count(*) FROM calls.db.t WHERE id = 1 AND part = 2").first()[0] == 7


def test_nobody_else_calls_this_process(session):
    """PySpark's own server for calls of the JVM lets in whoever of this machine knows its port."""
    server = session.sparkContext._gateway._callback_server
    command = b"c\np0\ntoString\ne\n"
    for greeting in (b"", b"A\nwrong\n"):
        with socket.create_connection(("127.0.0.1", server.get_listening_port()), timeout=60) as stranger:
            stranger.sendall(greeting + command)
            assert not said(stranger).startswith(b"!y")


def said(connection):
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_long_lived_driver_keeps_its_threads_and_files(session, tmp_path):
    """500 queries with shuffles, 50 streams, 16 threads."""
    held = Held(session)
    session.sql("CREATE TABLE calls.db.out (id BIGINT, part INT)")

    def streamed(number):
        query = session.readStream.table("calls.db.t").writeStream.option(
            "checkpointLocation", str(tmp_path / f"checkpoint-{number}")
        )
        query.trigger(availableNow=True).toTable("calls.db.out").awaitTermination()

    def work():
        with ThreadPoolExecutor(16) as pool:
            streams = [pool.submit(streamed, number) for number in range(first, first + 50)]
            for done in [pool.submit(shuffled, session) for _ in range(500)] + streams:
                done.result()

    first = 1_000
    streamed(0)
    shuffled(session)
    rest(held)
    before = held.threads(), held.files(), held.jvm_threads()
    work()
    rest(held)
    after = held.threads(), held.files(), held.jvm_threads()
    print(before, after)
    assert after[0] <= before[0] + KEPT
    assert after[1] <= before[1] + KEPT
    assert after[2] <= before[2] + 2 * KEPT
    assert session.table("calls.db.out").count() == 51 * 30


def rest(held):
    """Until Spark has ended the threads that it keeps for a minute."""
    least, since = held.jvm_threads(), time.monotonic()
    while time.monotonic() - since < 75:
        if (now := held.jvm_threads()) < least:
            least, since = now, time.monotonic()
        time.sleep(1)
