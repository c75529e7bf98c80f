"""Batch reads of a real broker: every record, and nothing that is none."""

from datetime import UTC, datetime

import pytest

from anabranch.errors import NotFoundError, OptionError

T0 = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC


@pytest.fixture
def topic(broker):
    return broker.new_topic(2)


@pytest.fixture
def read(reads, broker, topic):
    return reads(broker, topic).batch


def values(rows):
    return [row["value"] for row in rows]


def test_all_columns(broker, topic, read):
    broker.produce(
        topic,
        ["v"],
        key="k",
        headers=[("a", b"1"), ("b", None), ("a", b"")],
        timestamps=[T0 + 1],
        partition=1,
    )
    assert read(includeHeaders="true") == [
        {
            "key": b"k",
            "value": b"v",
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
        }
    ]
    assert "headers" not in read()[0]


def test_no_key_no_value_no_header(broker, topic, read):
    broker.produce(topic, [None, b"", b"\x00\xff"])
    rows = read(includeHeaders="true")
    assert values(rows) == [None, b"", b"\x00\xff"]
    assert [row["key"] for row in rows] == [None] * 3
    assert [row["headers"] for row in rows] == [None] * 3


def test_an_empty_topic_has_no_rows(read):
    assert read() == []


def test_committed_and_aborted_transactions(broker, topic, read):
    broker.produce(topic, ["plain"])
    broker.transaction(topic, ["kept", "too"])
    broker.transaction(topic, ["aborted"] * 3, commit=False)
    rows = read()
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"plain"), (1, b"kept"), (2, b"too")]
    assert len(read(**{"kafka.isolation.level": "read_uncommitted"})) == 6


def test_what_an_open_transaction_holds_back(broker, topic, read):
    broker.produce(topic, ["before"])
    with broker.open_transaction(topic, ["undecided"]):
        broker.produce(topic, ["after"])
        assert values(read()) == [b"before"]
    assert values(read()) == [b"before", b"undecided", b"after"]


def test_a_range_that_ends_among_markers(broker, topic, read):
    for _ in range(3):
        broker.transaction(topic, ["x"], commit=False)
    broker.transaction(topic, ["y"])
    for end in range(1, 9):
        ends = f'{{"{topic}": {{"0": {end}, "1": 0}}}}'
        assert values(read(endingOffsets=ends)) == ([b"y"] if end > 6 else [])


def test_from_and_to_offsets(broker, topic, read):
    broker.produce(topic, [str(n) for n in range(10)])
    broker.produce(topic, ["other"], partition=1)
    rows = read(
        startingOffsets=f'{{"{topic}": {{"0": 3, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 6, "1": -1}}}}',
    )
    assert sorted(values(rows)) == [b"3", b"4", b"5", b"other"]


def test_from_and_to_times(broker, topic, read):
    for partition in range(2):
        times = [T0 + 10 * n for n in range(10)]
        broker.produce(topic, [f"{partition}{n}" for n in range(10)], timestamps=times, partition=partition)
    rows = read(startingTimestamp=T0 + 35, endingTimestamp=T0 + 60)
    assert sorted(values(rows)) == [b"04", b"05", b"14", b"15"]
    rows = read(
        startingOffsetsByTimestamp=f'{{"{topic}": {{"0": {T0 + 80}, "1": {T0 + 90}}}}}',
        endingOffsetsByTimestamp=f'{{"{topic}": {{"0": {T0 + 90}, "1": {T0 + 1000}}}}}',
    )
    assert sorted(values(rows)) == [b"08", b"19"]


def test_no_record_of_the_starting_time(broker, topic, read):
    broker.produce(topic, ["old"], timestamps=[T0])
    with pytest.raises(NotFoundError, match=f"{topic}-.: there is no record of the time {T0 + 1} ms"):
        read(startingTimestamp=T0 + 1)
    assert read(startingTimestamp=T0 + 1, startingOffsetsByTimestampStrategy="latest") == []


def test_offsets_must_name_the_partitions_that_are_read(topic, read):
    with pytest.raises(OptionError, match=f"leaves out {topic}-1"):
        read(startingOffsets=f'{{"{topic}": {{"0": 0}}}}')
    with pytest.raises(OptionError, match=f"names {topic}-2"):
        read(startingOffsets=f'{{"{topic}": {{"0": 0, "1": 0, "2": 0}}}}')
    with pytest.raises(OptionError, match="the partition ends at offset 0"):
        read(endingOffsets=f'{{"{topic}": {{"0": 1, "1": -1}}}}')


def test_several_topics_by_name_by_pattern_and_single_partitions(broker, topic, reads, read):
    other = broker.new_topic(1, name=f"{topic}.other")
    for name, partition in ((topic, 0), (topic, 1), (other, 0)):
        broker.produce(name, [f"{name}/{partition}"], partition=partition)
    everything = sorted(f"{name}/{p}".encode() for name, p in ((topic, 0), (topic, 1), (other, 0)))
    assert sorted(values(read(subscribe=f"{topic},{other}"))) == everything
    assert sorted(values(read(subscribePattern=f"{topic}.*"))) == everything
    assert {row["topic"] for row in read(subscribePattern=topic)} == {topic}
    assert values(read(assign=f'{{"{topic}": [1]}}')) == [f"{topic}/1".encode()]


def test_topics_that_do_not_exist(broker, topic, read):
    with pytest.raises(NotFoundError, match=f"no topic '{topic}x'(.|\n)*did you mean the topic '{topic}'"):
        read(subscribe=f"{topic}x")
    with pytest.raises(NotFoundError, match=f"no partition '{topic}-7'"):
        read(assign=f'{{"{topic}": [7]}}')


def test_more_tasks_than_partitions(broker, topic, reads):
    broker.produce(topic, [str(n) for n in range(100)])
    mine = reads(broker, topic)
    assert [(r.start, r.end) for r in mine.ranges(minPartitions=4)] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]
    assert [r.size for r in mine.ranges(maxRecordsPerPartition=40)] == [33, 33, 34]
    assert values(mine.batch(minPartitions=7)) == [str(n).encode() for n in range(100)]


@pytest.mark.long
def test_many_rows_in_batches_that_memory_holds(broker, topic, read):
    broker.produce(topic, [b"%06d" % n for n in range(50_000)])
    broker.produce(topic, [b"x" * 900_000 for _ in range(20)], partition=1)
    rows = read()
    assert values(rows)[:50_000] == [b"%06d" % n for n in range(50_000)]
    assert [len(value) for value in values(rows)[50_000:]] == [900_000] * 20


def test_expired_records(broker, topic, read, caplog):
    broker.produce(topic, [str(n) for n in range(10)])
    broker.delete_records(topic, 0, 6)
    assert values(read()) == [b"6", b"7", b"8", b"9"]  # earliest is what there is
    start = f'{{"{topic}": {{"0": 4, "1": 0}}}}'
    with pytest.raises(
        NotFoundError, match=f"{topic}-0: offset 4 was to be read next(.|\n)*failOnDataLoss=false"
    ):
        read(startingOffsets=start)
    assert values(read(startingOffsets=start, failOnDataLoss="false")) == [b"6", b"7", b"8", b"9"]
    assert "2 offsets were removed" in caplog.text
    assert "offsets skipped so far: 2" in caplog.text
