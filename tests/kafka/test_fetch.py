"""Records that go before they were read, and brokers that go away: told, or got over."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch.errors import NotFoundError, StorageError
from anabranch.jobs.source import check_kept, check_rereadable
from anabranch.jobs.source import topic as topic_source
from anabranch.kafka.client import ClientConfig
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.fetch import RangeReader
from anabranch.kafka.offsets import OffsetRange, TopicPartition
from anabranch.kafka.options import settings_of
from tests.kafka.conftest import QUICK

SKIP = {"failOnDataLoss": "false"}


def numbers(*ns):
    return [str(n).encode() for n in ns]


@pytest.fixture
def topic(broker):
    return broker.new_topic(1)


@pytest.fixture
def mine(reads, broker, topic):
    return reads(broker, topic)


def test_records_expire_between_batches(broker, topic, mine, caplog):
    broker.produce(topic, numbers(*range(10)))
    stream = mine.stream(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    _, position = stream.follow(stream.begin())
    end = stream.next(position)
    broker.delete_records(topic, 0, 6)
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 4 .* at offset 6: 2 offsets were removed"):
        stream.rows(position, end)
    going_on = mine.stream(**SKIP)
    assert going_on.values(position, end) == numbers(6, 7)
    broker.delete_records(topic, 0, 9)
    assert going_on.follow(end)[0] == numbers(9)
    assert "offsets skipped so far: 3" in caplog.text


def test_all_records_of_a_batch_expire(broker, topic, mine):
    broker.produce(topic, numbers(*range(10)))
    stream = mine.stream(startingOffsets="earliest", maxOffsetsPerTrigger=4, **SKIP)
    start = stream.begin()
    end = stream.next(start)
    broker.delete_records(topic, 0, 8)
    assert stream.rows(start, end) == []
    assert stream.next(end)[topic]["0"] == 8


def test_records_expire_under_the_reader(broker, topic, mine, caplog):
    broker.produce(topic, numbers(*range(10)))
    whole = OffsetRange(TopicPartition(topic, 0), 2, 9)
    broker.delete_records(topic, 0, 5)  # after the range was planned
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 2 was to be read next"):
        read(mine, whole)
    assert read(mine, whole, **SKIP) == numbers(5, 6, 7, 8)
    assert "3 offsets were removed" in caplog.text
    broker.delete_records(topic, 0, 10)
    assert read(mine, whole, **SKIP) == []


def test_a_topic_is_deleted(broker, topic, mine, reads, caplog):
    other = broker.new_topic(1)
    both = {"subscribe": f"{topic},{other}"}
    broker.produce(topic, numbers(0))
    stream = mine.stream(QUICK, startingOffsets="earliest", **both)
    start = stream.begin()
    end = stream.next(start)
    broker.delete_topic(topic)
    broker.produce(other, numbers(1))
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 0 .* does not exist any more"):
        stream.rows(start, end)
    going_on = mine.stream(QUICK, **both, **SKIP)
    assert going_on.rows(start, end) == []
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 1 .* does not exist any more"):
        stream.next(end)
    values, end = going_on.follow(end)
    assert values == numbers(1)
    assert end == {other: {"0": 1}}
    assert "going on without it" in caplog.text
    gone = OffsetRange(TopicPartition(topic, 0), 0, 1)
    with pytest.raises(NotFoundError, match="does not exist any more"):
        read(mine, gone)
    assert read(mine, gone, **SKIP) == []


def test_a_partition_that_is_added_has_lost_its_first_records(broker, topic, mine):
    stream = mine.stream()
    position = stream.begin()
    broker.add_partitions(topic, 2)
    broker.produce(topic, numbers(0, 1, 2), partition=1)
    broker.delete_records(topic, 1, 2)
    with pytest.raises(NotFoundError, match=f"{topic}-1: .*new to the query.* 2 offsets were removed"):
        stream.next(position)
    going_on = mine.stream(**SKIP)
    _, position = going_on.follow(position)
    assert going_on.follow(position)[0] == numbers(2)


def test_the_broker_went_backwards(own_broker, reads, caplog):
    topic = own_broker.new_topic(1)
    own_broker.produce(topic, numbers(0, 1))
    mine = reads(own_broker, topic)
    stream = mine.stream(startingOffsets="earliest")
    start = stream.begin()
    _, middle = stream.follow(start)

    def more():
        own_broker.produce(topic, numbers(2, 3, 4))
        return stream.follow(middle)

    values, end = own_broker.go_back(more)
    assert (values, end) == (numbers(2, 3, 4), {topic: {"0": 5}})
    with pytest.raises(
        NotFoundError, match=f"{topic}-0: offset 5 .*now the partition ends at offset 2: the brokers lost"
    ):
        mine.stream(QUICK).next(end)
    with pytest.raises(NotFoundError, match="ends at offset 2"):
        read(mine, OffsetRange(TopicPartition(topic, 0), 2, 5))
    with pytest.raises(NotFoundError, match="ends at offset 2"):
        read(mine, OffsetRange(TopicPartition(topic, 0), 0, 5))
    assert read(mine, OffsetRange(TopicPartition(topic, 0), 0, 5), **SKIP) == numbers(0, 1)
    assert read(mine, OffsetRange(TopicPartition(topic, 0), 3, 5), **SKIP) == []
    going_on = mine.stream(QUICK, **SKIP)
    position = going_on.next(end)
    assert position == {topic: {"0": 2}}
    own_broker.produce(topic, numbers(5))
    assert going_on.follow(position)[0] == numbers(5)
    assert "the brokers lost records they had acknowledged" in caplog.text


@pytest.mark.long
def test_questions_wait_for_a_broker_that_leaves_the_cluster(own_broker, reads):
    """A broker that stops cleanly says that it has gone: the client lets go of it, and of what waited for it."""
    topic = own_broker.new_topic(1)
    own_broker.produce(topic, numbers(0))
    where = TopicPartition(topic, 0)
    config = ClientConfig.of({"bootstrap.servers": own_broker.bootstrap})
    restarted = threading.Event()

    def ask():
        cluster = Cluster(config, patience_seconds=60)
        try:
            while not restarted.is_set():
                assert cluster.latest([where]) == {where: 1}
        finally:
            cluster.close()

    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask) for _ in range(6)]
        try:
            for _ in range(5):
                own_broker.restart()
                time.sleep(0.2)
        finally:
            restarted.set()
        for asked in asking:
            asked.result()


def test_a_clean_restart_between_and_within_batches(own_broker, reads):
    topic = own_broker.new_topic(1)
    own_broker.produce(topic, numbers(*range(5)))
    stream = reads(own_broker, topic).stream(startingOffsets="earliest")
    position = stream.begin()
    found, position = stream.follow(position)
    own_broker.restart()
    own_broker.produce(topic, numbers(5, 6))
    values, position = stream.follow(position)
    found += values
    own_broker.produce(topic, numbers(7, 8))
    end = stream.next(position)
    own_broker.stop()
    back = threading.Timer(0.5, own_broker.start)
    back.start()
    try:
        found += stream.values(position, end)
    finally:
        back.join()
    assert found == numbers(*range(9))


@pytest.mark.long
def test_no_broker_answers(own_broker, reads):
    topic = own_broker.new_topic(1)
    own_broker.produce(topic, numbers(0))
    mine = reads(own_broker, topic)
    stream = mine.stream(startingOffsets="earliest", kafkaConsumer__pollTimeoutMs=300)
    start = stream.begin()
    end = stream.next(start)
    own_broker.stop()
    with pytest.raises(
        StorageError, match=f"no Kafka broker at {own_broker.bootstrap}(.|\n)*bootstrap.servers"
    ) as caught:
        stream.next(end)
    assert caught.value.retryable
    with pytest.raises(StorageError, match="no Kafka broker"):
        stream.rows(start, end)
    with pytest.raises(StorageError, match="no Kafka broker"):
        read(mine, OffsetRange(TopicPartition(topic, 0), 0, 1), kafkaConsumer__pollTimeoutMs=300)


def test_a_name_that_leads_nowhere(reads, own_broker):
    mine = reads(own_broker, "t")
    with pytest.raises(StorageError, match="no Kafka broker at nowhere.invalid:9092"):
        mine.batch(kafka__bootstrap__servers="nowhere.invalid:9092", kafkaConsumer__pollTimeoutMs=300)


def test_a_compacted_topic_cannot_be_read_again_as_it_was(broker):
    plain, compacted = broker.new_topic(1), broker.new_topic(1, cleanup_policy="compact")
    check_rereadable(topic_source(plain, broker.bootstrap), "earliest")
    for begin in ("earliest", json.dumps({compacted: {"0": 0}})):
        with pytest.raises(NotFoundError, match=f"topic '{compacted}' is compacted"):
            check_rereadable(topic_source(compacted, broker.bootstrap), begin)
    check_kept(
        topic_source(compacted, broker.bootstrap), {"startingOffsets": json.dumps({compacted: {"0": 0}})}
    )


def test_records_before_a_position_may_be_gone_but_not_those_after_it(broker, topic, mine):
    broker.produce(topic, numbers(*range(10)))
    source = topic_source(topic, broker.bootstrap, SKIP)  # which is about what a running query may skip
    broker.delete_records(topic, 0, 4)
    check_kept(source, {"startingOffsets": json.dumps({topic: {"0": 4}})})
    with pytest.raises(
        NotFoundError, match=f"{topic}-0: offset 3 is to be read next, but the earliest .* at offset 4"
    ):
        check_kept(source, {"startingOffsets": json.dumps({topic: {"0": 3}})})
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 11 .* the partition ends at offset 10"):
        check_kept(source, {"startingOffsets": json.dumps({topic: {"0": 11}})})
    with pytest.raises(NotFoundError, match=f"{topic}-0: offset 0 .* 4 offsets were removed"):
        check_rereadable(source, "earliest")


def read(mine, wanted, **options):
    options = {"kafkaConsumer__pollTimeoutMs": 20_000, **options}
    reader = RangeReader(settings_of(mine.options(**options), streaming=True))
    return [value for batch in reader.read(wanted, QUICK) for value in batch["value"].to_pylist()]
