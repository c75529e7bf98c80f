"""Writing to topics as Spark calls it, on a real broker, without a JVM."""

import json
import pickle
import random

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from anabranch.errors import OptionError, SchemaError, StorageError
from anabranch.kafka.client import library
from anabranch.kafka.produce import Record, Sending
from anabranch.spark.kafka.sink import KafkaBatchWriter, KafkaStreamWriter, SinkSettings

VALUE = StructType().add("value", StringType())


class Died(BaseException):
    """Like a kill: nobody catches it, and nothing is cleaned up."""


@pytest.fixture
def topic(broker):
    return broker.new_topic(2)


@pytest.fixture
def writer(broker, topic, tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": f"q-{topic}"}))

    def make(schema=VALUE, **more):
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "checkpointLocation": str(tmp_path),
        }
        options |= {key.replace("__", "."): value for key, value in more.items()}
        return KafkaStreamWriter(SinkSettings.of(options, schema), options)

    return make


def run(writer, values, batch):
    """A batch of two tasks, each of which has a copy of the writer."""
    messages = []
    for place in range(2):
        task = pickle.loads(pickle.dumps(writer))
        rows = pa.RecordBatch.from_pylist(
            [{"value": value} for value in values[place::2]], pa.schema([("value", pa.string())])
        )
        messages.append(pickle.loads(pickle.dumps(task.write(iter([rows])))))
    pickle.loads(pickle.dumps(writer)).commit(messages, batch)


def found(reads, broker, topic):
    return sorted(row["value"] for row in reads(broker, topic).batch())


def test_each_batch_is_sent_once_however_often_it_is_repeated(broker, topic, reads, writer):
    for batch in range(3):
        for _ in range(2):
            run(writer(), [f"{batch}-{n}" for n in range(5)], batch)
    run(writer(), [f"1-{n}" for n in range(5)], 1)  # a batch that came back from the dead
    assert found(reads, broker, topic) == sorted(f"{b}-{n}".encode() for b in range(3) for n in range(5))


def test_killed_at_random_points_every_row_is_there_once(broker, topic, reads, writer, monkeypatch):
    chance, batches, kafka = random.Random(20261123), 8, library()
    points = (
        "init_transactions",
        "begin_transaction",
        "produce",
        "flush",
        "send_offsets_to_transaction",
        "commit_transaction",
    )
    deadly = {"point": None, "after": False, "left": 0}
    made = []

    class Dying(kafka.Producer):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            made.append(self)  # a process that dies closes nothing

    def dying(name):
        real = getattr(kafka.Producer, name)

        def method(self, *arguments, **named):
            is_it = deadly["point"] == name
            deadly["left"] -= is_it
            if is_it and deadly["left"] < 0 and not deadly["after"]:
                raise Died
            result = real(self, *arguments, **named)
            if is_it and deadly["left"] < 0:
                raise Died
            return result

        return method

    for name in points:
        setattr(Dying, name, dying(name))
    monkeypatch.setattr(Dying, "abort_transaction", lambda *_: None)
    monkeypatch.setattr(kafka, "Producer", Dying)
    kills = 0
    for batch in range(batches):
        values = [f"{batch}-{n}" for n in range(6)]
        for _ in range(chance.randrange(3)):
            deadly |= {"point": chance.choice(points), "after": chance.random() < 0.5, "left": 0}
            if deadly["point"] == "produce":
                deadly["left"] = chance.randrange(6)
            try:
                run(writer(), values, batch)
            except Died:
                kills += 1
        deadly["point"] = None
        run(writer(), values, batch)
    assert kills > 3
    assert found(reads, broker, topic) == sorted(
        f"{b}-{n}".encode() for b in range(batches) for n in range(6)
    )


def test_a_process_that_was_replaced_cannot_commit_any_more(broker, topic, reads):
    sending = Sending.of({"bootstrap.servers": broker.bootstrap}, 30)

    def records():
        yield Record(topic, b"old")
        assert sending.send_once([Record(topic, b"new")], f"name-{topic}", 0, topic)

    with pytest.raises(StorageError, match="did not take batch 0|did not take all records"):
        sending.send_once(records(), f"name-{topic}", 0, topic)
    assert found(reads, broker, topic) == [b"new"]


@pytest.mark.long
def test_at_least_once_and_batch_writes(broker, topic, reads, writer):
    run(writer(delivery="at-least-once"), ["a", "b"], 0)
    settings = SinkSettings.of({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}, VALUE)
    rows = {"key": b"k", "value": "c", "partition": 1, "headers": [{"key": "h", "value": b"1"}]}
    KafkaBatchWriter(settings).write(iter([pa.RecordBatch.from_pylist([rows])]))
    last = [row for row in reads(broker, topic).batch(includeHeaders="true") if row["value"] == b"c"]
    assert [(row["key"], row["partition"], row["headers"]) for row in last] == [
        (b"k", 1, [{"key": "h", "value": b"1"}])
    ]
    assert found(reads, broker, topic) == [b"a", b"b", b"c"]


def test_what_does_not_fit_is_told(broker, writer):
    with pytest.raises(SchemaError, match="columns id"):
        writer(StructType().add("id", LongType()))
    with pytest.raises(OptionError, match="no option 'topics'(.|\n)*'topic'"):
        writer(topics="x")
    with pytest.raises(OptionError, match="transactional.id"):
        writer(kafka__transactional__id="x")
    given = {"kafka.bootstrap.servers": broker.bootstrap}
    with pytest.raises(OptionError, match="to which topic"):
        SinkSettings.of(given, VALUE)
    with pytest.raises(OptionError, match="none is named"):
        KafkaStreamWriter(SinkSettings.of(given, VALUE.add("topic", StringType())), given)
