"""The algebra, its Python sugar, and SQL text as its readable form."""

import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import PredicateError
from anabranch.expr import FALSE, TRUE, all_of, any_of, col, parse
from anabranch.expr.nodes import (
    MAX_DEPTH,
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    StartsWith,
)
from anabranch.expr.values import Timestamp

names = st.text(min_size=1, max_size=5) | st.sampled_from(
    ["a", "and", "Null", "date", "x", "a.b", "a`b", "é", "1a"]
)
names = names.filter(lambda name: not any("\ud800" <= c <= "\udfff" for c in name))
columns = st.lists(names, min_size=1, max_size=3).map(lambda path: Column(tuple(path)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
moments = st.integers(-62135596800 * 10**9, 253402300799 * 10**9)
values = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5) | st.dates() | st.times()
    | st.decimals(allow_nan=False, allow_infinity=False, places=None) | st.builds(Timestamp, moments, st.booleans())
    | st.datetimes()
)  # fmt: skip
literals = values.filter(lambda v: not isinstance(v, Decimal) or abs(v.as_tuple().exponent) < 100).map(
    Literal
)
patterns = st.text(st.sampled_from("ab_%'!"), max_size=6).map(lambda text: text.replace("!", "!!"))
leaves = (
    st.sampled_from([TRUE, FALSE])
    | st.builds(Comparison, st.sampled_from(Operator), columns, literals | columns)
    | st.builds(In, columns, st.lists(literals, min_size=1, max_size=3).map(tuple))
    | st.builds(IsNull, columns)
    | st.builds(StartsWith, columns, texts)
    | st.builds(Like, columns, patterns, st.just("!"))
    | st.builds(Like, columns, patterns)
)
predicates = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(all_of)
        | st.lists(inner, min_size=2, max_size=3).map(any_of)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(predicates)
def test_the_text_reads_back_to_the_same_predicate(predicate):
    again = parse(str(predicate))
    assert again == predicate
    assert hash(again) == hash(predicate)
    assert str(again) == str(predicate)
    copy = pickle.loads(pickle.dumps(predicate))
    assert copy == predicate
    assert copy.depth == predicate.depth


@pytest.mark.parametrize(
    ("built", "text"),
    [
        ((col("a") > 5) & col("s").is_in(["x", "y"]), "a > 5 AND s IN ('x', 'y')"),
        (
            (col("a") == 1) | (col("b") != 2.5) & ~(col("c") <= col("d")),
            "a = 1 OR (b <> 2.5E0 AND NOT (c <= d))",
        ),
        (col("a") > 5, "a > 5"),
        (col("a").between(1, Decimal("2.50")), "a >= 1 AND a <= 2.50"),
        (~col("a").is_in([1, None]), "a NOT IN (1, NULL)"),
        (col("a").is_null() | col("a").is_not_null(), "a IS NULL OR a IS NOT NULL"),
        (~col("s").like("a!%%", escape="!"), "s NOT LIKE 'a!%%' ESCAPE '!'"),
        (~col("s").starts_with("it's"), "NOT (startswith(s, 'it''s'))"),
        (col("flag") & ~col("other"), "flag = TRUE AND NOT (other = TRUE)"),
        (col("a").same_as(None), "a <=> NULL"),
        (col("a.b") == col("`a.b`"), "a.b = `a.b`"),
        (col("a", "b.c") == b"\x00\xff", "a.`b.c` = X'00FF'"),
        (col("select") == -1, "select = -1"),
        (col("or") == True, "`or` = TRUE"),  # noqa: E712
        (col("a").is_in([]), "FALSE"),
        (col("d") == date(2026, 1, 31), "d = DATE '2026-01-31'"),
        (col("t") < time(1, 2, 3, 400_000), "t < TIME '01:02:03.400000'"),
        (col("t") < datetime(2026, 1, 31, 12), "t < TIMESTAMP_NTZ '2026-01-31 12:00:00'"),
        (col("t") < datetime(2026, 1, 31, 12, tzinfo=UTC), "t < TIMESTAMP_LTZ '2026-01-31 12:00:00Z'"),
        (col("x") > float("inf"), "x > CAST('Infinity' AS DOUBLE)"),
        (col("x") == Decimal("1E+3"), "x = 1000BD"),
        (col("x") == Decimal("-0.00"), "x = 0.00"),
    ],
)
def test_sugar_and_spelling(built, text):
    assert str(built) == text
    assert parse(text) == built


def test_and_and_or_are_flat_and_need_two():
    a, b, c = (col(name) == 1 for name in "abc")
    assert (a & b) & c == a & (b & c) == all_of([a, b, c])
    assert (a | b) | c == a | (b | c) == any_of([a, b, c])
    assert (a & b) | c != a & (b | c)
    assert all_of([]) is TRUE
    assert any_of([]) is FALSE
    assert all_of([a]) is a
    with pytest.raises(PredicateError, match="at least two"):
        And((a,))


def test_literals_of_different_kinds_differ():
    kinds = [Literal(v) for v in (1, True, 1.0, Decimal(1), Decimal("1.0"), "1", b"1", None)]
    assert len(set(kinds)) == len(kinds)
    assert Literal(float("nan")) == Literal(float("nan"))
    assert Literal(0.0) != Literal(-0.0)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (np.int8(5), 5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2026-01-01"), date(2026, 1, 1)),
        (np.datetime64("2026-01-01T00:00:00.000000001"), Timestamp(1767225600_000000001)),
        (np.datetime64("NaT"), None),
        (pd.Timestamp(1767225600_000000001), Timestamp(1767225600_000000001)),
        (pd.Timestamp("2026-01-01 01:00", tz="Europe/Berlin"), Timestamp(1767225600_000000000, zoned=True)),
        (pd.NaT, None),
        (pa.scalar(7, pa.int16()), 7),
        (
            pa.scalar(1767225600_000001, pa.timestamp("us", "UTC")),
            Timestamp(1767225600_000001000, zoned=True),
        ),
        (pa.scalar(None, pa.int8()), None),
        (pa.scalar("a").cast(pa.dictionary(pa.int8(), pa.string())), "a"),
        (bytearray(b"a"), b"a"),
        (
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            Timestamp(1767225600_000000000, zoned=True),
        ),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), Timestamp(-1000)),
    ],
)
def test_values_of_other_libraries(raw, value):
    found = Literal(raw)
    assert found == Literal(value)
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: bool(col("a")),
        lambda: (col("a") > 1) and (col("b") > 1),
        lambda: not (col("a") > 1),
        lambda: 1 < col("a") < 5,
        lambda: 5 in col("a"),
        lambda: col("a") == None,  # noqa: E711
        lambda: (col("a") > 1) & 5,
        lambda: col("a") > 1 & col("b"),
        lambda: col("a") == object(),
        lambda: col("a") == [1],
        lambda: col("a") == time(1, tzinfo=UTC),
        lambda: col("a") == Decimal("NaN"),
        lambda: col("a") == Decimal("1E+1000000000"),
        lambda: col("a") == 10**5000,
        lambda: col("a") == "\ud800",
        lambda: col("a").starts_with(5),
        lambda: col("a").like("x\\"),
        lambda: col("a").like("x", escape="ab"),
        lambda: col("a").like("x", escape="%"),
        lambda: col(""),
        lambda: col("a..b"),
        lambda: col("`a"),
        lambda: col("a."),
        lambda: Column("a"),
        lambda: Comparison("=>", Column(("a",)), Literal(1)),
        lambda: Comparison("=", Literal(1), Literal(1)),
        lambda: In(Column(("a",)), ()),
        lambda: Not(col("a")),
        lambda: Timestamp(10**21),
    ],
)
def test_misuse_is_an_error_of_ours(misuse):
    with pytest.raises(PredicateError):
        misuse()


def test_the_error_for_and_says_what_to_write():
    with pytest.raises(PredicateError, match=r"use \.between"):
        assert 1 < col("a") < 5
    with pytest.raises(PredicateError, match="is_null"):
        col("a") == None  # noqa: B015, E711


def test_depth_is_bounded():
    deep = col("a") == 1
    for _ in range(MAX_DEPTH - 1):
        deep = ~deep
    assert deep.depth == MAX_DEPTH
    assert pickle.loads(pickle.dumps(deep)) == deep
    with pytest.raises(PredicateError, match="nests more than"):
        Not(deep)
    wide = any_of(col("a") == i for i in range(10_000))
    assert wide.depth == 2
