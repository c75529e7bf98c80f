"""The streaming source as Spark calls it, on a real broker, without a JVM."""

import time

import pytest

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.kafka import fetch
from anabranch.runtime import Runtime
from anabranch.spark.kafka.stream import HAS_READ_LIMITS
from tests.kafka.conftest import QUICK

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")


@pytest.fixture
def topic(broker):
    return broker.new_topic(2)


@pytest.fixture
def streaming(reads, broker, topic):
    return reads(broker, topic).stream


class Now:
    at = 0.0

    def monotonic(self):
        return self.at


def numbers(*ns):
    return [str(n).encode() for n in ns]


def test_from_the_earliest_record(broker, topic, streaming):
    broker.produce(topic, numbers(0, 1, 2))
    stream = streaming(startingOffsets="earliest")
    start = stream.begin()
    assert start == {topic: {"0": 0, "1": 0}}
    values, end = stream.follow(start)
    assert values == numbers(0, 1, 2)
    assert stream.next(end) == end
    broker.produce(topic, numbers(3), partition=1)
    assert stream.follow(end) == (numbers(3), {topic: {"0": 3, "1": 1}})


def test_from_the_latest_record_which_is_the_default(broker, topic, streaming):
    broker.produce(topic, numbers(0, 1))
    stream = streaming()
    start = stream.begin()
    broker.produce(topic, numbers(2))
    assert stream.follow(start)[0] == numbers(2)


def test_from_offsets_and_from_a_time(broker, topic, streaming):
    broker.produce(topic, numbers(0, 1, 2), timestamps=[1000, 2000, 3000])
    stream = streaming(startingOffsets=f'{{"{topic}": {{"0": 1, "1": -1}}}}')
    assert stream.follow(stream.begin())[0] == numbers(1, 2)
    stream = streaming(startingTimestamp=2500, startingOffsetsByTimestampStrategy="latest")
    assert stream.follow(stream.begin())[0] == numbers(2)


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_first_batch_is_the_same_although_its_beginning_is_asked_anew(broker, topic, streaming, begin):
    # The driver dies after Spark logged the first batch and before it was done. Meanwhile the topic grows.
    broker.produce(topic, numbers(0))
    stream = streaming(startingOffsets=begin)
    logged = stream.next(stream.reader.initialOffset())
    broker.produce(topic, numbers(1, 2))
    again = streaming(startingOffsets=begin)
    assert again.rows(again.reader.initialOffset(), logged) == []
    expected = numbers(0, 1, 2) if begin == "earliest" else numbers(1, 2)
    assert again.follow(logged)[0] == expected


def test_the_second_batch_is_repeated_from_its_offsets_alone(broker, topic, streaming):
    stream = streaming()
    start = stream.begin()
    broker.produce(topic, numbers(0, 1))
    end = stream.next(start)
    broker.produce(topic, numbers(2))
    again = streaming()
    assert again.values(start, end) == numbers(0, 1)
    assert again.follow(end)[0] == numbers(2)


def test_a_restart_does_not_ask_where_to_begin(broker, topic, streaming):
    broker.produce(topic, numbers(0, 1, 2))
    first = f'{{"{topic}": {{"0": 1, "1": 0}}}}'
    stream = streaming(startingOffsets=first)
    _, end = stream.follow(stream.begin())
    broker.delete_records(topic, 0, 3)
    broker.produce(topic, numbers(3))
    assert streaming(startingOffsets=first).follow(end)[0] == numbers(3)


@needs_limits
def test_a_batch_takes_no_more_than_the_limit(broker, topic, streaming):
    broker.produce(topic, numbers(*range(90)))
    broker.produce(topic, numbers(*range(90, 100)), partition=1)
    stream = streaming(startingOffsets="earliest", maxOffsetsPerTrigger=30)
    found, position, sizes = [], stream.begin(), []
    while (end := stream.next(position)) != position:
        rows = stream.rows(position, end)
        found += [row["value"] for row in rows]
        sizes.append(len(rows))
        position = end
    assert sorted(found) == sorted(numbers(*range(100)))
    assert max(sizes) <= 30
    assert len(sizes) <= 5


@needs_limits
def test_a_batch_waits_for_enough_records_but_not_for_ever(broker, topic, reads):
    now = Now()
    stream = reads(broker, topic).stream(
        Runtime(clock=now), startingOffsets="earliest", minOffsetsPerTrigger=3, maxTriggerDelay="10s"
    )
    position = stream.begin()
    broker.produce(topic, numbers(0, 1))
    assert stream.next(position) == position
    broker.produce(topic, numbers(2), partition=1)
    values, position = stream.follow(position)
    assert values == numbers(0, 1, 2)
    broker.produce(topic, numbers(3))
    now.at = 9.0
    assert stream.next(position) == position
    now.at = 10.0
    assert stream.follow(position)[0] == numbers(3)


@needs_limits
def test_what_is_available_now(broker, topic, streaming):
    broker.produce(topic, numbers(0, 1, 2, 3))
    stream = streaming(startingOffsets="earliest", maxOffsetsPerTrigger=3, minOffsetsPerTrigger=100)
    stream.reader.prepareForTriggerAvailableNow()
    broker.produce(topic, numbers(4, 5))
    broker.add_partitions(topic, 3)
    broker.produce(topic, numbers(6), partition=2)
    found, position = [], stream.begin()
    while (end := stream.next(position)) != position:
        found += stream.values(position, end)
        position = end
    assert found == numbers(0, 1, 2, 3)
    assert position == {topic: {"0": 4, "1": 0, "2": 0}}


@needs_limits
def test_one_batch_and_no_more_begins_at_once(broker, topic, streaming):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    broker.produce(topic, numbers(0, 1))
    stream = streaming(startingOffsets="earliest", maxOffsetsPerTrigger=1)
    start = stream.reader.initialOffset()
    end = stream.next(start, ReadAllAvailable())
    assert stream.values(start, end) == numbers(0, 1)
    again = streaming(startingOffsets="earliest")
    assert again.values(again.reader.initialOffset(), end) == numbers(0, 1)


def test_a_partition_that_is_added_is_read_from_its_beginning(broker, topic, streaming):
    stream = streaming()
    position = stream.begin()
    broker.add_partitions(topic, 3)
    broker.produce(topic, numbers(0, 1), partition=2)
    found = []
    for _ in range(2):  # it enters the offsets first
        values, position = stream.follow(position)
        found += values
    assert found == numbers(0, 1)
    assert position == {topic: {"0": 0, "1": 0, "2": 2}}


def test_a_topic_that_comes_to_match_the_pattern(broker, topic, streaming):
    stream = streaming(subscribePattern=f"{topic}.*")
    position = stream.begin()
    other = broker.new_topic(1, name=f"{topic}-later")
    broker.produce(other, numbers(0))
    _, position = stream.follow(position)
    assert stream.follow(position)[0] == numbers(0)


def test_a_pattern_that_matches_nothing_yet(broker, topic, streaming):
    stream = streaming(subscribePattern=f"{topic}-soon")
    position = stream.begin()
    assert position == {}
    assert stream.next(position) == {}
    broker.produce(broker.new_topic(1, name=f"{topic}-soon"), numbers(0))
    _, position = stream.follow(position)
    assert stream.follow(position)[0] == numbers(0)


def test_a_topic_that_is_added_by_name_brings_what_it_still_has(broker, topic, streaming):
    position = streaming().begin()
    old = broker.new_topic(1)
    broker.produce(old, numbers(0, 1, 2))
    broker.delete_records(old, 0, 2)
    stream = streaming(subscribe=f"{topic},{old}")
    _, position = stream.follow(position)
    assert stream.follow(position)[0] == numbers(2)


def test_transactions_and_their_markers_across_batches(broker, topic, streaming):
    stream = streaming()
    position = stream.begin()
    found = []
    for n in range(4):
        broker.transaction(topic, numbers(n), commit=n % 2 == 0)
        values, position = stream.follow(position)
        found += values
        assert stream.next(position) == position
    assert found == numbers(0, 2)
    assert position[topic]["0"] == 8


def test_consumers_are_kept_between_batches_of_one_run(broker, topic, streaming, monkeypatch):
    made = []

    class Counted(fetch.RangeConsumer):
        def __init__(self, *arguments):
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(fetch, "RangeConsumer", Counted)
    broker.produce(topic, numbers(*range(100)))
    stream = streaming(startingOffsets="earliest", maxOffsetsPerTrigger=10)
    position, found = stream.begin(), []
    while (end := stream.next(position)) != position:
        found += [row["value"] for row in stream.rows(position, end)]
        position = end
    assert found == numbers(*range(100))
    assert len(made) == 1
    assert (
        stream.rows({topic: {"0": 5, "1": 0}}, {topic: {"0": 7, "1": 0}})[0]["value"] == b"5"
    )  # and go back
    again = streaming(startingOffsets="earliest")
    again.follow(again.begin())
    assert len(made) == 2


def test_a_kept_consumer_with_a_backlog_comes_to_rest(broker, topic, streaming, monkeypatch):
    monkeypatch.setattr(fetch, "_AWAKE_SECONDS", 0.01)
    broker.produce(topic, numbers(*range(100)))
    stream = streaming(startingOffsets="earliest", maxOffsetsPerTrigger=10)
    begin = stream.begin()
    values, position = stream.follow(begin)
    kept = next(reversed(fetch._kept.values()))
    end = time.monotonic() + 30
    while kept.is_fetching:
        assert time.monotonic() < end
        time.sleep(0.01)
    values += stream.follow(position)[0]  # what had arrived is still there, and the rest is asked for
    assert sorted(values) == sorted(numbers(*range(20)))


def test_offsets_are_committed_to_a_group_for_those_who_watch(broker, topic, streaming):
    from confluent_kafka import Consumer, TopicPartition

    broker.produce(topic, numbers(0, 1, 2))
    group = f"watched-{topic}"
    stream = streaming(startingOffsets="earliest", commitOffsetsToGroup=group)
    _, end = stream.follow(stream.begin())
    stream.reader.commit(end)
    stream.reader.stop()
    watcher = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    found = watcher.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=20)
    watcher.close()
    assert [(place.partition, place.offset) for place in found] == [(0, 3), (1, 0)]


def test_a_group_that_cannot_be_told_stops_nothing(own_broker, reads, caplog):
    topic = own_broker.new_topic(1)
    own_broker.produce(topic, numbers(0))
    stream = reads(own_broker, topic).stream(startingOffsets="earliest", commitOffsetsToGroup="watched")
    _, end = stream.follow(stream.begin())
    own_broker.stop()
    stream.reader.commit(end)  # returns at once
    own_broker.start()
    stream.reader.stop()


def test_offsets_of_something_else_are_told(streaming):
    with pytest.raises(InvalidInputError, match="no offsets of Kafka topics(.|\n)*checkpoint"):
        streaming().reader.partitions({}, {"source": "anabranch", "version": 1})


def test_a_topic_that_is_not_there_yet(streaming):
    with pytest.raises(NotFoundError, match="no topic 'never-made'"):
        streaming(QUICK, subscribe="never-made").reader.initialOffset()
