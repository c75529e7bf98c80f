"""Translation of an overwrite's condition from Spark's expressions into our predicates.

Only what both understand alike is translated: a condition on a column whose values are the same here and there.
Floating point numbers (NaN), texts of fixed length and times with more digits than Spark's are not among them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr.nodes import (
    FALSE,
    TRUE,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)
from anabranch.expr.values import Timestamp
from anabranch.format.types.data_types import (
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    Field,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TinyIntType,
    VarCharType,
)

_OPERATORS = {str(operator): operator for operator in Operator}
_EPOCH = dt.date(1970, 1, 1)
_MICROSECONDS = 6
_ALIKE = (
    *(BooleanType, TinyIntType, SmallIntType, IntType, BigIntType),
    *(DecimalType, DateType, VarCharType, TimestampType, LocalZonedTimestampType),
)


def translated(predicates: Sequence[Any], fields: Sequence[Field]) -> list[tuple[Any, Predicate]]:
    """Return the Spark predicates that we can express, each with its translation.

    Args:
        predicates: objects of the JVM, of which all must hold.
        fields: columns of the table.
    """
    columns = {f.name: f.type for f in fields}
    pairs = [(predicate, _predicate(predicate, columns)) for predicate in predicates]
    return [(predicate, found) for predicate, found in pairs if found is not None]


def _predicate(node: Any, columns: Mapping[str, DataType]) -> Predicate | None:
    name = node.name()
    children = list(node.children())
    try:
        if name in _COMBINED:
            return _COMBINED[name]([_predicate(child, columns) for child in children])
        if name in ("ALWAYS_TRUE", "ALWAYS_FALSE"):
            return TRUE if name == "ALWAYS_TRUE" else FALSE
        if name in _OPERATORS:
            return _comparison(_OPERATORS[name], children, columns)
        if name in ("IS_NULL", "IS_NOT_NULL", "IN", "STARTS_WITH"):
            return _of_column(name, children, columns)
    except PredicateError:
        return None
    return None


def _all(parts: list[Predicate | None]) -> Predicate | None:
    return None if None in parts else all_of([p for p in parts if p is not None])


def _any(parts: list[Predicate | None]) -> Predicate | None:
    return None if None in parts else any_of([p for p in parts if p is not None])


def _not(parts: list[Predicate | None]) -> Predicate | None:
    (part,) = parts
    return None if part is None else Not(part)


_COMBINED: dict[str, Callable[[list[Predicate | None]], Predicate | None]] = {
    "AND": _all,
    "OR": _any,
    "NOT": _not,
}


def _comparison(
    operator: Operator, children: Sequence[Any], columns: Mapping[str, DataType]
) -> Predicate | None:
    left, right = children
    if _column(left, columns) is None:
        left, right, operator = right, left, operator.flipped
    column = _column(left, columns)
    if column is None or not _is_literal(right):
        return None
    value = _literal(right, columns[column.path[0]])
    return None if value is None else Comparison(operator, column, value)


def _of_column(name: str, children: Sequence[Any], columns: Mapping[str, DataType]) -> Predicate | None:
    column = _column(children[0], columns)
    if column is None:
        return None
    if name == "IS_NULL":
        return IsNull(column)
    if name == "IS_NOT_NULL":
        return Not(IsNull(column))
    if not all(_is_literal(child) for child in children[1:]):
        return None
    values = [_literal(child, columns[column.path[0]]) for child in children[1:]]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if name == "IN":
        return In(column, tuple(known))
    prefix = known[0].value
    return StartsWith(column, prefix) if isinstance(prefix, str) else None


def _column(node: Any, columns: Mapping[str, DataType]) -> Column | None:
    """The column that the node names, if its values are alike in Spark and here."""
    if not _is(node, "NamedReference"):
        return None
    path = list(node.fieldNames())
    data_type = columns.get(path[0]) if len(path) == 1 else None
    return Column((path[0],)) if data_type is not None and _is_alike(data_type) else None


def _is_alike(data_type: DataType) -> bool:
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return data_type.precision <= _MICROSECONDS
    return isinstance(data_type, _ALIKE)


def _is_literal(node: Any) -> bool:
    return _is(node, "Literal")


def _is(node: Any, interface: str) -> bool:
    """Whether the object is a Spark expression of that kind."""
    return bool(
        node.getClass()
        .getClassLoader()
        .loadClass(f"org.apache.spark.sql.connector.expressions.{interface}")
        .isInstance(node)
    )


def _literal(node: Any, data_type: DataType) -> Literal | None:
    """The value as a literal, if its type matches the column's."""
    value = node.value()
    kind = str(node.dataType().typeName())
    if value is None:
        return Literal(None)
    match data_type:
        case BooleanType() if kind == "boolean":
            return Literal(bool(value))
        case TinyIntType() | SmallIntType() | IntType() | BigIntType() if kind in _INTEGERS:
            return Literal(int(value))
        case DecimalType() if kind.startswith("decimal"):
            return Literal(Decimal(value.toString()))
        case VarCharType() if kind.startswith(("string", "varchar", "char")):
            return Literal(value if isinstance(value, str) else value.toString())
        case DateType() if kind == "date":
            return Literal(_EPOCH + dt.timedelta(days=int(value)))
        case TimestampType() if kind == "timestamp_ntz":
            return Literal(Timestamp(int(value) * 1000, zoned=False))
        case LocalZonedTimestampType() if kind == "timestamp":
            return Literal(Timestamp(int(value) * 1000, zoned=True))
    return None


_INTEGERS = ("byte", "short", "integer", "long")
