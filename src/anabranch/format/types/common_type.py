"""The type in which values of two types are compared: each side keeps every value it has.

Two versions of a table may have widened a column differently, or one of them not at all. Rows of both are read in
one type, which holds all values of both.
"""

from __future__ import annotations

from anabranch.format.types.data_types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DecimalType,
    Field,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.widening import is_wider

_MOST_DIGITS = 38


def common_type(one: DataType, other: DataType) -> DataType | None:
    """The narrowest type that holds the values of both, nulls if one of them does; None if there is none.

    Of rows inside it has the fields that both have, by their ids, under the names and in the order of `other`.
    """
    found = _common(one, other)
    return None if found is None else found.with_nullable(one.nullable or other.nullable)


def common_field(one: Field, other: Field) -> Field | None:
    """The field under the name of `other`, in the common type; None if there is none."""
    found = common_type(one.type, other.type)
    return None if found is None else Field(other.id, other.name, found, other.description)


def _common(one: DataType, other: DataType) -> DataType | None:
    match one, other:
        case RowType(), RowType():
            return _common_row(one, other)
        case ArrayType(element=a), ArrayType(element=b):
            element = common_type(a, b)
            return None if element is None else ArrayType(element)
        case MultisetType(element=a), MultisetType(element=b):
            element = common_type(a, b)
            return None if element is None else MultisetType(element)
        case MapType(key=a, value=v), MapType(key=b, value=w):
            key, value = common_type(a, b), common_type(v, w)
            return None if key is None or value is None else MapType(key, value)
        case CharType() | VarCharType(), CharType() | VarCharType():
            alike = one.with_nullable(True) == other.with_nullable(True)
            return other if alike else VarCharType(max(one.length, other.length))
        case BinaryType() | VarBinaryType(), BinaryType() | VarBinaryType():
            alike = one.with_nullable(True) == other.with_nullable(True)
            return other if alike else VarBinaryType(max(one.length, other.length))
        case DecimalType(), DecimalType():
            scale = max(one.scale, other.scale)
            digits = max(one.precision - one.scale, other.precision - other.scale) + scale
            return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None
        case (
            (TimestampType(), TimestampType())
            | (LocalZonedTimestampType(), LocalZonedTimestampType())
            | (TimeType(), TimeType())
        ):
            return max(one, other, key=lambda t: getattr(t, "precision", 0))
        case _ if is_wider(one, other):
            return other
        case _ if is_wider(other, one):
            return one
        case _:
            return None


def _common_row(one: RowType, other: RowType) -> DataType | None:
    known = {f.id: f for f in one.fields}
    shared = [common_field(known[f.id], f) for f in other.fields if f.id in known]
    found = tuple(f for f in shared if f is not None)
    return RowType(found) if found and len(found) == len(shared) else None
