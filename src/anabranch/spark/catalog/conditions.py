"""Translation of the condition of INSERT OVERWRITE ... PARTITION from Spark's expressions into our predicates.

Only what both understand alike is translated: a condition on a column whose values are the same here and there.
Floating point numbers (NaN), texts of fixed length and times with more digits than Spark's are not among them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr import nodes as n
from anabranch.expr.values import Timestamp
from anabranch.format.types import data_types as t

_OPERATORS = {str(operator): operator for operator in n.Operator}
_EPOCH = dt.date(1970, 1, 1)
_MICROSECONDS = 6
_ALIKE = (
    *(t.BooleanType, t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType),
    *(t.DecimalType, t.DateType, t.VarCharType, t.TimestampType, t.LocalZonedTimestampType),
)


def translated(predicates: Sequence[Any], fields: Sequence[t.Field]) -> list[tuple[Any, n.Predicate]]:
    """Return the Spark predicates that we can express, each with its translation.

    Args:
        predicates: objects of the JVM, of which all must hold.
    """
    columns = {f.name: f.type for f in fields}
    pairs = [(predicate, _predicate(predicate, columns)) for predicate in predicates]
    return [(predicate, found) for predicate, found in pairs if found is not None]


def _predicate(node: Any, columns: Mapping[str, t.DataType]) -> n.Predicate | None:
    name = node.name()
    children = list(node.children())
    try:
        if name in _COMBINED:
            return _COMBINED[name]([_predicate(child, columns) for child in children])
        if name in ("ALWAYS_TRUE", "ALWAYS_FALSE"):
            return n.TRUE if name == "ALWAYS_TRUE" else n.FALSE
        if name in _OPERATORS:
            return _comparison(_OPERATORS[name], children, columns)
        if name in ("IS_NULL", "IS_NOT_NULL", "IN", "STARTS_WITH"):
            return _of_column(name, children, columns)
    except PredicateError:
        return None
    return None


def _all(parts: list[n.Predicate | None]) -> n.Predicate | None:
    return None if None in parts else n.all_of([p for p in parts if p is not None])


def _any(parts: list[n.Predicate | None]) -> n.Predicate | None:
    return None if None in parts else n.any_of([p for p in parts if p is not None])


def _not(parts: list[n.Predicate | None]) -> n.Predicate | None:
    (part,) = parts
    return None if part is None else n.Not(part)


_COMBINED: dict[str, Callable[[list[n.Predicate | None]], n.Predicate | None]] = {
    "AND": _all,
    "OR": _any,
    "NOT": _not,
}


def _comparison(
    operator: n.Operator, children: Sequence[Any], columns: Mapping[str, t.DataType]
) -> n.Predicate | None:
    left, right = children
    if _column(left, columns) is None:
        left, right, operator = right, left, operator.flipped
    column = _column(left, columns)
    if column is None or not _is_literal(right):
        return None
    value = _literal(right, columns[column.path[0]])
    return None if value is None else n.Comparison(operator, column, value)


def _of_column(name: str, children: Sequence[Any], columns: Mapping[str, t.DataType]) -> n.Predicate | None:
    column = _column(children[0], columns)
    if column is None:
        return None
    if name == "IS_NULL":
        return n.IsNull(column)
    if name == "IS_NOT_NULL":
        return n.Not(n.IsNull(column))
    if not all(_is_literal(child) for child in children[1:]):
        return None
    values = [_literal(child, columns[column.path[0]]) for child in children[1:]]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if name == "IN":
        return n.In(column, tuple(known))
    prefix = known[0].value
    return n.StartsWith(column, prefix) if isinstance(prefix, str) else None


def _column(node: Any, columns: Mapping[str, t.DataType]) -> n.Column | None:
    """The column that the node names, if its values are alike in Spark and here."""
    if not _is(node, "NamedReference"):
        return None
    path = list(node.fieldNames())
    data_type = columns.get(path[0]) if len(path) == 1 else None
    return n.Column((path[0],)) if data_type is not None and _is_alike(data_type) else None


def _is_alike(data_type: t.DataType) -> bool:
    if isinstance(data_type, t.TimestampType | t.LocalZonedTimestampType):
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


def _literal(node: Any, data_type: t.DataType) -> n.Literal | None:
    """The value as a literal, if its type matches the column's."""
    value = node.value()
    kind = str(node.dataType().typeName())
    if value is None:
        return n.Literal(None)
    match data_type:
        case t.BooleanType() if kind == "boolean":
            return n.Literal(bool(value))
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType() if kind in _INTEGERS:
            return n.Literal(int(value))
        case t.DecimalType() if kind.startswith("decimal"):
            return n.Literal(Decimal(value.toString()))
        case t.VarCharType() if kind.startswith(("string", "varchar", "char")):
            return n.Literal(value if isinstance(value, str) else value.toString())
        case t.DateType() if kind == "date":
            return n.Literal(_EPOCH + dt.timedelta(days=int(value)))
        case t.TimestampType() if kind == "timestamp_ntz":
            return n.Literal(Timestamp(int(value) * 1000, zoned=False))
        case t.LocalZonedTimestampType() if kind == "timestamp":
            return n.Literal(Timestamp(int(value) * 1000, zoned=True))
    return None


_INTEGERS = ("byte", "short", "integer", "long")
