"""One broker for all tests that leave it as it was, and one of its own for each that stops it."""

import json
import pickle
import time

import pytest

pytest.importorskip("pyspark")

from anabranch.kafka import fetch
from anabranch.kafka.options import settings_of
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spark.kafka.stream import HAS_READ_LIMITS, KafkaBatchReader, stream_reader
from tests.support.broker import kafka_broker, running_broker


class QuickTime:
    """Ten times as fast, and sleeping takes no time at all."""

    slept = 0.0

    def monotonic(self):
        return 10 * time.monotonic() + self.slept

    def sleep(self, seconds):
        self.slept += seconds


_time = QuickTime()
QUICK = Runtime(clock=_time, sleeper=_time)
"""For what is waited for, or looked at several times before it is believed."""


@pytest.fixture(scope="package")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
        while fetch._kept:  # they ask the broker for more as long as they live
            fetch._kept.popitem()[1].close()


@pytest.fixture
def own_broker(tmp_path):
    with running_broker(tmp_path) as broker:
        yield broker


class Reads:
    """Reads of one topic as Spark makes them, without a JVM."""

    def __init__(self, broker, topic):
        self.broker, self.topic = broker, topic

    def options(self, **more):
        given = {
            key.replace("__", ".").replace("on_error", "on-error").replace("time_zone", "time-zone"): str(
                value
            )
            for key, value in more.items()
        }
        chosen = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": self.topic}
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **chosen, **given}

    def batch(self, **options):
        reader = KafkaBatchReader(settings_of(self.options(**options), streaming=False))
        return _rows(reader, reader.partitions())

    def stream(self, runtime=SYSTEM, **options):
        return Stream(stream_reader(settings_of(self.options(**options), streaming=True), runtime))

    def ranges(self, **options):
        reader = KafkaBatchReader(settings_of(self.options(**options), streaming=False))
        return [partition.value for partition in reader.partitions()]


class Stream:
    """What Spark does with the reader of a stream: offsets go through the log as JSON."""

    def __init__(self, reader):
        self.reader = reader

    def begin(self):
        """The offset a new query begins at, after its first batch, which is empty."""
        start = _logged(self.reader.initialOffset())
        end = self.next(start)
        assert self.rows(start, end) == []
        return end

    def next(self, start, limit=None):
        if not HAS_READ_LIMITS:
            return _logged(self.reader.latestOffset())
        return _logged(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))

    def rows(self, start, end):
        return _rows(self.reader, self.reader.partitions(start, end))

    def values(self, start, end):
        return sorted(row["value"] for row in self.rows(start, end))

    def follow(self, start):
        """The values of the next batch, and where it ends."""
        end = self.next(start)
        return self.values(start, end), end


@pytest.fixture
def reads():
    return Reads


def _rows(reader, partitions):
    executor, work = pickle.loads(pickle.dumps((reader, list(partitions))))
    return [row for partition in work for batch in executor.read(partition) for row in batch.to_pylist()]


def _logged(offset):
    return json.loads(json.dumps(offset))
