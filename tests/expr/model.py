"""A slow reading of predicates, row by row in Python, and random predicates and rows to hold against it."""

import math
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, product

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.expr import nodes
from anabranch.expr.like import Wildcard, split_pattern
from anabranch.expr.nodes import Column, Literal, Operator
from anabranch.expr.values import Timestamp
from anabranch.format.types.data_types import (
    BigIntType,
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
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.values import from_physical

NAN, INF = math.nan, math.inf
DAY = 86_400 * 10**9
NEW_YEAR = 20454 * DAY  # 2026-01-01

INT_FIELDS = {
    "tiny": (TinyIntType(), 7),
    "small": (SmallIntType(), 15),
    "int": (IntType(), 31),
    "big": (BigIntType(), 63),
}
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "ab%",
    "a_c",
    "b",
    "Ab",
    "ä",
    "\uffff",
    "\U0001f600",
    "a\nb",
    "a\\b",
    "ab ",
    "\0",
]

# name -> type, values that rows hold (physical), values that literals take
CASES: dict[str, tuple] = (
    {
        name: (
            data_type,
            [-(2**bits), -1, 0, 1, 2, 5, 2**bits - 1],
            [
                -(2**70),
                -(2**bits) - 1,
                -(2**bits),
                -1,
                0,
                1,
                5,
                2**bits - 1,
                2**bits,
                2**70,
                "1",
                "4.5",
                Decimal("4.5"),
                Decimal("-0.5"),
                Decimal("5.00"),
                Decimal("1E+3"),
                0.5,
                1.0,
                -INF,
                INF,
                NAN,
            ],
        )
        for name, (data_type, bits) in INT_FIELDS.items()
    }
    | {
        "double": (
            DoubleType(),
            [-INF, -1e300, -0.0, 0.0, 0.1, 1.0, 5.5, 1e300, INF, NAN],
            [
                0,
                1,
                10**400,
                Decimal("0.1"),
                Decimal("5.5"),
                0.1,
                -0.0,
                5.5,
                -INF,
                INF,
                NAN,
                "5.5",
                "NaN",
                2**53 + 1,
            ],
        ),
        "float": (
            FloatType(),
            [-INF, -0.0, 0.0, float(pa.scalar(0.1, pa.float32()).as_py()), 1.0, 5.5, 2.0**127, INF, NAN],
            [
                0,
                1,
                Decimal("0.1"),
                0.1,
                0.10000000149011612,
                5.5,
                1e39,
                -1e39,
                1e-60,
                INF,
                NAN,
                "5.5",
                2**24 + 1,
            ],
        ),
        "dec": (
            DecimalType(5, 2),
            [Decimal(d) for d in ("-999.99", "-0.10", "0.00", "0.10", "1.50", "2.00", "999.99")],
            [
                0,
                2,
                999,
                1000,
                -1000,
                10**40,
                Decimal("1.5"),
                Decimal("1.505"),
                Decimal("999.991"),
                Decimal("-999.995"),
                0.1,
                1.5,
                1e300,
                -INF,
                NAN,
                "0.1",
                Decimal("-1000.001"),
            ],
        ),
        "wide": (
            DecimalType(38, 10),
            [Decimal(d).quantize(Decimal("1E-10")) for d in ("-1", "0", "0.1", "2")]
            + [Decimal(f"{'9' * 28}.{'9' * 10}"), Decimal(f"-{'9' * 28}.{'9' * 10}")],
            [0, 2, 10**28, 10**28 - 1, -(10**28), Decimal("0.1"), 0.1, Decimal("0.00000000001"), "2"],
        ),
        "text": (VarCharType(), TEXTS, TEXTS),
        "char": (CharType(4), TEXTS, TEXTS),
        "bytes": (VarBinaryType(), [b"", b"\x00", b"a", b"\x7f", b"\xff"], [b"", b"a", b"\x80", b"\xff\xff"]),
        "flag": (BooleanType(), [False, True], [False, True, "true", "FALSE"]),
        "day": (
            DateType(),
            [-1, 0, 20453, 20454, 20455, 2932896],
            [
                date(2026, 1, 1),
                "2026-01-01",
                Timestamp(NEW_YEAR),
                Timestamp(NEW_YEAR + 1),
                date.max,
                date.min,
            ],
        ),
        "time": (
            TimeType(3),
            [0, 1, 3_600_000, 86_399_999],
            [time(0), time(1), time(1, 0, 0, 500), "01:00:00.001", "01:00"],
        ),
    }
    | {
        name: (
            data_type,
            [0, -step, step, NEW_YEAR, NEW_YEAR + step, NEW_YEAR + DAY],
            [Timestamp(NEW_YEAR, zoned=z) for z in {False, zoned}]
            + [Timestamp(NEW_YEAR + step // 2), Timestamp(NEW_YEAR - 1), date(2026, 1, 1), date.max, date.min]
            + ["2026-01-01", "2026-01-01T00:00:01", "1969-12-31 23:59:59.999999999"]
            + (["2026-01-01 01:00:00+01:00"] if zoned else []),
        )
        for name, data_type, step, zoned in [
            ("ts0", TimestampType(0), 10**9, False),
            ("ts3", TimestampType(3), 10**6, False),
            ("ts6", TimestampType(6), 10**3, False),
            ("ts9", TimestampType(9), 1, False),
            ("ltz", LocalZonedTimestampType(6), 10**3, True),
        ]
    }
)

FIELDS = tuple(Field(i, name, data_type) for i, (name, (data_type, _, _)) in enumerate(CASES.items()))
NESTED = Field(100, "row", RowType((Field(101, "x", IntType()), Field(102, "y", VarCharType()))))
SCHEMA = (*FIELDS, NESTED)
COMPARABLE = [
    *((a, b) for a in ("tiny", "int", "big", "dec", "wide") for b in ("small", "int", "big", "dec", "wide")),
    *((a, b) for a in ("float", "double", "int", "big") for b in ("float", "double")),
    ("text", "char"), ("bytes", "bytes"), ("flag", "flag"), ("day", "ts0"), ("ts6", "ts3"), ("ts9", "ts9"), ("time", "time"),
]  # fmt: skip

rows = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, (_, values, _) in CASES.items()}
    | {
        "row": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.sampled_from([-1, 0, 5]), "y": st.none() | st.sampled_from(TEXTS)}
        )
    }
)


def table_of(data: list[dict]) -> pa.Table:
    """Rows as an Arrow table of the schema."""
    arrays = [from_physical([row[f.name] for row in data], f.type) for f in FIELDS]
    row_type = pa.struct([("x", pa.int32()), ("y", pa.string())])
    nested = pa.array([row["row"] for row in data], row_type)
    return pa.table([*arrays, nested], names=[f.name for f in SCHEMA])


@st.composite
def _tests(draw, names):
    name = draw(st.sampled_from(names))
    column, literals = Column((name,)), st.none() | st.sampled_from(CASES[name][2])
    if name in {"text", "char"} and draw(st.booleans()):
        if draw(st.booleans()):
            return nodes.StartsWith(column, draw(st.sampled_from(TEXTS)))
        return nodes.Like(column, *draw(patterns))
    match draw(st.integers(0, 5)):
        case 0:
            return nodes.IsNull(column)
        case 1:
            return nodes.In(column, tuple(map(Literal, draw(st.lists(literals, min_size=1, max_size=4)))))
        case 2 if pairs := [(a, b) for a, b in COMPARABLE if a in names and b in names]:
            left, right = draw(st.sampled_from(pairs))
            return nodes.Comparison(draw(st.sampled_from(Operator)), Column((left,)), Column((right,)))
        case 3:
            return nodes.Comparison(
                draw(st.sampled_from(Operator)), Column(("row", "x")), Literal(draw(st.integers(-2, 6)))
            )
        case _:
            return nodes.Comparison(draw(st.sampled_from(Operator)), column, Literal(draw(literals)))


patterns = st.tuples(
    st.lists(st.sampled_from(["a", "b", "_", "%", "ab", "!_", "!%", "!!", "\n", "ä", "\\"]), max_size=5).map(
        "".join
    ),
    st.just("!"),
)


def predicates(names=tuple(CASES)):
    """Random predicates over some of the columns."""
    return st.recursive(
        _tests(list(names)) | st.sampled_from([nodes.TRUE, nodes.FALSE]),
        lambda inner: (
            st.builds(nodes.Not, inner)
            | st.builds(lambda a, b: a & b, inner, inner)
            | st.builds(lambda a, b: a | b, inner, inner)
        ),
        max_leaves=6,
    )


def every_test(names, usable=None):
    """Each test of each kind over the columns, with each literal."""
    for name in names:
        column = Column((name,))
        literals = [Literal(v) for v in CASES[name][2] if usable is None or usable(name, v)]
        yield from (nodes.Comparison(op, column, v) for op, v in product(Operator, literals))
        yield from (nodes.Not(nodes.Comparison(op, column, literals[-1])) for op in Operator)
        yield nodes.IsNull(column)
        same_kind = tuple(v for v in literals if type(v.value) is type(CASES[name][1][-1]))
        if same_kind:
            yield nodes.In(column, (*same_kind, Literal(None)))
            yield nodes.Not(nodes.In(column, same_kind[:3]))
            yield nodes.Not(nodes.In(column, same_kind[-3:]))
            yield nodes.Not(nodes.In(column, (*same_kind[:3], Literal(None))))
    for left, right in COMPARABLE:
        if left in names and right in names:
            yield from (nodes.Comparison(op, Column((left,)), Column((right,))) for op in Operator)
    text = Column(("text",))
    for pattern in ("a%", "%b", "_", "a_c", "a\\_c", "%\\%", "_%_", "%", "", "a\\\\b", "a%b", "ab "):
        yield from (nodes.Like(text, pattern), nodes.Not(nodes.Like(text, pattern)))
    yield nodes.Like(text, "a!_c", "!")
    yield from (nodes.StartsWith(text, prefix) for prefix in TEXTS)


def every_row():
    """Rows in which each column has each of its values, next to others, and one of nulls."""
    count = max(len(values) for _, values, _ in CASES.values())
    rows = [
        {name: values[(i * step + j) % len(values)] for j, (name, (_, values, _)) in enumerate(CASES.items())}
        for step, i in product((1, 3), range(count))
    ]
    some_null = [
        {n: v if (i + j) % 3 else None for j, (n, v) in enumerate(row.items())} for i, row in enumerate(rows)
    ]
    return [row | {"row": None} for row in (*rows, *some_null, dict.fromkeys(CASES))]


def truth(predicate, row):
    """TRUE, FALSE or unknown (None) for one row."""
    match predicate:
        case nodes.Constant(value=value):
            return value
        case nodes.Not(child=child):
            inner = truth(child, row)
            return None if inner is None else not inner
        case nodes.And(children=children):
            found = {truth(c, row) for c in children}
            return False if False in found else None if None in found else True
        case nodes.Or(children=children):
            found = {truth(c, row) for c in children}
            return True if True in found else None if None in found else False
        case nodes.IsNull(column=column):
            return _value(column, row)[0] is None
        case nodes.In(column=column, values=values):
            return truth(nodes.any_of(nodes.Comparison(Operator.EQ, column, v) for v in values), row)
        case nodes.StartsWith(column=column, prefix=prefix):
            text, _ = _value(column, row)
            return None if text is None else text[: len(prefix)] == prefix
        case nodes.Like(column=column, pattern=pattern, escape=escape):
            text, _ = _value(column, row)
            return None if text is None else _like(text, split_pattern(pattern, escape))
        case nodes.Comparison(op=op, left=left, right=right):
            return _compare(op, left, right, row)
    raise AssertionError(predicate)


def _like(text, pattern):
    match pattern:
        case ():
            return text == ""
        case (Wildcard.ONE, *rest):
            return text != "" and _like(text[1:], tuple(rest))
        case (Wildcard.MANY, *rest):
            return any(_like(text[i:], tuple(rest)) for i in range(len(text) + 1))
        case (literal, *rest):
            return text.startswith(literal) and _like(text[len(literal) :], tuple(rest))


def _value(column, row):
    value, fields, data_type = row, SCHEMA, None
    for name in column.path:
        data_type = next(f.type for f in fields if f.name == name)
        value = None if value is None else value[name]
        fields = data_type.fields if isinstance(data_type, RowType) else ()
    return value, data_type


def _compare(op, left, right, row):
    value, data_type = _value(left, row)
    if isinstance(right, Column):
        other, other_type = _value(right, row)
        one, two = _column_key(value, data_type, other_type), _column_key(other, other_type, data_type)
    else:
        one, two = _column_key(value, data_type, data_type), _literal_key(right.value, data_type)
    if op is Operator.SAME:
        return one == two
    if one is None or two is None:
        return None
    return {
        Operator.EQ: one == two, Operator.NE: one != two, Operator.LT: one < two,
        Operator.LE: one <= two, Operator.GT: one > two, Operator.GE: one >= two,
    }[op]  # fmt: skip


def _number_key(number):
    """Numbers in an order that NaN ends; infinities around what is finite."""
    if isinstance(number, float) and math.isnan(number):
        return (2, 0)
    if isinstance(number, float) and math.isinf(number):
        return (1, 0) if number > 0 else (-1, 0)
    return (0, Fraction(number))


def _column_key(value, data_type, other_type):
    """What a column's value compares by, next to a column of another type."""
    if value is None:
        return None
    match data_type:
        case VarCharType() | CharType():
            return value.encode()
        case DateType():
            return value * DAY
        case VarBinaryType() | TimestampType() | LocalZonedTimestampType() | TimeType() | BooleanType():
            return value
        case _:
            return _number_key(float(value) if isinstance(other_type, DoubleType | FloatType) else value)


def _literal_key(value, data_type):
    """What a literal compares by, next to a column of that type."""
    if value is None:
        return None
    match data_type:
        case VarCharType() | CharType():
            return value.encode()
        case VarBinaryType():
            return value
        case BooleanType():
            return value if isinstance(value, bool) else value.lower() == "true"
        case TimeType():
            return Fraction(_seconds(value if isinstance(value, str) else value.isoformat())) * 1000
        case DateType() | TimestampType() | LocalZonedTimestampType():
            return _nanos(value)
        case DoubleType() | FloatType():
            try:
                return _number_key(float(value))
            except OverflowError:
                return _number_key(INF if value > 0 else -INF)
        case DecimalType() if isinstance(value, float) and math.isfinite(value):
            return _number_key(Decimal(str(value)))
        case _:
            return _number_key(Decimal(value) if isinstance(value, str) else value)


def _nanos(value):
    if isinstance(value, Timestamp):
        return value.nanos
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days * DAY
    day, _, clock = value.replace("T", " ").partition(" ")
    clock, _, offset = clock.partition("+")
    nanos = _nanos(date.fromisoformat(day)) + (_seconds(clock) * 10**9 if clock else 0)
    return nanos - (_seconds(offset) * 10**9 if offset else 0)


def _seconds(clock):
    parts = [Fraction(part) for part in clock.split(":")]
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


assert all(a < b for a, b in pairwise(sorted(c.encode() for c in TEXTS)))
