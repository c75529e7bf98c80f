"""The definition of a watermark: in SQL, in the options of a table, and through changes of the schema."""

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import AnabranchError, OptionError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.change import (
    DropColumn,
    RemoveOption,
    RenameColumn,
    SetNullable,
    SetOption,
    apply_changes,
)
from anabranch.format.schema.ddl import parse_column_list, parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import (
    DATA_TYPE,
    EXPRESSION,
    ROWTIME,
    WatermarkDefinition,
    watermark_definition,
    with_watermark,
)
from anabranch.format.text.tokens import Tokens, interval_text, read_interval

COLUMNS = "id BIGINT, ts TIMESTAMP(3) NOT NULL, at TIMESTAMP(9) WITH LOCAL TIME ZONE, v STRING"
FIVE_SECONDS = {ROWTIME: "ts", EXPRESSION: "`ts` - INTERVAL '5' SECOND"}


def create(columns=COLUMNS, **options):
    listed = parse_column_list(columns)
    options = with_watermark(listed.fields, listed.watermark, options)
    return TableSchema.create(listed.fields, options=options, time_millis=0)


def foreign(**options):
    """A table that another engine made."""
    made = create()
    return replace(made, options={**made.options, **options})


def changed(schema, *changes):
    return apply_changes(schema, changes, time_millis=1, has_snapshots=True)


@pytest.mark.parametrize(
    ("delay", "millis"),
    [
        ("", 0),
        ("- INTERVAL '5' SECOND", 5_000),
        ("- interval '5' seconds", 5_000),
        ("- INTERVAL 5 MINUTES", 300_000),
        ("- INTERVAL '0.25' SECOND", 250),
        ("- INTERVAL '0.0001' SECOND", 1),
        ("- INTERVAL '250' MILLISECOND", 250),
        ("- INTERVAL '1' WEEK", 604_800_000),
        ("- INTERVAL '120' DAY(3)", 120 * 86_400_000),
        ("- INTERVAL '7.5' SECOND(2, 1)", 7_500),
        ("- INTERVAL '00:05' HOUR TO MINUTE", 300_000),
        ("- INTERVAL '01:02.5' MINUTE TO SECOND(1)", 62_500),
        ("- INTERVAL '1 02:03:04' DAY TO SECOND", 93_784_000),
        ("- INTERVAL '2 3' DAY TO HOUR", 183_600_000),
        ("- INTERVAL '+3' HOUR", 10_800_000),
        ("- INTERVAL '-0' HOUR", 0),
    ],
)
def test_a_watermark_is_the_column_less_a_fixed_time(delay, millis):
    schema = create(f"{COLUMNS}, WATERMARK FOR ts AS ts {delay}")
    assert watermark_definition(schema) == WatermarkDefinition("ts", millis)
    assert schema.options[ROWTIME] == "ts"
    assert schema.options[DATA_TYPE] == "TIMESTAMP(3) NOT NULL"
    assert [f.name for f in schema.fields] == ["id", "ts", "at", "v"]


def test_the_options_are_spelled_as_other_engines_read_them():
    columns = "`order time` TIMESTAMP(3), watermark for `order time` as `order time` - INTERVAL '5' SECOND, watermark INT"
    schema = create(columns)
    assert dict(schema.options) == {
        "schema.watermark.0.rowtime": "order time",
        "schema.watermark.0.strategy.expr": "`order time` - INTERVAL '5' SECOND",
        "schema.watermark.0.strategy.data-type": "TIMESTAMP(3)",
    }
    assert watermark_definition(schema) == WatermarkDefinition("order time", 5_000)


@given(st.integers(0, 400 * 86_400_000))
def test_a_length_of_time_survives_its_text(millis):
    text = interval_text(millis)
    assert read_interval(Tokens(text)) == millis
    number, unit = text.split("'")[1], text.rpartition(" ")[2]
    digits = len(number.partition(".")[0])
    assert unit.endswith(f"({digits})") == (digits > 2), "others allow two digits unless the unit says more"


@pytest.mark.parametrize(
    ("clause", "error", "message"),
    [
        ("WATERMARK FOR tz AS tz", SchemaError, "'tz', which is no column"),
        ("WATERMARK FOR v AS v", SchemaError, "'v', which is STRING"),
        ("WATERMARK FOR ts AS at - INTERVAL '5' SECOND", SchemaError, "computed from 'at'"),
        ("WATERMARK FOR ts AS ts - INTERVAL '-5' SECOND", SchemaError, "negative"),
        ("WATERMARK FOR ts AS ts - INTERVAL '4000' DAY", SchemaError, "4,000 days"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1' MONTH", SchemaError, "no fixed length"),
        ("WATERMARK FOR ts AS ts - INTERVAL '5' PARSEC", SchemaError, "a unit of time, found 'PARSEC'"),
        ("WATERMARK FOR ts AS ts - INTERVAL 'soon' SECOND", SchemaError, "'soon' is no number"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1.5' HOUR", SchemaError, "'1.5' is no number of hours"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1:60' HOUR TO MINUTE", SchemaError, "'60' is too many"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE TO HOUR", SchemaError, "larger unit last"),
        ("WATERMARK FOR ts AS ts - INTERVAL '1:2' DAY TO SECOND", SchemaError, "is not DAY TO SECOND"),
        ("WATERMARK FOR ts AS ts - 5", SchemaError, "expected INTERVAL, found '5'"),
        ("WATERMARK FOR ts", SchemaError, "expected AS"),
        ("WATERMARK FOR ts AS ts, WATERMARK FOR at AS at", SchemaError, "second WATERMARK"),
        ("WATERMARK FOR ts AS ts + INTERVAL '5' SECOND", UnsupportedFeatureError, "not implemented"),
        ("WATERMARK FOR ts AS TO_TIMESTAMP(v)", UnsupportedFeatureError, "not implemented"),
    ],
)
def test_another_watermark_is_refused_before_anything_is_made(clause, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")) as caught:
        create(f"{COLUMNS}, {clause}")
    if not isinstance(caught.value, SchemaError):
        assert caught.value.feature == "watermark-expression"


def test_only_a_table_has_a_watermark():
    with pytest.raises(SchemaError, match="only the columns of a table"):
        parse_columns(f"{COLUMNS}, WATERMARK FOR ts AS ts")


@given(st.text("tsINERVAL' 50-+().:DAYSCOHMTU`", max_size=30))
def test_any_expression_is_understood_or_refused(text):
    schema = foreign(**{ROWTIME: "ts", EXPRESSION: text})
    assert watermark_definition(schema) is None or "ts" in text
    try:
        create(**{ROWTIME: "ts", EXPRESSION: text})
    except AnabranchError:
        assert watermark_definition(schema) is None
    else:
        assert watermark_definition(schema) is not None


# By options


def test_options_define_it_as_well():
    schema = create(**FIVE_SECONDS)
    assert watermark_definition(schema) == WatermarkDefinition("ts", 5_000)
    assert schema.options[DATA_TYPE] == "TIMESTAMP(3) NOT NULL", "other engines expect it"
    local = create(**{ROWTIME: "at", EXPRESSION: "at"})
    assert local.options[DATA_TYPE] == "TIMESTAMP(9) WITH LOCAL TIME ZONE"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({ROWTIME: "ts"}, "not complete: option 'schema.watermark.0.strategy.expr' is not set"),
        ({EXPRESSION: "ts"}, "not complete: option 'schema.watermark.0.rowtime' is not set"),
        ({DATA_TYPE: "TIMESTAMP(3)"}, "not complete"),
        ({ROWTIME: "ts", EXPRESSION: "at - INTERVAL '5' SECOND"}, "another column than"),
        ({**FIVE_SECONDS, "schema.watermark.1.rowtime": "at"}, "unknown option 'schema.watermark.1.rowtime'"),
        ({**FIVE_SECONDS, "schema.watermark.0.delay": "5 s"}, "a table has one watermark"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(OptionError) as caught:
        create(**options)
    assert message in str(caught.value)
    with pytest.raises(OptionError) as caught:
        changed(create(), *(SetOption(key, value) for key, value in options.items()))
    assert message in str(caught.value)


def test_it_is_defined_once():
    with pytest.raises(OptionError, match="defined twice"):
        create(f"{COLUMNS}, WATERMARK FOR ts AS ts", **FIVE_SECONDS)


# Tables of other engines


@pytest.mark.parametrize(
    "options",
    [
        {ROWTIME: "ts", EXPRESSION: "my_udf(ts)"},
        {ROWTIME: "ts", EXPRESSION: "`ts` + INTERVAL '5' SECOND"},
        {ROWTIME: "ts", EXPRESSION: "`ts"},
        {ROWTIME: "ts"},
        {ROWTIME: "gone", EXPRESSION: "gone - INTERVAL '5' SECOND"},
        {ROWTIME: "id", EXPRESSION: "id"},
        {EXPRESSION: "ts"},
    ],
)
def test_what_another_engine_means_is_left_to_it_and_said_once(options, caplog):
    schema = foreign(**options, **{"test.unique": str(sorted(options.items()))})
    with caplog.at_level(logging.WARNING):
        assert [watermark_definition(schema) for _ in range(3)] == [None] * 3
    assert caplog.text.count("is ignored") <= 1
    assert watermark_definition(TableSchema.from_json(schema.to_json(), path="schema-0")) is None
    altered = changed(schema, SetOption("write-only", "true"))
    assert {**schema.options, "write-only": "true"} == altered.options


# Changes of the schema


def test_a_renamed_column_stays_the_event_time():
    schema = changed(
        create(f"{COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '90' SECOND"), RenameColumn("ts", "or`der")
    )
    assert watermark_definition(schema) == WatermarkDefinition("or`der", 90_000)
    assert schema.options[EXPRESSION] == "`or``der` - INTERVAL '90' SECOND"
    other = changed(schema, RenameColumn("v", "w"))
    assert watermark_definition(other) == watermark_definition(schema)


def test_a_column_of_a_watermark_that_is_not_understood_keeps_its_name():
    schema = foreign(**{ROWTIME: "ts", EXPRESSION: "my_udf(ts)"})
    with pytest.raises(SchemaError, match="not understood here"):
        changed(schema, RenameColumn("ts", "t2"))
    assert changed(schema, RenameColumn("v", "w")).options[EXPRESSION] == "my_udf(ts)"


def test_the_event_time_is_dropped_only_with_its_watermark():
    schema = create(f"{COLUMNS}, WATERMARK FOR ts AS ts")
    with pytest.raises(SchemaError, match="the watermark of the table is defined by it") as caught:
        changed(schema, DropColumn("ts"))
    assert ROWTIME in caught.value.hint
    without = changed(schema, RemoveOption(ROWTIME), RemoveOption(EXPRESSION), DropColumn("ts"))
    assert not any(key.startswith("schema.watermark") for key in without.options)
    with pytest.raises(OptionError, match="not complete"):
        changed(schema, RemoveOption(EXPRESSION))


def test_a_definition_can_come_and_change_later():
    schema = changed(create(), *(SetOption(key, value) for key, value in FIVE_SECONDS.items()))
    assert watermark_definition(schema) == WatermarkDefinition("ts", 5_000)
    later = changed(schema, SetOption(EXPRESSION, "ts - INTERVAL '1' HOUR"))
    assert watermark_definition(later) == WatermarkDefinition("ts", 3_600_000)
    nullable = changed(later, SetNullable("ts"))
    assert nullable.options[DATA_TYPE] == "TIMESTAMP(3)"
    with pytest.raises(UnsupportedFeatureError):
        changed(schema, SetOption(EXPRESSION, "ts + INTERVAL '1' HOUR"))
