"""The type in which values of two types are compared: each side keeps every value it has.

Two versions of a table may have widened a column differently, or one of them not at all. Rows of both are read in
one type, which holds all values of both.
"""

from __future__ import annotations

from anabranch.format.types import data_types as t
from anabranch.format.types.widening import is_wider

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
