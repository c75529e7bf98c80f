"""Many threads on one session: nobody waits for ever, nothing is lost, and what was made for a query is let go."""

import gc
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.java_gateway import JavaObject

import anabranch
import anabranch.spark
from anabranch.spark.jvm.proxy import JavaProxy
from anabranch.spark.native.frame import native_frame
from tests.spark.native_cases import eventually

pytestmark = pytest.mark.spark

THREADS = 16
ROWS = 3
"""Rows of each insert into the table that all threads share."""


@pytest.fixture
def session(spark, tmp_path):
    found = anabranch.spark.attach(spark.newSession(), str(tmp_path / "warehouse"), catalog="crowd")
    found.sql("CREATE NAMESPACE crowd.db")
    found.sql("CREATE TABLE crowd.db.shared (id BIGINT, thread INT) PARTITIONED BY (thread)")
    return found


class Worker:
    """One of the threads."""

    def __init__(self, session, lake, number):
        self.session, self.lake, self.number = session, lake, number
        self.random = random.Random(number)
        self.inserted = 0
        self.seen = 0
        self.done = Counter()

    def run(self, end):
        kinds = ["read", "read", "frame", "insert", "define", "tag"]
        while not self.done or time.monotonic() < end:
            self.do(self.random.choice(kinds))
        return self

    def do(self, kind):
        getattr(self, kind)()
        self.done[kind] += 1

    def read(self):
        """Rows of a thread's own inserts are there; those of others come whole."""
        mine, everybody = self.session.sql(
            f"SELECT count_if(thread = {self.number}), count(*) FROM crowd.db.shared"
        ).first()
        assert mine == self.inserted
        assert everybody % ROWS == 0
        assert everybody >= self.seen
        self.seen = everybody

    def frame(self):
        scan = self.lake.table("db.shared").scan()
        assert native_frame(self.session, scan).filter(f"thread = {self.number}").count() == self.inserted

    def insert(self):
        self.session.sql(f"INSERT INTO crowd.db.shared SELECT id, {self.number} FROM range({ROWS})")
        self.inserted += ROWS

    def define(self):
        name = f"crowd.db.own{self.number}"
        self.session.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
        self.session.sql(f"ALTER TABLE {name} RENAME COLUMN v TO w")
        self.session.sql(f"ALTER TABLE {name} ADD COLUMN v BIGINT")
        assert self.session.table(name).columns == ["id", "w", "v"]
        self.session.sql(f"DROP TABLE {name}")

    def tag(self):
        name = f"t{self.number}-{self.done['tag']}"
        if self.lake.table("db.shared").snapshot is None:
            return
        self.session.sql(f"CALL crowd.sys.create_tag(table => 'db.shared', tag => '{name}')")
        assert self.session.sql(f"SELECT * FROM crowd.db.shared VERSION AS OF '{name}'").count() % ROWS == 0


class Held:
    """Objects that the JVM and Python hold for one another."""

    def __init__(self, spark):
        self.spark = spark
        self.gateway = spark.sparkContext._gateway

    def counted(self):
        """Proxies that this process keeps for the JVM, and objects that the JVM keeps for this process."""
        for _ in range(2):  # what is let go on one side lets go on the other
            gc.collect()
            self.spark._jvm.java.lang.System.gc()
        pool = list(self.gateway.gateway_property.pool.dict.values())
        server = JavaObject("GATEWAY_SERVER", self.gateway._gateway_client)
        return sum(isinstance(v, JavaProxy) for v in pool), server.getGateway().getBindings().size()


def soak(session, warehouse, seconds):
    lake = anabranch.connect(warehouse)
    held = Held(session)
    workers = [Worker(session, lake, number) for number in range(THREADS)]
    for kind in ("insert", "read", "frame", "define", "tag"):  # what is made once is there
        workers[0].do(kind)
    proxies, objects = held.counted()
    end = time.monotonic() + seconds
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(worker.run, end) for worker in workers]
        done = sum((each.result(timeout=seconds + 240).done for each in running), Counter())
    assert sum(done.values()) >= THREADS
    workers[0].read()
    assert workers[0].seen == sum(worker.inserted for worker in workers)
    del running
    # Some of each thread: its connection, what it asked for last. Not of each statement.
    eventually(lambda: held.counted()[0] <= proxies + 2 * THREADS)
    eventually(lambda: held.counted()[1] <= objects + 40 * THREADS)
    return done


@pytest.mark.long
def test_threads_read_write_and_define(session, tmp_path):
    soak(session, str(tmp_path / "warehouse"), 3)
    eventually(lambda: gc.collect() >= 0 and not _pool_threads())  # what an error still held goes with it


def _pool_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_threads_read_write_and_define_for_five_minutes(session, tmp_path):
    done = soak(session, str(tmp_path / "warehouse"), 300)
    assert all(done[kind] for kind in ("insert", "read", "frame", "define", "tag"))
