"""What the options say, and what is said of those that say nothing sensible. No broker needed."""

import pickle
from pathlib import Path

import pytest

from anabranch.errors import OptionError
from anabranch.kafka.client import ClientConfig
from anabranch.kafka.offsets import EARLIEST, LATEST, TopicPartition
from anabranch.kafka.options import OPTIONS, Topics, settings_of

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
DOCS = Path(__file__).parents[2] / "docs" / "kafka.md"


def settings(streaming=True, **options):
    given = {key.replace("__", "."): str(value) for key, value in options.items()}
    return settings_of({**SERVERS, "subscribe": "a", **given}, streaming=streaming)


def test_what_to_read():
    assert settings(subscribe=" a, b.c ,a").topics == Topics(names=("a", "b.c"))
    chosen = settings_of({**SERVERS, "ASSIGN": '{"a": [1, 0], "b": [2]}'}, streaming=True)
    places = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))
    assert chosen.topics == Topics(partitions=places)
    pattern = settings_of({**SERVERS, "subscribepattern": "fl.*"}, streaming=True).topics
    assert [t for t in ("flights", "fl", "afl", "__consumer_offsets") if pattern.matches(t)] == [
        "flights",
        "fl",
    ]


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning():
    assert settings().start.at == LATEST
    assert settings(streaming=False).start.at == EARLIEST
    assert settings(streaming=False).end.at == LATEST


def test_where_to_begin():
    assert settings(startingOffsets="EARLIEST").start.at == EARLIEST
    assert settings(startingOffsets='{"a": {"0": -2, "1": 7}}').start.at == {
        TopicPartition("a", 0): -2,
        TopicPartition("a", 1): 7,
    }
    assert (settings(startingTimestamp=5).start.at, settings(startingTimestamp=5).start.by_time) == (5, True)
    by_time = settings(startingOffsetsByTimestamp='{"a": {"0": 9}}').start
    assert (by_time.at, by_time.by_time) == ({TopicPartition("a", 0): 9}, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": ""}, "no list of topics"),
        ({"startingOffsets": "now"}, "'startingOffsets' is 'now', which is no earliest, latest or JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "'startingOffsets'"),
        ({"startingOffsets": '{"a": 1}'}, "'startingOffsets' is '{\"a\": 1}', which is no"),
        ({"startingOffset": "earliest"}, "no option 'startingOffset'(.|\n)*did you mean 'startingOffsets'"),
        ({"groupIdPrefix": "x"}, "no option 'groupIdPrefix'(.|\n)*kafka.group.id"),
        ({"assign": '{"a": [0]}'}, "'subscribe' and 'assign' are given"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "say different things"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads"),
        ({"maxOffsetsPerTrigger": "0"}, "no whole number above 0"),
        ({"failOnDataLoss": "maybe"}, "no true or false"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "no error or latest"),
        ({"kafka__auto.offset.reset": "latest"}, "cannot be set(.|\n)*startingOffsets"),
        ({"kafka__sasl.jaas.config": "x"}, "setting of the Java client(.|\n)*sasl.username"),
        ({"kafka__bootstrap.servers": " "}, "where the brokers are"),
    ],
)
def test_what_cannot_be_meant_is_told(options, message):
    with pytest.raises(OptionError, match=message):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "may not be latest"),
        ({"endingOffsets": "earliest"}, "may not be earliest"),
        ({"maxOffsetsPerTrigger": "5"}, "is for streams"),
    ],
)
def test_what_a_batch_read_cannot_mean_is_told(options, message):
    with pytest.raises(OptionError, match=message):
        settings(streaming=False, **options)


def test_something_to_read_must_be_named():
    with pytest.raises(OptionError, match="not told what to read"):
        settings_of(SERVERS, streaming=True)
    with pytest.raises(OptionError, match="no regular expression"):
        settings_of({**SERVERS, "subscribePattern": "a("}, streaming=True)


def test_settings_the_client_does_not_know_are_told():
    pytest.importorskip("confluent_kafka")
    with pytest.raises(OptionError, match=r"no.such.setting"):
        ClientConfig.of({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"}).connect()


def test_secrets_travel_but_are_never_shown():
    given = settings(kafka__sasl__password="hunter2", kafka__ssl__key__password="geheim")
    again = pickle.loads(pickle.dumps(given))
    assert dict(again.client.settings)["sasl.password"] == "hunter2"
    assert "hunter2" not in f"{given!r} {given} {again.client!r}"
    pytest.importorskip("confluent_kafka")
    with pytest.raises(OptionError) as caught:
        settings(kafka__sasl__password="hunter2", kafka__security__protocol="nope").client.connect()
    assert "hunter2" not in str(caught.value)


def test_every_option_is_documented():
    text = DOCS.read_text()
    assert [option.key for option in OPTIONS if f"| `{option.key}` |" not in text] == []
