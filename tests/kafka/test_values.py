"""Values of records as rows: read strictly, or told with topic, partition, offset and first bytes."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from anabranch.errors import InvalidInputError, OptionError, UnsupportedFeatureError

ORDER = "id BIGINT NOT NULL, `user` STRING, at TIMESTAMP(3)"


@pytest.fixture
def topic(broker):
    return broker.new_topic(1)


@pytest.fixture
def rows(broker, topic, reads):
    def read(values, schema=ORDER, **options):
        broker.produce(topic, values)
        given = {"value__format": "json", "value__schema": schema, **options}
        return [row["row"] for row in reads(broker, topic).batch(**given)]

    return read


def test_json_by_the_names_of_columns(rows):
    schema = (
        "i TINYINT, d DECIMAL(6, 2), f DOUBLE, t STRING, b BYTES, day DATE, at TIMESTAMP(3), z TIMESTAMP_LTZ(6), "
        "a ARRAY<INT>, m MAP<STRING, BIGINT>, r ROW<x BOOLEAN, y STRING>"
    )
    value = {
        "i": -128, "d": 12.345, "f": 1, "t": {"k": [1, "ä"]}, "b": "aGk=", "day": "2026-01-31",
        "at": "2026-01-31 23:59:59.999", "z": "2026-01-31T12:00:00", "a": [1, None], "m": {"k": 1},
        "r": {"x": True, "unknown": 1}, "unknown": 1,
    }  # fmt: skip
    found, none = rows(
        [json.dumps(value, ensure_ascii=False), None], schema, value__time_zone="Europe/Berlin"
    )
    assert none is None
    assert found == {
        "i": -128, "d": Decimal("12.35"), "f": 1.0, "t": '{"k":[1,"ä"]}', "b": b"hi", "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 23, 59, 59, 999000), "z": dt.datetime(2026, 1, 31, 11, tzinfo=dt.UTC),
        "a": [1, None], "m": [("k", 1)], "r": {"x": True, "y": None},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "is no JSON"),
        (b"   ", "is no JSON"),
        (b'{"id": 1} x', "is no JSON \\(Extra data"),
        (b'{"id": 1}{"id": 2}', "is no JSON \\(Extra data"),
        (b'{"id": NaN}', "NaN is no number of JSON"),
        (b"[1]", "is an array, and no object"),
        (b"null", "is null, and no object"),
        (b"{}", "has none of the columns"),
        (b'{"ID": 1}', "has none of the columns id, at, user|has none of the columns .*, but the key 'ID'"),
        (b'{"id": 1, "User": "a"}', "has the key 'User', and the column is 'user'"),
        (b'{"user": "a"}', "has no value for 'id', which is NOT NULL"),
        (b'{"id": "1"}', "has a wrong 'id', which is text, and no whole number"),
        (b'{"id": 1.0}', "has a wrong 'id', which is a number, and no whole number"),
        (b'{"id": true}', "has a wrong 'id', which is a boolean"),
        (b'{"id": 9223372036854775808}', "has a wrong 'id', which does not fit into 64 bits"),
        (b'{"id": 1, "at": "yesterday"}', "has a wrong 'at', which is no time such as"),
        (b'{"id": 1, "at": "2026-01-01T00:00:00Z"}', "has a wrong 'at', which has a zone"),
        (b'{"id": 1, "user": "\\ud800"}', "has a wrong 'user', which has half a character"),
        (b'\xff\xfe{"id": 1}', "is no text in UTF-8"),
        (b"[" * 100_000, "is nested too deep|is no JSON"),
        (b'{"id": ' + b"1" * 5000 + b"}", "is no JSON"),
    ],
)
def test_what_is_no_row_is_told(rows, topic, value, reason):
    beginning = repr(value[:20])[2:-1].replace("\\", "\\\\")
    with pytest.raises(InvalidInputError) as caught:
        rows([b'{"id": 0}', value])
    assert (
        f"the record of topic '{topic}', partition 0, at offset 1 cannot be read as json"
        in caught.value.message
    )
    assert pytest.importorskip("re").search(reason, caught.value.message)
    assert repr(value[:20])[2:-1] in caught.value.message, beginning
    assert "value.on-error" in caught.value.hint


def test_what_is_no_row_is_left_out_and_counted(rows, topic, caplog):
    found = rows([b'{"id": 0}', b"x", b'{"id": 1}', b"", b'{"id": 2}'], value__on_error="skip")
    assert [row["id"] for row in found] == [0, 1, 2]
    assert f"2 records of {topic}-0 were left out; the first: the record" in caplog.text


def test_csv_by_places(rows):
    found = rows(['1,"a, b",2026-01-31 00:00:00', "2,,\n"], value__format="csv")
    assert found == [
        {"id": 1, "user": "a, b", "at": dt.datetime(2026, 1, 31)},
        {"id": 2, "user": None, "at": None},
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("1,a", "has 2 values for 3 columns"),
        ("1,a,,", "has 4 values for 3 columns"),
        (",a,", "has no value for 'id'"),
        ("1\n2", "is 2 lines"),
        ('1,"a,', "is no CSV"),
        ("x,a,", "has a wrong 'id', which is no whole number"),
    ],
)
def test_what_is_no_line_of_csv_is_told(rows, value, reason):
    with pytest.raises(InvalidInputError, match=reason):
        rows([value], value__format="csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.schema": "a INT"}, "without 'value.format'"),
        ({"value.format": "json"}, "without 'value.schema'"),
        ({"value.format": "xml", "value.schema": "a INT"}, "value.format"),
        ({"value.format": "json", "value.schema": "a INT", "value.time-zone": "Nowhere"}, "no time zone"),
        (
            {"value.format": "json", "value.schema": "a INT", "value.on-error": "dead-letter"},
            "dead-letter.table",
        ),
    ],
)
def test_options_that_do_not_fit(reads, broker, options, message):
    from anabranch.kafka.options import settings_of

    with pytest.raises(OptionError, match=message):
        settings_of({**reads(broker, "t").options(), **options}, streaming=True)


def test_types_that_values_cannot_have(reads, broker):
    from anabranch.kafka.options import settings_of

    for format, schema in (("csv", "a ARRAY<INT>"), ("json", "a MAP<INT, INT>")):
        given = {**reads(broker, "t").options(), "value.format": format, "value.schema": schema}
        with pytest.raises(UnsupportedFeatureError):
            settings_of(given, streaming=True)
