"""Column lists as SQL spells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SchemaError, UnsupportedFeatureError
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types import data_types as t
from anabranch.format.types.field_tree import assign_field_ids

from .schema_values import TYPES, attempt, fields


def test_columns():
    assert parse_columns("id BIGINT NOT NULL, v STRING COMMENT 'x'") == (
        t.Field(0, "id", t.BigIntType(nullable=False)),
        t.Field(1, "v", t.VarCharType(), "x"),
    )


def test_columns_in_parentheses_over_lines_with_quoted_names():
    text = """(
      `order id`  bigint,
      `a``b`      ARRAY<STRUCT<c: INT, d: STRING>> COMMENT 'it''s, (nested)',
      größe       decimal(10, 2) not null
    )"""
    assert parse_columns(text) == (
        t.Field(0, "order id", t.BigIntType()),
        t.Field(
            1,
            "a`b",
            t.ArrayType(t.RowType((t.Field(2, "c", t.IntType()), t.Field(3, "d", t.VarCharType())))),
            "it's, (nested)",
        ),
        t.Field(4, "größe", t.DecimalType(10, 2, nullable=False)),
    )


def test_words_of_the_grammar_can_be_names():
    names = [
        "primary",
        "watermark",
        "constraint",
        "comment",
        "key",
        "array",
        "timestamp",
        "not",
        "null",
        "row",
    ]
    assert [f.name for f in parse_columns(", ".join(f"{name} INT" for name in names))] == names
    assert [f.name for f in parse_columns(", ".join(f"`{name}` INT" for name in names))] == names


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("id", 3),
        ("id BIGINT NOT", 11),
        ("id BIGINT,", 11),
        ("id BIGINT, , v INT", 12),
        ("id BIGINT v STRING", 11),
        ("id BIGINT COMMENT", 18),
        ("id BIGINT COMMENT x", 19),
        ("id BIGINT COMMENT 'a' COMMENT 'b'", 23),
        ("id BIGINT COMMENT 'a", 19),
        ("(id BIGINT", 11),
        ("id BIGINT)", 10),
        ("(id BIGINT) v", 13),
        ("1d BIGINT", 1),
        ("'id' BIGINT", 1),
        ("id-x BIGINT", 3),
        ("id BIGINTT", 4),
        ("id DECIMAL(3, 4)", 15),
        ("id BIGINT; DROP TABLE t", 10),
    ],
)
def test_errors_name_the_position(text, position):
    with pytest.raises(SchemaError, match=rf"\(character {position} of"):
        parse_columns(text)


@pytest.mark.parametrize("text", ["", "  \n", "()"])
def test_a_list_without_columns_is_refused(text):
    with pytest.raises(SchemaError):
        parse_columns(text)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("id INT PRIMARY KEY", "primary-key"),
        ("id INT NOT NULL PRIMARY KEY NOT ENFORCED", "primary-key"),
        ("id INT, PRIMARY KEY (id) NOT ENFORCED", "primary-key"),
        ("id INT, CONSTRAINT pk PRIMARY KEY (id)", "primary-key"),
        ("id INT UNIQUE", "primary-key"),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS LEAST(ts, now()) ", "watermark-expression"),
        ("id INT DEFAULT now()", "column-default"),
        ("v VARIANT", "type-variant"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(text, feature):
    with pytest.raises(UnsupportedFeatureError) as caught:
        parse_columns(text)
    assert caught.value.feature == feature
    assert caught.value.hint


@given(fields(TYPES, 4))
def test_columns_survive_their_text(columns):
    text = ", ".join(_ddl(f) for f in columns)
    assert parse_columns(text) == assign_field_ids(columns)[0]


def _ddl(column):
    comment = "" if column.description is None else " COMMENT '" + column.description.replace("'", "''") + "'"
    return f"`{column.name}` {_sql(column.type)}{comment}"


def _sql(data_type):
    """The type with names quoted and comments kept, which its readable form does not do."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case t.RowType(fields=inner):
            return f"ROW<{', '.join(_ddl(f) for f in inner)}>{suffix}"
        case t.ArrayType(element=element):
            return f"ARRAY<{_sql(element)}>{suffix}"
        case t.MultisetType(element=element):
            return f"MULTISET<{_sql(element)}>{suffix}"
        case t.MapType(key=key, value=value):
            return f"MAP<{_sql(key)}, {_sql(value)}>{suffix}"
        case _:
            return str(data_type)


@given(st.text("ab `'(),<>:0 INTSRGCOMEWPUKY", max_size=40))
def test_any_text_is_a_column_list_or_refused(text):
    _, error = attempt(lambda: parse_columns(text))
    assert error is None or isinstance(error, SchemaError | UnsupportedFeatureError)
