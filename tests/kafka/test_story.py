"""Topic, table, table, windows: every event is there once and every window is right, whoever is killed meanwhile."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import anabranch
from tests.support.broker import running_broker

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]

PARTITIONS = 4
DELAY = 30_000
WINDOW = 600_000
BEGIN = 1_760_000_400_000
"""Epoch milliseconds; a full ten minutes."""
SPAN = 6 * 3_600_000
COLUMNS = "id BIGINT, user STRING, at TIMESTAMP(3) WITH LOCAL TIME ZONE"
WATERMARKED = f"{COLUMNS}, WATERMARK FOR at AS at - INTERVAL '{DELAY // 1000}' SECOND"
PATIENCE = 300
TOO_BUSY = "Python worker failed to connect back"
"""What Spark says if a process of Python took more than ten seconds to start."""


class Events:
    """Events over some hours, out of order by less than the delay; some may be later than that."""

    def __init__(self, count, *, late_share=0.0, seed=20261121):
        chance = random.Random(seed)
        step = SPAN / count
        self.times = []
        for number in range(count):
            at = BEGIN + int(number * step)
            is_late = chance.random() < late_share and number > count // 10
            self.times.append(at - (12 * WINDOW if is_late else chance.randrange(DELAY - int(step) - 1)))

    def records(self):
        """(partition, value) in the order they are sent; at the end one of each partition that ends all windows."""
        for number, at in enumerate(self.times):
            yield number % PARTITIONS, self._value(number, at)
        for partition in range(PARTITIONS):
            yield partition, self._value(len(self.times) + partition, self.end)

    @property
    def end(self):
        return BEGIN + SPAN + 10 * WINDOW

    @property
    def ids(self):
        return range(len(self.times) + PARTITIONS)

    @staticmethod
    def _value(number, at):
        return json.dumps({"id": number, "user": f"u{number % 97}", "at": at})


class Story:
    """The tables, and the process of the four queries."""

    def __init__(self, folder, broker):
        self.folder, self.broker = folder, broker
        self.most = 40_000  # rows of a batch
        self.topic = broker.new_topic(PARTITIONS)
        self.warehouse = str(folder / "warehouse")
        lake = anabranch.connect(self.warehouse)
        few = {"snapshot.num-retained.min": "2000", "snapshot.num-retained.max": "5000"}
        self.raw = lake.create_table("db.raw", WATERMARKED, options=few)
        self.clean = lake.create_table("db.clean", WATERMARKED, options=few)
        windows = "start TIMESTAMP(6) WITH LOCAL TIME ZONE, rows BIGINT"
        self.windows = lake.create_table("db.windows", windows, options=few)
        self.late = lake.create_table("db.late", COLUMNS, options=few)
        self.runs = 0

    def send(self, events, chunk=5_000, pause=0.0):
        producer = self.broker.producer()
        for number, (partition, value) in enumerate(events.records()):
            while True:
                try:
                    producer.produce(self.topic, value=value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % chunk == chunk - 1:
                assert producer.flush(30) == 0
                time.sleep(pause)
        assert producer.flush(30) == 0

    def start(self, mode):
        self.runs += 1
        arguments = [
            self.warehouse,
            str(self.folder / "checkpoints"),
            self.broker.bootstrap,
            self.topic,
            mode,
            str(self.most),
        ]
        with (self.folder / f"run-{self.runs}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.kafka.story_job", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_after(self, commits, wait):
        """Let the queries make so many commits to some table, wait a little, and kill everything they run in."""
        before, end = self.commits(), time.monotonic() + PATIENCE
        with self.killed() as process:
            while self.commits() < before + commits and self.is_alive(process):
                assert time.monotonic() < end, self.log()
                time.sleep(0.2)
            time.sleep(wait)
            self.is_alive(process)

    def kill_within(self, seconds):
        """Kill everything the queries run in so soon that they may not have begun, or be at anything."""
        with self.killed() as process:
            end = time.monotonic() + seconds
            while time.monotonic() < end and self.is_alive(process):
                time.sleep(0.1)

    @contextlib.contextmanager
    def killed(self):
        process = self.start("follow")
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def is_alive(self, process):
        """False if Spark gave up on a busy machine, which is a death like any other; no other end is expected."""
        if process.poll() is None:
            return True
        assert TOO_BUSY in self.log(), self.log()
        return False

    def finish(self):
        for _ in range(3):
            process = self.start("finish")
            try:
                if self.end_of(process) == 0:
                    return
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            assert TOO_BUSY in self.log(), self.log()

    def end_of(self, process):
        """How a process ends that has all the time it needs as long as something is committed now and then."""
        seen, end = self.commits(), time.monotonic() + PATIENCE
        while process.poll() is None:
            assert time.monotonic() < end, self.log()
            time.sleep(0.5)
            now = self.commits()
            if now != seen:
                seen, end = now, time.monotonic() + PATIENCE
        return process.returncode

    def commits(self):
        tables = (self.raw, self.clean, self.windows, self.late)
        return sum(0 if t.snapshot is None else t.snapshot.id for t in tables)

    def log(self):
        return (self.folder / f"run-{self.runs}.log").read_text()[-4000:]

    def check_rows(self, events):
        for table in (self.raw, self.clean):
            assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [*events.ids]
            marks = [s.watermark for s in sorted(table.snapshots(), key=lambda s: s.id)]
            known = [mark for mark in marks if mark is not None]
            assert known == sorted(known)
            assert known[-1] == events.end - DELAY
            assert all(mark is not None for mark in marks[marks.index(known[0]) :])

    def counts(self):
        rows = self.windows.scan().to_arrow().to_pylist()
        found = {int(row["start"].timestamp() * 1000): row["rows"] for row in rows}
        assert len(found) == len(rows)
        return found


def windows_of(times):
    return Counter(at - at % WINDOW for at in times)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def story(tmp_path, broker):
    return Story(tmp_path, broker)


def tell(story, events, kills, seed=1, restarts=0):
    """Send the events while the queries run and are killed; then let them finish."""
    chance = random.Random(seed)
    sender = threading.Thread(target=story.send, args=(events,))
    sender.start()
    restart_at = set(chance.sample(range(kills), restarts)) if restarts else set()
    for number in range(kills):
        if number % 2:
            story.kill_after(chance.randint(1, 3), chance.uniform(0, 1.0))
        else:
            story.kill_within(chance.uniform(4, 16))
        if number in restart_at:
            sender.join()  # what is not acknowledged yet would be the producer's to lose
            story.broker.restart()
    sender.join()
    story.finish()


def check_no_late_rows(story, events):
    story.check_rows(events)
    assert story.counts() == windows_of(events.times)
    assert story.late.scan().to_arrow().num_rows == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("count", "kills"),
    [pytest.param(40_000, 2, marks=pytest.mark.long), pytest.param(200_000, 5, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_every_window_is_right_whoever_is_killed(story, count, kills):
    events = Events(count)
    story.most = count * 2 // 5
    tell(story, events, kills=kills)
    check_no_late_rows(story, events)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_late_rows_are_kept_in_the_tables_and_counted(story):
    events = Events(10_000, late_share=0.02)
    story.most = 2_000
    story.send(events)
    story.finish()
    story.check_rows(events)
    late = {row["id"] for row in story.late.scan().to_arrow().to_pylist()}
    assert 100 < len(late) < 300
    head = story.clean.snapshot.id
    assert story.clean.late_rows(0, head) == len(late)
    assert story.counts() == windows_of(at for number, at in enumerate(events.times) if number not in late)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_two_million_events_thirty_kills_three_restarts(story):
    events = Events(2_000_000)
    story.most = 50_000
    tell(story, events, kills=30, restarts=3)
    check_no_late_rows(story, events)
