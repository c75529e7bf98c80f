"""A topic that is deleted and made anew is another topic, whatever its offsets are: on a broker that tells ids of topics."""

import json

import pytest

from anabranch.errors import NotFoundError
from anabranch.jobs.source import check_kept, check_rereadable
from anabranch.jobs.source import topic as topic_source
from anabranch.kafka import fetch
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between
from tests.support.broker import broker_with_ids

SKIP = {"failOnDataLoss": "false"}


@pytest.fixture(scope="module")
def ids_broker(tmp_path_factory):
    with broker_with_ids(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topic(ids_broker):
    return ids_broker.new_topic(1)


@pytest.fixture
def mine(reads, ids_broker, topic):
    return reads(ids_broker, topic)


def send(broker, topic, *numbers):
    for n in numbers:  # this broker counts what came together as one when it is asked for the end
        broker.produce(topic, [str(n).encode()])


def made_anew(broker, topic, stream, *numbers):
    """The stream ends first: the client library dies of what this broker answers about a topic that it knew."""
    stream.reader.stop()
    while fetch._kept:
        fetch._kept.popitem()[1].close()
    broker.delete_topic(topic)
    broker._drop_producers()
    broker.new_topic(1, name=topic)
    send(broker, topic, *numbers)


def test_the_id_is_in_the_offsets_and_a_restart_keeps_it(ids_broker, topic, mine):
    send(ids_broker, topic, 0, 1)
    stream = mine.stream(startingOffsets="earliest")
    start = stream.begin()
    assert len(start[topic]["id"]) == 22
    values, end = stream.follow(start)
    assert values == [b"0", b"1"]
    assert end == {topic: {"0": 2, "id": start[topic]["id"]}}
    send(ids_broker, topic, 2)
    assert mine.stream().follow(end)[0] == [b"2"]


def test_a_topic_made_anew_is_an_error_even_if_it_has_grown_beyond_the_position(ids_broker, topic, mine):
    send(ids_broker, topic, 0, 1)
    stream = mine.stream(startingOffsets="earliest")
    start = stream.begin()
    _, end = stream.follow(start)
    made_anew(ids_broker, topic, stream, 10, 11, 12, 13)
    for again in (stream, mine.stream()):
        with pytest.raises(
            NotFoundError, match=f"topic '{topic}' was deleted and made anew(.|\n)*failOnDataLoss"
        ):
            again.next(end)
    with pytest.raises(NotFoundError, match="made anew"):  # a batch that is repeated
        mine.stream().rows(start, end)
    going_on = mine.stream(**SKIP)
    assert going_on.rows(start, end) == []
    entered = going_on.next(end)
    assert entered[topic]["0"] == 0
    assert going_on.rows(end, entered) == []
    assert going_on.follow(entered)[0] == [b"10", b"11", b"12", b"13"]


def test_positions_of_lineage_have_it_and_jobs_do_not_begin_in_another_topic(ids_broker, topic, mine):
    send(ids_broker, topic, 0, 1)
    stream = mine.stream(startingOffsets="earliest")
    start = stream.begin()
    _, end = stream.follow(start)
    (found,) = inputs_between(BatchOffsets({}, {"0": start}), BatchOffsets({}, {"0": end}))
    assert (found.kind, found.end) == ("kafka", end)
    source, begin = topic_source(topic, ids_broker.bootstrap), json.dumps(end)
    check_kept(source, {"startingOffsets": begin})
    again = mine.stream(startingOffsets=begin)
    assert again.begin() == end
    again.reader.stop()
    made_anew(ids_broker, topic, stream, 10, 11, 12)
    with pytest.raises(NotFoundError, match=f"topic '{topic}' was deleted and made anew"):
        check_kept(source, {"startingOffsets": begin})
    with pytest.raises(NotFoundError, match="made anew"):
        check_rereadable(source, begin)
    with pytest.raises(NotFoundError, match="made anew"):
        mine.stream(startingOffsets=begin).begin()
    going_on = mine.stream(startingOffsets=begin, **SKIP)
    assert going_on.follow(going_on.begin())[0] == [b"10", b"11", b"12"]
