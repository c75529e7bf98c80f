"""SQL text into predicates, and errors that show the place."""

import math
from contextlib import suppress
from datetime import date, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import PredicateError
from anabranch.expr import FALSE, TRUE, all_of, col, parse
from anabranch.expr.nodes import MAX_DEPTH, Comparison, Literal, Predicate
from anabranch.expr.values import Timestamp

NEW_YEAR = 1767225600 * 10**9


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = 1", col("a") == 1),
        ("a == 1", col("a") == 1),
        ("a<>1", col("a") != 1),
        ("a != -1", col("a") != -1),
        ("a <=> NULL", col("a").same_as(None)),
        ("5 < a", col("a") > 5),
        ("5 >= a.b", col("a.b") <= 5),
        ("a < b", col("a") < col("b")),
        ("(a) = ((1))", col("a") == 1),
        ("a = 1 or b = 2 AnD c = 3", (col("a") == 1) | ((col("b") == 2) & (col("c") == 3))),
        ("not a = 1 and b = 2", ~(col("a") == 1) & (col("b") == 2)),
        ("not not a = 1", ~~(col("a") == 1)),
        ("a in (1, -2, NULL)", col("a").is_in([1, -2, None])),
        ("a not in ('x')", ~col("a").is_in(["x"])),
        ("a between 1 and 2 and b = 3", (col("a") >= 1) & (col("a") <= 2) & (col("b") == 3)),
        ("a not between 1 and 2", ~((col("a") >= 1) & (col("a") <= 2))),
        ("3 between a and b", (col("a") <= 3) & (col("b") >= 3)),
        ("a is null or a is not null", col("a").is_null() | col("a").is_not_null()),
        ("a is true or b is not false", col("a").same_as(True) | ~col("b").same_as(False)),
        (r"a like 'x\_%'", col("a").like(r"x\_%")),
        ("a not like 'x!_%' escape '!'", ~col("a").like("x!_%", escape="!")),
        ("flag", col("flag") == True),  # noqa: E712
        ("not (flag) or true", ~(col("flag") == True) | TRUE),  # noqa: E712
        ("false", FALSE),
        ("1 = 1 and a = 2", TRUE & (col("a") == 2)),
        ("1 > 1.5 or 'a' < 'b'", FALSE | TRUE),
        ("startswith(a, 'x''y')", col("a").starts_with("x'y")),
        ("`a.b`.`c``d` = 1", col("a.b", "c`d") == 1),
        ("date = DATE '2026-01-31'", col("date") == date(2026, 1, 31)),
        ("interval = 5 and x = X'0aFF'", (col("interval") == 5) & (col("x") == b"\x0a\xff")),
        ("größe > 5\n\tand a=1", (col("größe") > 5) & (col("a") == 1)),
        ("a.and = 1", col("a", "and") == 1),
    ],
)
def test_conditions(sql, expected):
    assert parse(sql) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-5", -5), ("+5", 5), ("9" * 30, int("9" * 30)), ("5L", 5), ("5s", 5),
        ("5.50", Decimal("5.50")), ("-.5", Decimal("-0.5")), ("5.", Decimal(5)), ("5BD", Decimal(5)),
        ("-" + "9" * 40 + ".5", Decimal("-" + "9" * 40 + ".5")),
        ("5e3", 5000.0), ("1E-2", 0.01), ("1.5D", 1.5), ("0.1f", 0.10000000149011612), ("1e400", math.inf),
        ("CAST('NaN' AS DOUBLE)", math.nan), ("cast(-5 as float)", -5.0), ("CAST('0.1' AS FLOAT)", 0.10000000149011612),
        ("''", ""), ("'it''s'", "it's"), (r"'a\n'", r"a\n"), ("'\n'", "\n"), ("x''", b""),
        ("TRUE", True), ("null", None),
        ("DATE '2026-1-1'", date(2026, 1, 1)), ("TIME '01:02:03.5'", time(1, 2, 3, 500_000)),
        ("TIMESTAMP '2026-01-01'", Timestamp(NEW_YEAR)),
        ("TIMESTAMP '2026-01-01 00:00'", Timestamp(NEW_YEAR)),
        ("timestamp_ntz '2026-01-01T00:00:00.000000001'", Timestamp(NEW_YEAR + 1)),
        ("TIMESTAMP '2026-01-01 00:00:00Z'", Timestamp(NEW_YEAR, zoned=True)),
        ("TIMESTAMP '2026-01-01 02:30:00+02:30'", Timestamp(NEW_YEAR, zoned=True)),
        ("TIMESTAMP '2025-12-31 16:00:00 America/Los_Angeles'", Timestamp(NEW_YEAR, zoned=True)),
        ("TIMESTAMP_LTZ '2026-01-01 00:00:00'", Timestamp(NEW_YEAR, zoned=True)),
        # Clocks set forward (02:30 did not exist) and back (02:30 came twice).
        ("TIMESTAMP '2026-03-29 02:30:00 Europe/Berlin'", Timestamp(1774747800 * 10**9, zoned=True)),
        ("TIMESTAMP '2026-10-25 02:30:00 Europe/Berlin'", Timestamp(1792888200 * 10**9, zoned=True)),
    ],
)  # fmt: skip
def test_literals(text, value):
    predicate = parse(f"a = {text}")
    assert isinstance(predicate, Comparison)
    assert predicate.right == Literal(value)
    assert type(predicate.right.value) is type(value)


@pytest.mark.parametrize(
    ("sql", "at", "message"),
    [
        ("dt = '2026' and and x = 1", 17, "expected a column or a value, found 'and'"),
        ("a = ", 5, "the end of the filter"),
        ("a = 1 b", 7, "expected AND, OR or the end, found 'b'"),
        ("a = 1 = 2", 7, "expected AND, OR or the end"),
        ("5", 1, "expected a condition, found the value 5"),
        ("a and 5", 7, "expected a condition"),
        ("not 'x'", 5, "expected a condition"),
        ("(a = 1) = 2", 9, "expected AND, OR"),
        ("a = (b = 1)", 8, r"expected \)"),
        ("a in ()", 7, "expected a column or a value"),
        ("a in (1, b)", 10, "expected a value"),
        ("a in 1", 6, r"expected \("),
        ("5 in (1)", 1, "expected a column"),
        ("a not 5", 7, "expected IN, BETWEEN or LIKE"),
        ("a not is null", 7, "expected IN, BETWEEN or LIKE"),
        ("a is 5", 6, "expected NULL"),
        ("a between 1 or 2", 13, "expected AND"),
        ("a like b", 8, "expected a pattern in single quotes"),
        ("a like 'x' escape 'yy'", 3, "one character"),
        (r"a like 'x\y'", 3, "escape character"),
        (r"a like 'x\'", 3, "stands before the end"),
        ("a > now()", 5, "function now"),
        ("a > interval '1' day", 5, "INTERVAL is not supported"),
        ('a = "x"', 5, "double quotes"),
        ("a = 'x", 5, "not closed"),
        ("`a = 1", 1, "not closed"),
        ("`` = 1", 1, "empty"),
        ("a = 5x", 5, "no number"),
        ("a = 5.5L", 5, "no number"),
        ("a ~ 5", 3, "no meaning"),
        ("a. = 5", 4, "expected a name"),
        ("a = X'0'", 5, "hexadecimal"),
        ("a = X'0g'", 5, "hexadecimal"),
        ("a = DATE '2026-02-30'", 10, "no DATE"),
        ("a = DATE '٢026-01-01'", 10, "no DATE"),
        ("a = TIME '24:00:00'", 10, "no TIME"),
        ("a = TIMESTAMP '2026-01-01 00:00 Nowhere/Land'", 15, "no TIMESTAMP"),
        ("a = TIMESTAMP '2026-01-01 00:00 ../../etc'", 15, "no TIMESTAMP"),
        ("a = TIMESTAMP '2026-01-01 00:00:00+99:00'", 15, "no TIMESTAMP"),
        ("a = TIMESTAMP '0001-01-01 00:00:00+10:00'", 15, "outside of the years"),
        ("a = TIMESTAMP_NTZ '2026-01-01 00:00:00Z'", 19, "no TIMESTAMP_NTZ"),
        ("NULL = NULL", 6, "compares two values"),
        ("1 = 'a'", 3, "compares two values"),
        ("a = " + "9" * 5000, 5, "digits"),
        ("a = 1\nand b == = 2", 16, "found '='"),
    ],
)
def test_errors_point_to_the_place(sql, at, message):
    with pytest.raises(PredicateError, match=message) as caught:
        parse(sql)
    text = str(caught.value)
    assert f"at character {at} of the filter" in text
    lines = text.splitlines()
    caret = next(i for i, line in enumerate(lines) if line.strip() == "^")
    marked = lines[caret - 1][lines[caret].index("^") :]
    rest = sql[at - 1 :].split("\n")[0]
    assert rest.startswith(marked.removesuffix("...")) if rest else marked == ""


def test_an_empty_filter_is_an_error():
    for sql in ("", "  \n"):
        with pytest.raises(PredicateError, match="empty"):
            parse(sql)


@pytest.mark.parametrize("hostile", ["not ", "a = 1 and (b = 1 or (", "not (", "not (a = 1 or "])
def test_nesting_is_bounded(hostile):
    closed = ")" * (2_000 * hostile.count("("))
    with pytest.raises(PredicateError, match="nests more than"):
        parse(hostile * 2_000 + "a = 1" + closed)
    with pytest.raises(PredicateError, match=r"expected \)|nests more than"):
        parse(hostile * 2_000 + "a = 1")


def test_what_nests_within_the_bound_is_fine_deep_in_a_program():
    def called_from_deep_below(frames):
        if frames:
            called_from_deep_below(frames - 1)
            return
        nested = "not (a = 1 or b = " * (MAX_DEPTH // 2 - 1) + "1" + ")" * (MAX_DEPTH // 2 - 1)
        nested = nested.replace("b = not", "not")
        predicate = parse(nested)
        assert predicate.depth == MAX_DEPTH - 1
        assert parse(str(predicate)) == predicate

    called_from_deep_below(500)


def test_parentheses_alone_are_not_nesting():
    assert parse("(" * 5_000 + "a = 1" + ")" * 5_000) == (col("a") == 1)
    assert parse("a = " + "(" * 5_000 + "1" + ")" * 5_000) == (col("a") == 1)
    generated = "(" * 499 + "a <> 0" + "".join(f" and a <> {i})" for i in range(1, 500))
    assert parse(generated) == all_of(col("a") != i for i in range(500))


def test_long_filters_are_fine():
    many = " and ".join(f"a <> {i}" for i in range(5_000))
    assert parse(many) == all_of(col("a") != i for i in range(5_000))


@given(st.text(st.sampled_from("ab1.'`()<=>,% -+eEXx\n") | st.characters(), max_size=20))
def test_any_text_gives_a_predicate_or_our_error(text):
    with suppress(PredicateError):
        assert isinstance(parse(text), Predicate)


KEYWORDS = [
    "and",
    "or",
    "not",
    "in",
    "between",
    "is",
    "null",
    "like",
    "escape",
    "true",
    "startswith",
    "cast",
    "as",
    "date",
]
OTHERS = ["a", "b", "`c`", "(", ")", "(", ")", ",", "=", "<=>", "<", "5", "1.5", "'x'", "'2026-01-01'"]
words = st.sampled_from(KEYWORDS + OTHERS)


@given(st.lists(words, max_size=12).map(" ".join))
def test_any_words_give_a_predicate_or_our_error(text):
    try:
        predicate = parse(text)
    except PredicateError:
        return
    assert parse(str(predicate)) == predicate
