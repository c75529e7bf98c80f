"""Values that a schema registry describes, written by the serializers of its own client."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from anabranch.errors import InvalidInputError, OptionError, StorageError
from anabranch.kafka.options import settings_of
from tests.support.registry import running_registry

COLUMNS = "id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3), z TIMESTAMP_LTZ(3), tags ARRAY<STRING>"


@pytest.fixture(scope="module")
def registry():
    pytest.importorskip("confluent_kafka.schema_registry")
    with running_registry() as url:
        yield url


@pytest.fixture
def topic(broker):
    return broker.new_topic(1)


def avro(registry, topic, fields, value):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    write = AvroSerializer(SchemaRegistryClient({"url": registry}), schema)
    return write(value, SerializationContext(topic, MessageField.VALUE))


def rows(reads, broker, topic, registry, format="avro", **more):
    given = {"value.format": format, "value.schema": COLUMNS, "value.schema-registry.url": registry, **more}
    options = {key.replace(".", "__"): value for key, value in given.items()}
    return [row["row"] for row in reads(broker, topic).batch(**options)]


def test_versions_of_a_schema_go_into_the_columns_of_the_table(broker, topic, reads, registry):
    first = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]
    logical = {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 3}
    second = [
        {"name": "gone", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": price},
        {"name": "at", "type": local},
        {"name": "z", "type": logical},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ]
    noon = dt.datetime(2026, 1, 31, 12)
    value = {
        "gone": "x", "id": 2**40, "name": None, "price": Decimal("1.125"), "at": noon,
        "z": noon.replace(tzinfo=dt.UTC), "tags": ["a"],
    }  # fmt: skip
    sent = [avro(registry, topic, first, {"id": 1, "name": "tea"}), avro(registry, topic, second, value)]
    broker.produce(topic, sent)
    assert rows(reads, broker, topic, registry) == [
        {"id": 1, "name": "tea", "price": None, "at": None, "z": None, "tags": None},
        {
            "id": 2**40, "name": None, "price": Decimal("1.13"), "at": noon,
            "z": noon.replace(tzinfo=dt.UTC), "tags": ["a"],
        },
    ]  # fmt: skip


def test_json_with_a_schema(broker, topic, reads, registry):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
    write = JSONSerializer(schema, SchemaRegistryClient({"url": registry}))
    broker.produce(topic, [write({"id": 7, "name": "tea"}, SerializationContext(topic, MessageField.VALUE))])
    assert rows(reads, broker, topic, registry, format="json")[0]["id"] == 7


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with the number of a schema"),
        (b'{"id": 1}', "does not begin with the number of a schema"),
        (b"\0\0\0\x27\x0fxx", "is of schema 9999, which the registry does not have"),
        ("cut", "is no Avro of its schema"),
        ("longer", "is longer than its schema says"),
        ("text", "has a wrong 'id', which is text"),
    ],
)
def test_what_is_no_value_of_its_schema(broker, topic, reads, registry, value, reason):
    good = avro(
        registry,
        topic,
        [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}],
        {"id": 1, "s": "abc"},
    )
    text = avro(registry, topic, [{"name": "id", "type": "string"}], {"id": "x"})
    broker.produce(topic, [{"cut": good[:-2], "longer": good + b"x", "text": text}.get(value, value)])
    with pytest.raises(InvalidInputError, match=f"at offset 0 cannot be read as .*{reason}"):
        rows(reads, broker, topic, registry)


def test_a_registry_that_does_not_answer_is_no_reason_to_leave_records_out(broker, topic, reads):
    broker.produce(topic, [b"\0\0\0\0\1x"])
    more = {"value.on-error": "skip", "value.schema-registry.max.retries": "0"}
    with pytest.raises(StorageError, match="schema registry at http://127.0.0.1:9 did not tell schema 1"):
        rows(reads, broker, topic, "http://127.0.0.1:9", **more)


def test_avro_needs_a_registry(reads, broker):
    given = {**reads(broker, "t").options(), "value.format": "avro", "value.schema": "a INT"}
    with pytest.raises(OptionError, match="avro needs a schema registry"):
        settings_of(given, streaming=True)
