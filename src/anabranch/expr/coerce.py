"""Type coercion between values and columns.

`place` finds where a value lies among the values that a column can hold. Comparisons are then exact without
arithmetic on the column: ``i < 5.5`` on integers is ``i <= 5``, and nothing equals 5.5. Which kinds of value a
column takes, and what they mean:

* integers: any number, by its exact value; text that spells a number.
* FLOAT, DOUBLE: any number, first rounded to the nearest double as Spark does; text that spells a number, NaN
  or Infinity. A FLOAT column is compared with that double, not with its nearest FLOAT.
* DECIMAL: exact numbers; floating-point numbers as the shortest decimal that denotes them (0.1 is one tenth);
  text that spells a number.
* CHAR, VARCHAR: text, compared by its UTF-8 bytes. CHAR is compared as it is stored: trailing spaces count.
* BINARY, VARBINARY: bytes, compared as unsigned bytes.
* BOOLEAN: booleans, the texts 'true' and 'false'; FALSE is less than TRUE.
* DATE: dates, text YYYY-MM-DD, timestamps without zone (a date is its midnight).
* TIME: times, text HH:MM:SS.
* TIMESTAMP: timestamps, dates (midnight) and text without a zone.
* TIMESTAMP WITH LOCAL TIME ZONE: timestamps, dates and text; what has no zone is UTC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, time
from decimal import Context, Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.errors import PredicateError
from anabranch.expr.bound import BoundColumn, Physical
from anabranch.expr.values import (
    EPOCH_ORDINAL,
    NANOS_PER_DAY,
    Timestamp,
    Value,
    parse_date,
    parse_decimal,
    parse_double,
    parse_time_nanos,
    parse_timestamp,
    sql_text,
    to_double,
    to_single,
)
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import NANOS_PER_UNIT

INTEGER_BITS: dict[type[t.DataType], int] = {
    t.TinyIntType: 8,
    t.SmallIntType: 16,
    t.IntType: 32,
    t.BigIntType: 64,
}


@dataclass(frozen=True, slots=True)
class Spot:
    """The greatest value of the column's that is not above the value placed, and whether it equals it."""

    value: Physical
    exact: bool


class Beyond(Enum):
    """The value lies outside of all that the column can hold (NaN aside)."""

    BELOW = "below"
    ABOVE = "above"
    NAN = "not a number"
    """Above every number and, in a floating-point column, equal to NaN."""


Place: TypeAlias = Spot | Beyond


def place(column: BoundColumn, value: Value) -> Place:
    """Locate a non-null value among the values of a column.

    Raises:
        PredicateError: the column cannot be compared with this kind of value.
    """
    assert value is not None
    data_type = column.type
    placed: Place | None
    match data_type:
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            placed = _among_integers(value, INTEGER_BITS[type(data_type)])
        case t.DecimalType():
            placed = _among_decimals(value, data_type)
        case t.FloatType() | t.DoubleType():
            placed = _among_floats(value, single=isinstance(data_type, t.FloatType))
        case t.BooleanType():
            placed = _among_booleans(value)
        case t.CharType() | t.VarCharType():
            placed = Spot(value, exact=True) if isinstance(value, str) else None
        case t.BinaryType() | t.VarBinaryType():
            placed = Spot(value, exact=True) if isinstance(value, bytes) else None
        case t.DateType():
            placed = _among_dates(value)
        case t.TimeType():
            placed = _among_times(value)
        case t.TimestampType() | t.LocalZonedTimestampType():
            placed = _among_timestamps(value, data_type)
        case _:
            raise PredicateError(
                f"column {column} is of type {data_type.spelling} and cannot be compared",
                hint="nested columns can be tested with IS NULL and IS NOT NULL; name a field of a ROW as a.b",
            )
    if placed is None:
        raise PredicateError(
            f"column {column} is of type {data_type.spelling} and cannot be compared with {sql_text(value)}",
            hint=_hint(data_type, value),
        )
    return placed


def common_type(left: t.DataType, right: t.DataType) -> pa.DataType | None:
    """The Arrow type that the values of both columns convert to without changing, None if there is none.

    Integers and floating-point columns meet as doubles, as in Spark, where large integers are rounded.
    """
    one, other = to_arrow_type(left), to_arrow_type(right)
    if pa.types.is_nested(one) or pa.types.is_nested(other):
        return None
    if one == other:
        return one
    if pa.types.is_timestamp(one) or pa.types.is_timestamp(other):
        return _common_timestamp(one, other)
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return one if one.bit_width > other.bit_width else other
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other)):
        return pa.float64()
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in (one, other)):
        return _common_decimal(one, other)
    return None


def converts_exactly(old: t.DataType, new: t.DataType) -> bool:
    """Whether reading the old type as the new one keeps every value, and so order, nulls and NaN."""
    match old.with_nullable(True), new.with_nullable(True):
        case a, b if a == b:
            return True
        case (t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType()) as a, b if (
            type(b) in INTEGER_BITS
        ):
            return INTEGER_BITS[type(a)] <= INTEGER_BITS[type(b)]
        case (t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType()) as a, t.DecimalType() as b:
            return b.precision - b.scale >= _digits(INTEGER_BITS[type(a)])
        case ((t.TinyIntType() | t.SmallIntType()), t.FloatType()):
            return True
        case ((t.TinyIntType() | t.SmallIntType() | t.IntType() | t.FloatType()), t.DoubleType()):
            return True
        case t.DecimalType() as a, t.DecimalType() as b:
            return b.scale >= a.scale and b.precision - b.scale >= a.precision - a.scale
        case (t.CharType() | t.VarCharType()) as a, t.VarCharType() as b:
            return b.length >= a.length
        case (t.BinaryType() | t.VarBinaryType()) as a, t.VarBinaryType() as b:
            return b.length >= a.length
        case t.TimestampType() as a, t.TimestampType() as b:
            return b.precision >= a.precision
        case t.LocalZonedTimestampType() as a, t.LocalZonedTimestampType() as b:
            return b.precision >= a.precision
        case _:
            return False


def _number(value: Value) -> Fraction | float | None:
    """The exact number, a float if it is not finite, None if the value is no number."""
    match value:
        case bool():
            return None
        case float() if not math.isfinite(value):
            return value
        case int() | float() | Decimal():
            return Fraction(value)
        case str():
            number = parse_decimal(value)
            return None if number is None else Fraction(number)
        case _:
            return None


def _endless(number: float) -> Beyond:
    if math.isnan(number):
        return Beyond.NAN
    return Beyond.ABOVE if number > 0 else Beyond.BELOW


def _among_integers(value: Value, bits: int) -> Place | None:
    number = _number(value)
    if number is None or isinstance(number, float):
        return None if number is None else _endless(number)
    if number > 2 ** (bits - 1) - 1:
        return Beyond.ABOVE
    if number < -(2 ** (bits - 1)):
        return Beyond.BELOW
    return Spot(math.floor(number), number.denominator == 1)


def _among_decimals(value: Value, data_type: t.DecimalType) -> Place | None:
    number = _number(Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value)
    if number is None or isinstance(number, float):
        return None if number is None else _endless(number)
    unscaled, largest = number * 10**data_type.scale, 10**data_type.precision - 1
    if unscaled > largest:
        return Beyond.ABOVE
    if unscaled < -largest:
        return Beyond.BELOW
    # scaleb rounds to the precision of its context; 38 digits are the most there are.
    return Spot(
        Decimal(math.floor(unscaled)).scaleb(-data_type.scale, Context(prec=38)), unscaled.denominator == 1
    )


def _among_floats(value: Value, *, single: bool) -> Place | None:
    match value:
        case bool():
            return None
        case int() | float() | Decimal():
            number = to_double(value)
        case str():
            parsed = parse_double(value)
            if parsed is None:
                return None
            number = parsed
        case _:
            return None
    if math.isnan(number):
        return Beyond.NAN
    if not single:
        return Spot(number, exact=True)
    nearest = to_single(number)
    if nearest > number:
        return Spot(float(np.nextafter(np.float32(nearest), np.float32(-np.inf))), exact=False)
    return Spot(nearest, nearest == number)


def _among_booleans(value: Value) -> Place | None:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower())
    return Spot(value, exact=True) if isinstance(value, bool) else None


def _among_dates(value: Value) -> Place | None:
    if isinstance(value, str):
        value = parse_date(value)
    match value:
        case Timestamp(nanos=nanos, zoned=False):
            days, rest = divmod(nanos, NANOS_PER_DAY)
            return Spot(days, rest == 0)
        case date():
            return Spot(value.toordinal() - EPOCH_ORDINAL, exact=True)
        case _:
            return None


def _among_times(value: Value) -> Place | None:
    match value:
        case str():
            nanos = parse_time_nanos(value)
        case time():
            seconds = value.hour * 3600 + value.minute * 60 + value.second
            nanos = (seconds * 1_000_000 + value.microsecond) * 1000
        case _:
            nanos = None
    if nanos is None:
        return None
    millis, rest = divmod(nanos, 1_000_000)
    return Spot(millis, rest == 0)


def _among_timestamps(value: Value, data_type: t.TimestampType | t.LocalZonedTimestampType) -> Place | None:
    match value:
        case str():
            moment = parse_timestamp(value)
        case Timestamp():
            moment = value
        case date():
            moment = Timestamp((value.toordinal() - EPOCH_ORDINAL) * NANOS_PER_DAY)
        case _:
            moment = None
    if moment is None or (moment.zoned and isinstance(data_type, t.TimestampType)):
        return None
    arrow_type: Any = to_arrow_type(data_type)
    unit = NANOS_PER_UNIT[arrow_type.unit]
    count, rest = divmod(moment.nanos, unit)
    if count > 2**63 - 1:
        return Beyond.ABOVE
    if count < -(2**63):
        return Beyond.BELOW
    return Spot(count * unit, rest == 0)


def _common_timestamp(one: Any, other: Any) -> pa.DataType | None:
    units = ["s", "ms", "us"]
    if pa.types.is_date(one):
        one, other = other, one
    if pa.types.is_date(other):
        fits = pa.types.is_timestamp(one) and one.tz is None and one.unit in units
        return one if fits else None
    if not (pa.types.is_timestamp(one) and pa.types.is_timestamp(other)) or one.tz != other.tz:
        return None
    # Nanoseconds reach only to 2262: most moments of a coarser column do not convert.
    if one.unit not in units or other.unit not in units:
        return None
    finest: pa.DataType = max(one, other, key=lambda kind: units.index(kind.unit))
    return finest


def _common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    wholes, scales = zip(*(_whole_and_scale(kind) for kind in (one, other)), strict=True)
    precision, scale = max(wholes) + max(scales), max(scales)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _whole_and_scale(data_type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(data_type):
        return data_type.precision - data_type.scale, data_type.scale
    return _digits(data_type.bit_width), 0


def _digits(bits: int) -> int:
    """Decimal digits of the largest integer of so many bits."""
    return len(str(2 ** (bits - 1)))


def _hint(data_type: t.DataType, value: Value) -> str:
    match data_type, value:
        case ((t.CharType() | t.VarCharType()), _):
            return (
                f"write a text: '{sql_text(value)}'"
                if isinstance(value, int | Decimal)
                else "write a text: 'abc'"
            )
        case ((t.BinaryType() | t.VarBinaryType()), _):
            return "write bytes: X'00FF'"
        case t.BooleanType(), _:
            return "write TRUE or FALSE"
        case t.DateType(), _:
            return "write a date: DATE '2026-01-31'"
        case t.TimeType(), _:
            return "write a time: TIME '23:59:59'"
        case t.TimestampType(), _:
            return "write a moment without a zone, which this type does not have: TIMESTAMP '2026-01-31 23:59:59'"
        case t.LocalZonedTimestampType(), _:
            return "write a moment; without a zone it is UTC: TIMESTAMP '2026-01-31 23:59:59+01:00'"
        case _:
            return "write a number"
