"""Random columns and values for Spark to write, with those that are hard to keep."""

from datetime import date, datetime, timedelta
from decimal import Context, Decimal

import pyarrow as pa

from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from anabranch.spark.types.columns import arrow_schema

EVERY_TYPE = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DATE, i TIME(3), j CHAR(5), k VARCHAR(20), "
    "l STRING, m BINARY(4), n VARBINARY(9), o BYTES, p DECIMAL(9, 2), q DECIMAL(18, 0), r DECIMAL(38, 10), s TIMESTAMP(0), "
    "t TIMESTAMP(3), u TIMESTAMP(6), v TIMESTAMP(9), w TIMESTAMP(0) WITH LOCAL TIME ZONE, "
    "x TIMESTAMP(3) WITH LOCAL TIME ZONE, y TIMESTAMP(6) WITH LOCAL TIME ZONE, aa ARRAY<FLOAT>, "
    "ab MAP<STRING, ARRAY<DECIMAL(20, 3)>>, ac MULTISET<INT>, "
    "ad ROW<x DOUBLE, y ARRAY<TIMESTAMP(9)>, z ROW<u TIME(0) NOT NULL, w ARRAY<BIGINT NOT NULL>>>, ae INT NOT NULL, "
    "af MAP<INT, ROW<k VARCHAR(3)> NOT NULL>"
)
LEAVES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(3)", "CHAR(3)", "VARCHAR(6)",
    "STRING", "BINARY(3)", "BYTES", "DECIMAL(5, 5)", "DECIMAL(18, 3)", "DECIMAL(38, 0)", "TIMESTAMP(0)", "TIMESTAMP(2)",
    "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
)  # fmt: skip
KEYS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "STRING", "VARCHAR(6)", "DECIMAL(7, 2)")
_TEXTS = (
    "",
    " ",
    "a",
    "ü",
    "x/y=z%",
    "日本",
    "\U0001f600" * 3,
    "\t",
    "__DEFAULT_PARTITION__",
    "\u00a0",
    "\x85",
    "'\"",
)
_WIDE = Context(prec=60)
_DAYS = (date.min, date.max, date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1582, 10, 10))
_FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -3.25, 5e-324)


def random_type(chance, depth=0):
    """A type as DDL, nested or not."""
    kind = chance.random()
    if depth == 2 or kind < 0.7:
        return chance.choice(LEAVES)
    inner = [random_type(chance, depth + 1) + chance.choice(["", " NOT NULL"]) for _ in range(2)]
    if kind < 0.8:
        return f"ARRAY<{inner[0]}>"
    if kind < 0.9:
        return f"MAP<{chance.choice(['INT', 'STRING'])}, {inner[1]}>"
    return f"ROW<p {inner[0]}, q {inner[1]}>"


def random_columns(chance, count):
    return ", ".join(f"c{i} {random_type(chance)}" for i in range(count))


def random_rows(chance, fields, count):
    """Rows in the Arrow types in which Spark takes them."""
    schema = arrow_schema(fields)
    columns = [
        pa.array([value(chance, f.type) for _ in range(count)], to)
        for f, to in zip(fields, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def value(chance, kind, *, nulls=0.15):
    """One value as PyArrow takes it for the Arrow type of Spark."""
    if kind.nullable and chance.random() < nulls:
        return None
    match kind:
        case BooleanType():
            return chance.random() < 0.5
        case TinyIntType() | SmallIntType() | IntType() | BigIntType():
            bits = {TinyIntType: 7, SmallIntType: 15, IntType: 31, BigIntType: 63}[type(kind)]
            return chance.choice([0, 1, -1, 7, 2**bits - 1, -(2**bits)])
        case FloatType() | DoubleType():
            return chance.choice(_FLOATS)
        case DateType():
            return chance.choice(_DAYS)
        case TimeType():
            return chance.choice([0, 1_000, 86_399_000])
        case CharType(length=length) | VarCharType(length=length):
            return (chance.choice(_TEXTS) + chance.choice(["", "z" * 20]))[:length]
        case BinaryType(length=length) | VarBinaryType(length=length):
            return chance.randbytes(chance.randrange(min(length, 12) + 1))
        case DecimalType(precision=precision, scale=scale):
            most = 10**precision - 1
            return Decimal(chance.choice([0, 1, -1, most, -most, chance.randint(-most, most)])).scaleb(
                -scale, _WIDE
            )
        case TimestampType(precision=precision) | LocalZonedTimestampType(precision=precision):
            day = chance.choice(_DAYS if precision <= 6 else _DAYS[2:5])
            digits = {0: 0, 1: 3, 2: 3, 3: 3}.get(precision, 6)
            micros = chance.randrange(10**digits) * 10 ** (6 - digits)
            return datetime(day.year, day.month, day.day, 23, 59, 59) + timedelta(microseconds=micros)
        case ArrayType(element=element):
            return [value(chance, element) for _ in range(chance.randrange(4))]
        case MapType(key=key, value=item):
            return [(k, value(chance, item)) for k in _distinct(chance, key)]
        case MultisetType(element=element):
            return [(k, chance.randrange(1, 9)) for k in _distinct(chance, element)]
        case RowType(fields=fields):
            return {f.name: value(chance, f.type) for f in fields}
    raise AssertionError(kind)


def _distinct(chance, kind):
    return {repr(k): k for k in (value(chance, kind, nulls=0) for _ in range(chance.randrange(3)))}.values()
