"""Types as text, as JSON and as Arrow types."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, SchemaError, UnsupportedFeatureError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import (
    fields_from_arrow,
    from_arrow_type,
    to_arrow_schema,
    to_arrow_type,
)
from anabranch.format.types.field_tree import SYSTEM_FIELD_IDS_START, assign_field_ids
from anabranch.format.types.grammar import MAX_DEPTH, parse_sql_type, parse_type, type_to_json

from .schema_values import ATOMIC_TYPES, JSON_VALUES, NAMES, TYPES, attempt, deep_json

WHERE = "schema/schema-0"


def read(value):
    return parse_type(value, where=WHERE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", t.BooleanType()),
        ("tinyint", t.TinyIntType()),
        ("SmallInt NOT NULL", t.SmallIntType(nullable=False)),
        ("INT NULL", t.IntType()),
        ("INTEGER", t.IntType()),
        ("BIGINT  not  null ", t.BigIntType(nullable=False)),
        ("FLOAT", t.FloatType()),
        ("DOUBLE PRECISION NOT NULL", t.DoubleType(nullable=False)),
        ("DATE", t.DateType()),
        ("STRING", t.VarCharType(2147483647)),
        ("CHAR", t.CharType(1)),
        ("CHAR(5)", t.CharType(5)),
        ("VARCHAR", t.VarCharType(1)),
        ("VARCHAR( 12 )", t.VarCharType(12)),
        ("BYTES", t.VarBinaryType(2147483647)),
        ("BINARY", t.BinaryType(1)),
        ("VARBINARY(9)", t.VarBinaryType(9)),
        ("DECIMAL", t.DecimalType(10, 0)),
        ("DEC(7)", t.DecimalType(7, 0)),
        ("NUMERIC(38,38)", t.DecimalType(38, 38)),
        ("DECIMAL(10, 2)", t.DecimalType(10, 2)),
        ("TIME", t.TimeType(0)),
        ("TIME(3) WITHOUT TIME ZONE", t.TimeType(3)),
        ("TIMESTAMP", t.TimestampType(6)),
        ("TIMESTAMP(0) WITHOUT TIME ZONE NOT NULL", t.TimestampType(0, nullable=False)),
        ("TIMESTAMP WITH LOCAL TIME ZONE", t.LocalZonedTimestampType(6)),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", t.LocalZonedTimestampType(9)),
        ("TIMESTAMP_LTZ(3)", t.LocalZonedTimestampType(3)),
    ],
)
def test_atomic_types_are_read_alike_from_files_and_from_sql(text, expected):
    assert read(text) == expected
    assert parse_sql_type(text) == expected


@pytest.mark.parametrize(
    "text",
    ["STRING", "BYTES", "DECIMAL(10, 2)", "TIME(0)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
     "VARCHAR(3)", "DOUBLE", "INT NOT NULL"],
)  # fmt: skip
def test_the_spelling_of_files_is_kept(text):
    assert type_to_json(read(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "FOO", "INT INT", "NOT NULL", "INT NOT", "INT(3)", "CHAR(0)", "CHAR(2147483648)", "VARCHAR(-1)",
     "DECIMAL(0, 0)", "DECIMAL(39, 0)", "DECIMAL(3, 4)", "DECIMAL(3", "TIME(10)", "TIMESTAMP(10)", "`INT`", "'INT'",
     "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_LTZ WITH LOCAL TIME ZONE", "BIGINT;", "VARCHAR(99999999999999999999)"],
)  # fmt: skip
def test_text_that_is_no_type_is_refused(text):
    with pytest.raises(SchemaError):
        parse_sql_type(text)
    with pytest.raises(CorruptTableError) as caught:
        read(text)
    assert WHERE in str(caught.value)


@pytest.mark.parametrize("name", ["VARIANT", "BLOB", "VECTOR", "GEOMETRY", "GEOGRAPHY"])
def test_newer_types_are_refused_by_name(name):
    feature = f"type-{name.lower()}"
    for call in (lambda: read(f"{name}(3) NOT NULL"), lambda: read({"type": name, "element": "FLOAT"})):
        with pytest.raises(UnsupportedFeatureError, match=WHERE) as caught:
            call()
        assert caught.value.feature == feature
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_sql_type(f"ARRAY<{name}>")
    assert caught.value.feature == feature


def test_nested_types_of_files():
    row = {
        "type": "ROW NOT NULL",
        "fields": [
            {"id": 3, "name": "a", "type": "INT", "description": "why"},
            {"id": 4, "name": "m", "type": {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"}},
            {"id": 5, "name": "s", "type": {"type": "MULTISET NOT NULL", "element": "DATE"}},
        ],
    }
    expected = t.RowType(
        (
            t.Field(3, "a", t.IntType(), "why"),
            t.Field(4, "m", t.MapType(t.VarCharType(nullable=False), t.BigIntType())),
            t.Field(5, "s", t.MultisetType(t.DateType(), nullable=False)),
        ),
        nullable=False,
    )
    assert read({"type": "ARRAY", "element": row}) == t.ArrayType(expected)
    assert type_to_json(t.ArrayType(expected)) == {"type": "ARRAY", "element": row}


def test_a_key_nullable_beside_the_type_is_ignored():
    assert read({"type": "ARRAY", "element": "INT", "nullable": False}) == t.ArrayType(t.IntType())


@pytest.mark.parametrize(
    "value",
    [None, 1, [], {}, {"type": 1}, {"type": "INT"}, {"type": "ARRAY"}, {"type": "ARRAY", "element": None},
     {"type": "MAP", "key": "INT"}, {"type": "ROW"}, {"type": "ROW", "fields": {}}, {"type": "ROW", "fields": [1]},
     {"type": "ROW", "fields": [{"id": 1, "type": "INT"}]}, {"type": "ROW", "fields": [{"name": "a", "type": "INT"}]},
     {"type": "ROW", "fields": [{"id": True, "name": "a", "type": "INT"}]},
     {"type": "ROW", "fields": [{"id": 2**31, "name": "a", "type": "INT"}]},
     {"type": "ROW", "fields": [{"id": 1, "name": "", "type": "INT"}]}, {"type": "ARRAY<INT>", "element": "INT"},
     {"type": "STRUCT", "fields": []}, "ARRAY", "ARRAY<INT>"],
)  # fmt: skip
def test_json_that_is_no_type_is_refused(value):
    with pytest.raises(CorruptTableError, match=WHERE):
        read(value)


def test_a_broken_inner_type_is_located():
    column = {"id": 0, "name": "b", "type": {"type": "ARRAY", "element": "NOPE"}}
    with pytest.raises(CorruptTableError, match=r"b\.element: there is no type 'NOPE'"):
        read({"type": "ROW", "fields": [column]})


@pytest.mark.parametrize("levels", [101, 1000, 100_000])
def test_deep_types_are_refused_and_nothing_overflows(levels):
    with pytest.raises(SchemaError, match="deep"):
        parse_sql_type("ARRAY<" * levels + "INT" + ">" * levels)
    if levels < 500:
        deep = json.loads(deep_json(levels, '{"type":"ARRAY","element":', "}", '"INT"'))
        with pytest.raises(CorruptTableError, match="deep"):
            read(deep)


def test_types_at_the_limit_survive_everything():
    text = "STRUCT<f: " * (MAX_DEPTH - 1) + "INT" + ">" * (MAX_DEPTH - 1)
    deep = parse_sql_type(text)
    assert parse_sql_type(str(deep)) == deep
    (numbered,), highest = assign_field_ids([t.Field(-1, "c", deep)])
    assert highest == MAX_DEPTH - 1
    assert read(json.loads(json.dumps(type_to_json(numbered.type)))) == numbered.type
    assert pickle.loads(pickle.dumps(deep)) == deep
    assert from_arrow_type(to_arrow_type(deep)) == deep
    assert hash(deep) == hash(parse_sql_type(text))


def test_sql_spellings_of_nested_types():
    expected = t.RowType(
        (
            t.Field(-1, "a", t.IntType(nullable=False)),
            t.Field(-1, "b c", t.ArrayType(t.VarCharType()), "it's"),
            t.Field(-1, "d", t.MapType(t.VarCharType(), t.TimestampType())),
        ),
        nullable=False,
    )
    for text in (
        "STRUCT<a: INT NOT NULL, `b c`: ARRAY<STRING> COMMENT 'it''s', d: MAP<STRING, TIMESTAMP_NTZ>> NOT NULL",
        "row(a int not null, `b c` array<string> 'it''s', d map<string,timestamp>) not null",
    ):
        assert parse_sql_type(text) == expected
    assert parse_sql_type("MULTISET<INT NOT NULL>") == t.MultisetType(t.IntType(nullable=False))
    assert parse_sql_type("ROW<>") == t.RowType(())


@pytest.mark.parametrize(
    ("text", "position"),
    [("ARRAY<INT", 10), ("ARRAY INT", 7), ("MAP<INT>", 8), ("ROW<a INT b INT>", 11), ("ROW<a INT,>", 11),
     ("ROW<1 INT>", 5), ("ROW<`a INT>", 5), ("ARRAY<INT>>", 11), ("INT $", 5)],
)  # fmt: skip
def test_errors_in_sql_types_name_the_position(text, position):
    with pytest.raises(SchemaError, match=rf"character {position} of"):
        parse_sql_type(text)


@given(TYPES)
def test_types_survive_json(data_type):
    (column,), _ = assign_field_ids([t.Field(-1, "c", data_type)])
    assert read(json.loads(json.dumps(type_to_json(column.type)))) == column.type


@given(ATOMIC_TYPES)
def test_atomic_types_survive_sql(data_type):
    assert parse_sql_type(str(data_type)) == data_type


@given(JSON_VALUES)
def test_any_json_is_a_type_or_refused(value):
    _, error = attempt(lambda: read(value))
    assert error is None or isinstance(error, CorruptTableError | UnsupportedFeatureError)
    assert error is None or error.path == WHERE


@given(st.text(max_size=30) | st.text("ARYMPOWINTSUC<>(),:`' 12", max_size=30))
def test_any_text_is_a_sql_type_or_refused(text):
    _, error = attempt(lambda: parse_sql_type(text))
    assert error is None or isinstance(error, SchemaError | UnsupportedFeatureError)


# Field ids


def test_ids_are_given_to_columns_first_and_inside_rows_last():
    columns = [
        t.Field(-1, "k", t.BigIntType()),
        t.Field(7, "rw", parse_sql_type("ROW<x INT, y ARRAY<ROW<z STRING>>>")),
        t.Field(-1, "m", parse_sql_type("MAP<ROW<a INT>, ROW<b INT>>")),
    ]
    numbered, highest = assign_field_ids(columns)
    ids = {f.name: f.id for f in t.walk_fields(numbered)}
    assert ids == {"k": 0, "rw": 1, "x": 2, "z": 3, "y": 4, "m": 5, "a": 6, "b": 7}
    assert highest == 7
    assert assign_field_ids(columns, start=23)[0][1].id == 25


def test_ids_of_system_columns_are_never_given():
    column = t.Field(-1, "a", t.IntType())
    assert assign_field_ids([column], SYSTEM_FIELD_IDS_START - 2)[1] == SYSTEM_FIELD_IDS_START - 1
    with pytest.raises(SchemaError, match="ids"):
        assign_field_ids([column], SYSTEM_FIELD_IDS_START - 1)


# Arrow


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("BIGINT", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DECIMAL(20, 3)", pa.decimal128(20, 3)),
        ("CHAR(3)", pa.string()),
        ("BINARY(3)", pa.binary()),
        ("DATE", pa.date32()),
        ("TIME(9)", pa.time32("ms")),
        ("TIMESTAMP(0)", pa.timestamp("s")),
        ("TIMESTAMP(1)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP_LTZ(6)", pa.timestamp("us", tz="UTC")),
        ("TIMESTAMP_LTZ(7)", pa.timestamp("ns", tz="UTC")),
        ("ARRAY<INT NOT NULL>", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32())),
        ("MULTISET<STRING>", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        (
            "ROW<a INT, b DATE NOT NULL>",
            pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.date32(), False)]),
        ),
    ],
)
def test_arrow_types_of_columns(text, arrow):
    assert to_arrow_type(parse_sql_type(text)) == arrow


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.large_binary(), "BYTES"),
        (pa.binary(4), "BINARY(4)"),
        (pa.decimal256(38, 2), "DECIMAL(38, 2)"),
        (pa.time32("s"), "TIME(0)"),
        (pa.time64("us"), "TIME(0)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ns"), "TIMESTAMP(9)"),
        (pa.timestamp("ms", tz="Asia/Tokyo"), "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.list_(pa.int8(), 3), "ARRAY<TINYINT>"),
        (pa.map_(pa.string(), pa.int64()), "MAP<STRING NOT NULL, BIGINT>"),
        (pa.struct([pa.field("a", pa.list_(pa.string()))]), "ROW<a ARRAY<STRING>>"),
    ],
)
def test_column_types_of_arrow_types(arrow, text):
    assert from_arrow_type(arrow) == parse_sql_type(text)
    assert from_arrow_type(arrow, nullable=False) == parse_sql_type(f"{text} NOT NULL")


@pytest.mark.parametrize(
    "arrow",
    [pa.uint8(), pa.uint64(), pa.date64(), pa.duration("s"), pa.dictionary(pa.int8(), pa.string()), pa.null(),
     pa.float16(), pa.decimal256(39, 0), pa.decimal128(5, -1), pa.month_day_nano_interval(), pa.binary(0),
     pa.dense_union([pa.field("a", pa.int8())])],
)  # fmt: skip
def test_arrow_types_that_no_column_holds_are_refused_by_column(arrow):
    schema = pa.schema([pa.field("ok", pa.int8()), pa.field("odd", pa.struct([pa.field("inner", arrow)]))])
    with pytest.raises(SchemaError, match=r"column 'odd': column 'inner': no column type holds") as caught:
        fields_from_arrow(schema)
    assert caught.value.hint


def test_columns_of_an_arrow_schema_are_numbered_and_described():
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False, metadata={"description": "the key"}),
            pa.field("b", pa.struct([pa.field("c", pa.string())])),
        ]
    )
    assert fields_from_arrow(schema) == (
        t.Field(0, "a", t.BigIntType(nullable=False), "the key"),
        t.Field(1, "b", t.RowType((t.Field(2, "c", t.VarCharType()),))),
    )


def test_deep_arrow_types_are_refused():
    arrow = pa.int8()
    for _ in range(MAX_DEPTH):
        arrow = pa.list_(arrow)
    with pytest.raises(SchemaError, match="deep"):
        from_arrow_type(arrow)


@given(TYPES, NAMES)
def test_arrow_types_lead_back_to_the_same_arrow_type(data_type, name):
    (arrow,) = to_arrow_schema([t.Field(0, name, data_type)])
    assert arrow.name == name
    assert arrow.nullable == data_type.nullable
    assert to_arrow_type(from_arrow_type(arrow.type)) == arrow.type
