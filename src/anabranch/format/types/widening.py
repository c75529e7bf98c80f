"""Type changes that keep every value."""

from __future__ import annotations

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
