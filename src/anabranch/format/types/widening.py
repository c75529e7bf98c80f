"""Type changes: those that keep every value, and those across which files of another schema are read."""

from __future__ import annotations

from enum import Enum, auto

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t

_WIDER: dict[type[t.DataType], tuple[type[t.DataType], ...]] = {
    t.TinyIntType: (t.SmallIntType, t.IntType, t.BigIntType, t.FloatType, t.DoubleType),
    t.SmallIntType: (t.IntType, t.BigIntType, t.FloatType, t.DoubleType),
    t.IntType: (t.BigIntType, t.DoubleType),
    t.BigIntType: (),
    t.FloatType: (t.DoubleType,),
}
"""Numbers that hold all numbers of another type; an INT may not fit a FLOAT, nor a BIGINT a DOUBLE."""

_DIGITS: dict[type[t.DataType], int] = {
    t.TinyIntType: 3,
    t.SmallIntType: 5,
    t.IntType: 10,
    t.BigIntType: 19,
}
"""Integer types, narrow to wide, and the decimal digits of their values."""


class ReadAs(Enum):
    """How values of a file's type become values of the table's."""

    SAME = auto()
    CAST = auto()
    ROUNDED = auto()
    """Large integers become the nearest floating-point number, as Java does it."""
    DIGITS = auto()
    """An integer becomes a DECIMAL by way of one with the integer's digits."""
    TEXT = auto()
    """Cut to the length, as Paimon reads it, and padded to that of a CHAR."""
    TIME = auto()
    """A moment in a precision at least as fine."""


def reading(source: t.DataType, target: t.DataType) -> ReadAs | None:
    """Return how single values of one type are read as another; None if that is not offered."""
    digits = digits_of(source)
    match source, target:
        case _, t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            return ReadAs.CAST if digits is not None and digits <= _DIGITS[type(target)] else None
        case (_, t.FloatType() | t.DoubleType()) if digits is not None:
            return ReadAs.ROUNDED
        case (_, t.DecimalType()) if digits is not None and target.precision - target.scale >= digits:
            return ReadAs.DIGITS
        case (t.FloatType(), t.DoubleType()):
            return ReadAs.CAST
        case (t.DecimalType(), t.DecimalType()) if is_wider(source, target):
            return ReadAs.CAST
        case (t.CharType() | t.VarCharType(), t.CharType() | t.VarCharType()):
            return ReadAs.TEXT
        case (t.BinaryType() | t.VarBinaryType(), t.VarBinaryType()) if target.length >= source.length:
            return ReadAs.SAME
        case (t.TimestampType(), t.TimestampType()) if target.precision >= source.precision:
            return ReadAs.TIME
        case (t.LocalZonedTimestampType(), t.LocalZonedTimestampType()) if (
            target.precision >= source.precision
        ):
            return ReadAs.TIME
        case (t.TimeType(), t.TimeType()):
            return ReadAs.SAME
        case _:
            return None


def digits_of(data_type: t.DataType) -> int | None:
    """Return the decimal digits of an integer type; None for another type."""
    return _DIGITS.get(type(data_type))


def is_wider(old: t.DataType, new: t.DataType) -> bool:
    """Whether `new` holds every value of `old`, so that files written with `old` can be read as `new`.

    Nullability is not compared. Types of other kinds than these are only as wide as themselves: integers,
    FLOAT and DOUBLE, DECIMAL with as many digits on both sides of the point, VARCHAR at least as long.
    """
    if old.with_nullable(True) == new.with_nullable(True):
        return True
    match old, new:
        case t.DecimalType(precision=p, scale=s), t.DecimalType(precision=wider_p, scale=wider_s):
            return wider_s >= s and wider_p - wider_s >= p - s
        case t.VarCharType(length=length), t.VarCharType(length=longer):
            return longer >= length
        case _:
            return type(new) in _WIDER.get(type(old), ())


def widen(old: t.DataType, new: t.DataType, where: str) -> t.DataType:
    """`new` with the nullability of `old`.

    Raises:
        SchemaError: `new` does not hold every value of `old`, or it forbids nulls and `old` does not.
    """
    if old.nullable and not new.nullable:
        raise SchemaError(
            f"{where} has nulls allowed and cannot become NOT NULL", hint="give the type without NOT NULL."
        )
    if not is_wider(old, new):
        raise SchemaError(
            f"{where} is {old.spelling} and cannot become {new.spelling}, which does not hold all its values",
            hint=_advice(old),
        )
    return new.with_nullable(old.nullable)


def _advice(old: t.DataType) -> str:
    if not t.is_atomic(old):
        return "name the inner field by its path, for example ('a', 'element', 'b')."
    match old:
        case t.DecimalType():
            return "take a DECIMAL with at least as many digits before and after the point."
        case t.VarCharType():
            return "take a longer VARCHAR, or STRING."
    names = [_spelling(wider) for wider in _WIDER.get(type(old), ())]
    if not names:
        return "add a column of the new type instead, and drop the old one."
    return f"it can become {', '.join(names)}; for another type add a new column."


def _spelling(data_type: type[t.DataType]) -> str:
    return data_type().spelling
