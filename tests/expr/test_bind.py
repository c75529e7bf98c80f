"""Names become fields, values become values of the columns' types, and both survive schema changes."""

import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import PredicateError
from anabranch.expr import bind, col, filter_mask, parse, rebind
from anabranch.expr.bound import ALWAYS
from anabranch.expr.coerce import converts_exactly
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.values import from_physical

from .model import CASES, SCHEMA, predicates

TYPES = {
    "i": IntType(),
    "b": BigIntType(),
    "f": FloatType(),
    "d": DoubleType(),
    "m": DecimalType(10, 2),
    "big": DecimalType(38, 0),
    "s": VarCharType(),
    "c": CharType(3),
    "bin": BinaryType(2),
    "flag": BooleanType(),
    "day": DateType(),
    "tm": TimeType(3),
    "t3": TimestampType(3),
    "t9": TimestampType(9),
    "z": LocalZonedTimestampType(6),
    "r": RowType((Field(50, "x", IntType()), Field(51, "in", RowType((Field(52, "y", VarCharType()),))))),
    "a": ArrayType(IntType()),
    "Case": IntType(),
    "case": IntType(),
    "Mixed": IntType(),
    "dot.ted": IntType(),
}
FIELDS = tuple(Field(i, name, data_type) for i, (name, data_type) in enumerate(TYPES.items()))


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        # Integers: by the exact number.
        ("i < 5.5", "i <= 5"),
        ("i <= -5.5", "i <= -6"),
        ("i > 5.5", "i > 5"),
        ("i >= 5.0", "i >= 5"),
        ("i = 5.5", "FALSE"),
        ("i <> 5.5", "i IS NOT NULL"),
        ("not i = 5.5", "i IS NOT NULL"),
        ("i < 5000000000", "i IS NOT NULL"),
        ("i <= 2147483647", "i <= 2147483647"),
        ("i > 2147483647.5", "FALSE"),
        ("i < 2147483648", "i IS NOT NULL"),
        ("i >= -2147483648.5", "i IS NOT NULL"),
        ("i = 5000000000 or i = 1", "i = 1"),
        ("i in (1, 1.5, 2.0, 5000000000)", "i IN (1, 2)"),
        ("i not in (1.5, 2)", "i <> 2"),
        ("i not in (1.5)", "i IS NOT NULL"),
        ("i in (1, null)", "i = 1"),
        ("i not in (1, null)", "FALSE"),
        ("i = '5'", "i = 5"),
        ("i > ' 1.5 '", "i > 1"),
        ("i < CAST('NaN' AS DOUBLE)", "i IS NOT NULL"),
        ("i > CAST('-Infinity' AS DOUBLE)", "i IS NOT NULL"),
        ("b = 9007199254740993", "b = 9007199254740993"),
        ("b < 1e18", "b < 1000000000000000000"),
        # NULL.
        ("i = null", "FALSE"),
        ("not i = null", "FALSE"),
        ("i <=> null", "i IS NULL"),
        ("not i <=> null", "i IS NOT NULL"),
        ("not i <=> 5", "i <> 5 OR i IS NULL"),
        ("not (i = 1 and b = 2)", "i <> 1 OR b <> 2"),
        ("not (i < 1 or not b >= 2)", "i >= 1 AND b >= 2"),
        ("not i is null", "i IS NOT NULL"),
        ("not (i between 1 and 2)", "i < 1 OR i > 2"),
        # Floating point: by doubles, with NaN as the greatest number.
        ("f = 0.5", "f = 0.5E0"),
        ("f = 0.1", "FALSE"),
        ("f < 1e300", "f <= 3.4028234663852886e+38"),
        ("d = 0.1", "d = 0.1E0"),
        ("d > 5", "d > 5.0E0"),
        ("d = cast('nan' as double)", "d = CAST('NaN' AS DOUBLE)"),
        ("d >= cast('nan' as double)", "d = CAST('NaN' AS DOUBLE)"),
        ("d < cast('nan' as double)", "d <> CAST('NaN' AS DOUBLE)"),
        ("d > cast('nan' as double)", "FALSE"),
        ("d <= cast('nan' as double)", "d IS NOT NULL"),
        ("d not in (1, cast('nan' as double))", "d <> 1.0E0 AND d <> CAST('NaN' AS DOUBLE)"),
        # Decimals: exact, floating-point values as they are printed.
        ("m = 1.5", "m = 1.50"),
        ("m = 1.505", "FALSE"),
        ("m < 1.505", "m <= 1.50"),
        ("m > -1.505", "m > -1.51"),
        ("m = 1e-1", "m = 0.10"),
        ("m < 100000000", "m IS NOT NULL"),
        ("m > 99999999.99", "m > 99999999.99"),
        ("m > 99999999.991", "FALSE"),
        ("m >= -99999999.991", "m IS NOT NULL"),
        ("big = 99999999999999999999999999999999999999", f"big = {'9' * 38}BD"),
        # Text.
        ("s = 'x'", "s = 'x'"),
        ("c = 'ab '", "c = 'ab '"),
        ("s like 'ab%'", "startswith(s, 'ab')"),
        (r"s like '\%a%%'", "startswith(s, '%a')"),
        ("s like 'ab'", "s = 'ab'"),
        ("s like ''", "s = ''"),
        ("s like '%%'", "s IS NOT NULL"),
        ("s not like '%'", "FALSE"),
        ("s not like 'ab'", "s <> 'ab'"),
        ("s like 'a!_b%_' escape '!'", r"s LIKE 'a\_b%_'"),
        ("startswith(s, '')", "s IS NOT NULL"),
        ("not startswith(s, 'a_')", "NOT startswith(s, 'a_')"),
        ("bin = X'0102'", "bin = X'0102'"),
        # Booleans.
        ("flag", "flag = TRUE"),
        ("not flag", "flag <> TRUE"),
        ("flag = 'false'", "flag = FALSE"),
        ("flag is not true", "flag <> TRUE OR flag IS NULL"),
        # Time.
        ("day = '2026-01-31'", "day = DATE '2026-01-31'"),
        ("day < timestamp '2026-01-31 10:00:00'", "day <= DATE '2026-01-31'"),
        ("day = timestamp '2026-01-31 10:00:00'", "FALSE"),
        ("day = timestamp '2026-01-31'", "day = DATE '2026-01-31'"),
        ("tm < '10:00:00.0005'", "tm <= TIME '10:00:00'"),
        ("t3 >= '2026-01-31'", "t3 >= TIMESTAMP_NTZ '2026-01-31 00:00:00'"),
        ("t3 < '2026-01-31T10:00:00.1234'", "t3 <= TIMESTAMP_NTZ '2026-01-31 10:00:00.123'"),
        ("t3 = date '2026-01-31'", "t3 = TIMESTAMP_NTZ '2026-01-31 00:00:00'"),
        ("t9 = '2026-01-31 10:00:00.123456789'", "t9 = TIMESTAMP_NTZ '2026-01-31 10:00:00.123456789'"),
        ("t9 < '3000-01-01'", "t9 IS NOT NULL"),
        ("t9 < '1000-01-01'", "FALSE"),
        ("t9 < '2262-04-11 23:47:16.854775808'", "t9 IS NOT NULL"),
        ("t9 >= '2262-04-11 23:47:16.854775807'", "t9 >= TIMESTAMP_NTZ '2262-04-11 23:47:16.854775807'"),
        ("z = '2026-01-31 10:00:00'", "z = TIMESTAMP_LTZ '2026-01-31 10:00:00Z'"),
        ("z = '2026-01-31 10:00:00 Europe/Berlin'", "z = TIMESTAMP_LTZ '2026-01-31 09:00:00Z'"),
        ("z > timestamp '2026-01-31 10:00:00-01:00'", "z > TIMESTAMP_LTZ '2026-01-31 11:00:00Z'"),
        # Columns with columns.
        ("i > b", "b < i"),
        ("not i > b", "i <= b"),
        ("i <=> b", "i = b OR (i IS NULL AND b IS NULL)"),
        ("not i <=> b", "i <> b OR (i IS NULL AND b IS NOT NULL) OR (i IS NOT NULL AND b IS NULL)"),
        ("day < t3", "day < t3"),
        # Names.
        ("I = 1 and MIXED = 1", "i = 1 AND Mixed = 1"),
        ("Case = 1 and case = 2", "Case = 1 AND case = 2"),
        ("`dot.ted` = 1", "`dot.ted` = 1"),
        ("r.x = 1 and R.`in`.Y = 'a'", "r.x = 1 AND r.`in`.y = 'a'"),
        ("r is null or a is not null", "r IS NULL OR a IS NOT NULL"),
        # Simplification.
        ("i = 1 or i = 2 or s = 'x' or i in (3, 1)", "i IN (1, 2, 3) OR s = 'x'"),
        ("i = 1 and i = 1 and true", "i = 1"),
        ("not (i = 1 or b = 2) and s = 'x'", "i <> 1 AND b <> 2 AND s = 'x'"),
        ("not (i > 1 and b > 2) or s = 'x'", "i <= 1 OR b <= 2 OR s = 'x'"),
        ("i = 1 or true", "TRUE"),
        ("i = 1 and not true", "FALSE"),
    ],
)
def test_normal_form(sql, bound):
    found = bind(parse(sql), FIELDS)
    assert str(found) == bound
    assert bind(parse(bound), FIELDS) == found


@settings(deadline=None)
@given(predicates())
def test_bound_predicates_are_values_and_read_as_sql(predicate):
    bound = bind(predicate, SCHEMA)
    assert bind(parse(str(bound)), SCHEMA) == bound
    assert pickle.loads(pickle.dumps(bound)) == bound
    assert hash(bind(predicate, SCHEMA)) == hash(bound)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("x = 1", "no column x"),
        ("mixd = 1", "did you mean Mixed"),
        ("CASE = 1", "ambiguous: it matches Case, case"),
        ("r.z = 1", "no column r.z"),
        ("i.x = 1", "i is of type INT and has no field 'x'"),
        ("dot.ted = 1", "no column dot.ted"),
        ("r = 1", "cannot be compared"),
        ("r <=> 1", "cannot be compared"),
        ("a = null", "cannot be compared"),
        ("a in (null)", "cannot be compared"),
        ("i = 'abc'", "cannot be compared with 'abc'"),
        ("i = true", "cannot be compared with TRUE"),
        ("i = X'00'", "cannot be compared"),
        ("i = date '2026-01-01'", "cannot be compared"),
        ("s = 5", "write a text: '5'"),
        ("s in ('a', 5)", "cannot be compared with 5"),
        ("s = X'00'", "cannot be compared"),
        ("bin = 'a'", "write bytes"),
        ("flag = 1", "write TRUE or FALSE"),
        ("flag = 'yes'", "write TRUE or FALSE"),
        ("day = '2026-01-01 10:00:00'", "write a date"),
        ("day = 5", "write a date"),
        ("day = timestamp '2026-01-01 00:00:00Z'", "write a date"),
        ("tm = timestamp '2026-01-01 00:00:00'", "write a time"),
        ("t3 = '2026-01-01 00:00:00Z'", "without a zone"),
        ("t3 = timestamp_ltz '2026-01-01 00:00:00'", "without a zone"),
        ("t3 = 1767225600", "write a moment"),
        ("z = 'yesterday'", "write a moment"),
        ("i like 'a%'", "LIKE and startswith are for text"),
        ("startswith(bin, 'a')", "LIKE and startswith are for text"),
        ("i = s", "cannot be compared with column s"),
        ("m = d", "cannot be compared with column d"),
        ("t3 = z", "cannot be compared with column z"),
        ("t3 = t9", "cannot be compared with column t9"),
        ("r = r", "cannot be compared"),
    ],
)
def test_what_does_not_fit_is_an_error(sql, message):
    with pytest.raises(PredicateError, match=message):
        bind(parse(sql), FIELDS)


# Older files: (old type, new type), values in the old type.
CHANGES = [
    (SmallIntType(), BigIntType(), [-32768, 0, 5, 32767]),
    (IntType(), DecimalType(12, 2), [-(2**31), 0, 5, 2**31 - 1]),
    (IntType(), DoubleType(), [-(2**31), 0, 5, 2**31 - 1]),
    (SmallIntType(), FloatType(), [-32768, 0, 5, 32767]),
    (FloatType(), DoubleType(), [0.0, 5.5, float("inf"), float("nan"), 0.10000000149011612]),
    (DecimalType(5, 2), DecimalType(12, 4), [Decimal("-999.99"), Decimal("5.00"), Decimal("0.10")]),
    (VarCharType(5), VarCharType(), ["", "a", "ab", "ä"]),
    (CharType(2), VarCharType(9), ["", "a", "ab"]),
    (VarBinaryType(2), VarBinaryType(9), [b"", b"a"]),
    (TimestampType(3), TimestampType(6), [0, 10**6, -(10**6)]),
    (BigIntType(), BigIntType(), [-1, 0, 5]),
    # These do not convert exactly.
    (BigIntType(), DoubleType(), [2**53, 2**53 + 1, 5]),
    (IntType(), FloatType(), [2**24, 2**24 + 1, 5]),
    (BigIntType(), IntType(), [-1, 0, 5]),
    (TimestampType(6), TimestampType(3), [0, 10**6]),
    (DecimalType(12, 4), DecimalType(5, 2), [Decimal("1.5000"), Decimal("5.0000")]),
]
LITERALS = {
    "number": [
        -40000,
        -1,
        0,
        5,
        5.5,
        40000,
        2**40,
        2**53,
        float("nan"),
        float("inf"),
        Decimal("0.1"),
        0.1,
        Decimal("0.105"),
    ],
    "text": ["", "a", "ab", "abcdef", "ä"],
    "bytes": [b"", b"a", b"abcdef"],
    "time": ["1970-01-01", "1970-01-01 00:00:00.001", "1970-01-01 00:00:00.0015", "1969-12-31"],
}


@pytest.mark.parametrize(
    ("old", "new", "exact"),
    [
        (IntType(), IntType(nullable=False), True),
        (SmallIntType(), IntType(), True),
        (BigIntType(), IntType(), False),
        (BigIntType(), DecimalType(21, 2), True),
        (BigIntType(), DecimalType(20, 2), False),
        (IntType(), DecimalType(10, 0), True),
        (IntType(), DecimalType(9, 0), False),
        (SmallIntType(), FloatType(), True),
        (IntType(), FloatType(), False),
        (IntType(), DoubleType(), True),
        (BigIntType(), DoubleType(), False),
        (FloatType(), DoubleType(), True),
        (DoubleType(), FloatType(), False),
        (FloatType(), DecimalType(38, 10), False),
        (DecimalType(5, 2), DecimalType(6, 3), True),
        (DecimalType(5, 2), DecimalType(6, 1), False),
        (DecimalType(5, 2), DecimalType(5, 3), False),
        (DecimalType(5, 2), DoubleType(), False),
        (VarCharType(5), VarCharType(), True),
        (VarCharType(5), VarCharType(4), False),
        (CharType(5), VarCharType(5), True),
        (CharType(5), VarCharType(4), False),
        (VarCharType(5), CharType(5), False),
        (BinaryType(5), VarBinaryType(5), True),
        (VarBinaryType(5), VarBinaryType(4), False),
        (TimestampType(3), TimestampType(6), True),
        (TimestampType(6), TimestampType(3), False),
        (TimestampType(3), LocalZonedTimestampType(3), False),
        (LocalZonedTimestampType(0), LocalZonedTimestampType(9), True),
        (TimestampType(3), DateType(), False),
        (DateType(), TimestampType(3), False),
        (IntType(), VarCharType(), False),
        (BooleanType(), IntType(), False),
    ],
)
def test_which_type_changes_keep_values(old, new, exact):
    assert converts_exactly(old, new) is exact


def literals_for(data_type):
    match data_type:
        case VarCharType():
            return LITERALS["text"]
        case VarBinaryType():
            return LITERALS["bytes"]
        case TimestampType():
            return LITERALS["time"]
        case _:
            return LITERALS["number"]


@st.composite
def changed(draw):
    old, new, values = draw(st.sampled_from(CHANGES))
    literals = st.sampled_from(literals_for(new))
    column = col("new")
    tests = [
        column.is_null(),
        column == draw(literals),
        column < draw(literals),
        column >= draw(literals),
        column.is_in(draw(st.lists(literals, min_size=1, max_size=3))),
        column.same_as(draw(literals)),
        col("other") == 1,
        col("added") == 1,
        col("added").is_null(),
        col("new") != col("new"),
        *([column.starts_with("a"), column.like("_b%")] if isinstance(new, VarCharType) else []),
    ]
    negate = st.sampled_from(tests).flatmap(lambda t: st.sampled_from([t, ~t]))
    first, second = draw(negate), draw(negate)
    return old, new, values, draw(st.sampled_from([first, first & second, first | second]))


@settings(max_examples=100, deadline=None)
@given(changed())
def test_rebinding_keeps_every_match_of_older_files(change):
    old, new, values, predicate = change
    old_fields = (Field(7, "renamed", IntType()), Field(3, "new", VarCharType()), Field(1, "old", old))
    new_fields = (Field(1, "new", new), Field(7, "other", IntType()), Field(9, "added", IntType()))
    column = [*values, None]
    others = [i % 3 if i % 4 else None for i in range(len(column))]
    stored = from_physical(column, old)
    old_table = pa.table(
        {"renamed": pa.array(others, pa.int32()), "new": ["wrong"] * len(column), "old": stored}
    )
    schema = to_arrow_schema(new_fields)
    added = pa.nulls(len(column), pa.int32())
    today = pa.table(
        [stored.cast(schema.field(0).type, safe=False), old_table["renamed"], added], schema=schema
    )

    bound = bind(predicate, new_fields)
    older = rebind(bound, old_fields)
    wanted = filter_mask(bound, today).to_pylist()
    found = filter_mask(older, old_table).to_pylist()
    assert all(f or not w for f, w in zip(found, wanted, strict=True)), f"{bound} became {older}"


@pytest.mark.parametrize(
    ("sql", "older"),
    [
        ("wide = 5", "narrow = 5"),
        ("wide < 5000000000", "narrow IS NOT NULL"),
        ("wide in (5, 5000000000)", "narrow = 5"),
        ("dec = 1.5", "FALSE"),
        ("dec > 1.5", "i > 1"),
        ("gone is null", "TRUE"),
        ("gone is not null or gone = 5", "FALSE"),
        ("r.new is null", "TRUE"),
        ("r.x = 5", "r_old.x_old = 5"),
        ("r is not null", "r_old IS NOT NULL"),
        ("lossy > 5", "TRUE"),
        ("lossy > 5 and wide = 5", "narrow = 5"),
        ("nan = cast('nan' as double)", "FALSE"),
        ("nan <> cast('nan' as double)", "n IS NOT NULL"),
        ("wide < dec", "narrow < i"),
        ("wide < gone", "FALSE"),
    ],
)
def test_rebinding_by_id(sql, older):
    new = (
        Field(1, "wide", BigIntType()),
        Field(2, "dec", DecimalType(12, 2)),
        Field(3, "gone", IntType()),
        Field(4, "r", RowType((Field(5, "x", BigIntType()), Field(6, "new", IntType())))),
        Field(7, "lossy", DoubleType()),
        Field(8, "nan", DoubleType()),
    )
    old = (
        Field(8, "n", IntType()),
        Field(9, "gone", VarCharType()),
        Field(1, "narrow", IntType(nullable=False)),
        Field(2, "i", IntType()),
        Field(4, "r_old", RowType((Field(5, "x_old", IntType()),))),
        Field(7, "lossy", BigIntType()),
    )
    assert str(rebind(bind(parse(sql), new), old)) == older


def test_rebinding_to_the_same_fields_changes_nothing():
    for name, (_, _, literals) in CASES.items():
        bound = bind(~(col(name) <= literals[0]) | col("row.x").is_in([1, 2]), SCHEMA)
        assert rebind(bound, SCHEMA) == bound
    assert rebind(ALWAYS, ()) == ALWAYS
