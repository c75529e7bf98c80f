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
    names = [wider().spelling for wider in _WIDER.get(type(old), ())]
    if not names:
        return "add a column of the new type instead, and drop the old one."
    return f"it can become {', '.join(names)}; for another type add a new column."


# The type in which values of two types are compared: each side keeps every value it has.
#
# Two versions of a table may have widened a column differently, or one of them not at all. Rows of both are read in
# one type, which holds all values of both.

_MOST_DIGITS = 38


def common_type(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """The narrowest type that holds the values of both, nulls if one of them does; None if there is none.

    Of rows inside it has the fields that both have, by their ids, under the names and in the order of `other`.
    """
    found = _common(one, other)
    return None if found is None else found.with_nullable(one.nullable or other.nullable)


def common_field(one: t.Field, other: t.Field) -> t.Field | None:
    """The field under the name of `other`, in the common type; None if there is none."""
    found = common_type(one.type, other.type)
    return None if found is None else t.Field(other.id, other.name, found, other.description)


def _common(one: t.DataType, other: t.DataType) -> t.DataType | None:
    match one, other:
        case t.RowType(), t.RowType():
            return _common_row(one, other)
        case t.ArrayType(element=a), t.ArrayType(element=b):
            element = common_type(a, b)
            return None if element is None else t.ArrayType(element)
        case t.MultisetType(element=a), t.MultisetType(element=b):
            element = common_type(a, b)
            return None if element is None else t.MultisetType(element)
        case t.MapType(key=a, value=v), t.MapType(key=b, value=w):
            key, value = common_type(a, b), common_type(v, w)
            return None if key is None or value is None else t.MapType(key, value)
        case t.CharType() | t.VarCharType(), t.CharType() | t.VarCharType():
            alike = one.with_nullable(True) == other.with_nullable(True)
            return other if alike else t.VarCharType(max(one.length, other.length))
        case t.BinaryType() | t.VarBinaryType(), t.BinaryType() | t.VarBinaryType():
            alike = one.with_nullable(True) == other.with_nullable(True)
            return other if alike else t.VarBinaryType(max(one.length, other.length))
        case t.DecimalType(), t.DecimalType():
            scale = max(one.scale, other.scale)
            digits = max(one.precision - one.scale, other.precision - other.scale) + scale
            return t.DecimalType(digits, scale) if digits <= _MOST_DIGITS else None
        case (
            (t.TimestampType(), t.TimestampType())
            | (t.LocalZonedTimestampType(), t.LocalZonedTimestampType())
            | (t.TimeType(), t.TimeType())
        ):
            return max(one, other, key=lambda kind: getattr(kind, "precision", 0))
        case _ if is_wider(one, other):
            return other
        case _ if is_wider(other, one):
            return one
        case _:
            return None


def _common_row(one: t.RowType, other: t.RowType) -> t.DataType | None:
    known = {f.id: f for f in one.fields}
    shared = [common_field(known[f.id], f) for f in other.fields if f.id in known]
    found = tuple(f for f in shared if f is not None)
    return t.RowType(found) if found and len(found) == len(shared) else None
