"""Translation of a Spark query's filters from Catalyst expressions into our predicates.

Spark filters every row again, so what cannot be said is left out: the result may hold for more rows, never for
fewer. Below NOT that does not go, there a filter is translated exactly or not at all.

What a filter says of a column it says of the values that Spark sees. These differ from what is stored in digits 7
to 9 of timestamps, which Spark does not have, and in times of day, which are numbers to it; statistics are of what
is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr import nodes
from anabranch.expr.bind import bind, resolve
from anabranch.expr.bound import ALWAYS, BoundPredicate, conjunction
from anabranch.expr.nodes import Column, Comparison, Literal, Operator, Predicate, all_of, any_of
from anabranch.expr.values import Timestamp, Value
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.spark.jvm.handles import member_texts
from anabranch.spark.native.catalyst import (
    DECIMAL,
    INTEGERS,
    ExpressionNode,
    Filters,
    literal_of,
    literal_of_text,
)


def predicate_of(filters: Filters, fields: Sequence[t.Field]) -> BoundPredicate | None:
    """Translate filters into a predicate on the columns `fields`; None if nothing can be used.

    Args:
        fields: the columns under the names that the filters know.
    """
    found = conjunction(part for root in filters.parts if (part := _bound(filters, root, fields)) is not None)
    return None if found == ALWAYS else found


def settled_parts(filters: Filters, schema: TableSchema) -> list[ExpressionNode]:
    """Return the filters that choosing partitions settles, so that no row need be filtered by them again.

    They are about partition columns alone, of types whose values Spark and the planner compare alike, and are translated
    exactly.
    """
    plain = {f.name for f in schema.partition_fields if isinstance(f.type, _COMPARED_ALIKE)}
    if not plain:
        return []
    return [
        root
        for root in filters.parts
        if root.columns and root.columns <= plain and _is_exact(filters, root, schema)
    ]


def _is_exact(filters: Filters, root: ExpressionNode, schema: TableSchema) -> bool:
    try:
        said = _Translation(filters, schema.fields)._exact(root)  # noqa: SLF001 - of this module
        return said is not None and bind(said, schema.fields) is not None
    except (PredicateError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class _Operand:
    """A column or nested field, and the Spark type in which it is compared."""

    column: Column
    type: Any
    """Type, as in Spark's JSON."""


def _bound(filters: Filters, root: ExpressionNode, fields: Sequence[t.Field]) -> BoundPredicate | None:
    try:
        parts = [_Translation(filters, fields).of(part) for part in root.chain("And")]
        said = [bind(part, fields) for part in parts if part is not None]
    except (PredicateError, RecursionError):
        return None  # a value that no literal holds, or a text of a thousand nested parentheses
    return conjunction(said) if said else None


_COMPARED_ALIKE = (
    t.TinyIntType,
    t.SmallIntType,
    t.IntType,
    t.BigIntType,
    t.DateType,
    t.BooleanType,
    t.VarCharType,
)
_OPERATORS = {
    "EqualTo": Operator.EQ,
    "EqualNullSafe": Operator.SAME,
    "LessThan": Operator.LT,
    "LessThanOrEqual": Operator.LE,
    "GreaterThan": Operator.GT,
    "GreaterThanOrEqual": Operator.GE,
}


class _Translation:
    """Translator of filter parts; None stands for what cannot be expressed."""

    def __init__(self, filters: Filters, fields: Sequence[t.Field]) -> None:
        self._filters = filters
        self._fields = fields

    def of(self, node: ExpressionNode) -> Predicate | None:
        """Return a predicate that is TRUE wherever the expression is."""
        match node.kind:
            case "And":
                parts = [part for child in node.chain("And") if (part := self.of(child)) is not None]
                return all_of(parts) if parts else None
            case "Or":
                choices = [self.of(child) for child in node.chain("Or")]
                return None if None in choices else any_of(c for c in choices if c is not None)
            case _:
                return self._exact(node)

    def _exact(self, node: ExpressionNode) -> Predicate | None:
        """Return a predicate that is TRUE, FALSE and unknown exactly where the expression is."""
        match node.kind:
            case "And" | "Or":
                parts = [self._exact(child) for child in node.chain(node.kind)]
                join = all_of if node.kind == "And" else any_of
                return None if None in parts else join(part for part in parts if part is not None)
            case "Not":
                child = self._exact(node.children[0])
                return None if child is None else nodes.Not(child)
            case "IsNull" | "IsNotNull":
                return self._null_test(node)
            case "In":
                return self._membership(node.children[0], [self._literal(c) for c in node.children[1:]])
            case "InSet":
                return self._membership(node.children[0], self._members(node))
            case "StartsWith" | "Like":
                return self._text_test(node)
            case "Literal" if node.json["value"] in ("true", "false"):
                return nodes.Constant(node.json["value"] == "true")
            case "AttributeReference" | "GetStructField":
                operand = self._operand(node)
                return None if operand is None else Comparison(Operator.EQ, operand.column, Literal(True))
            case kind if kind in _OPERATORS:
                return self._comparison(_OPERATORS[kind], *node.children)
            case _:
                return None

    def _comparison(self, op: Operator, left: ExpressionNode, right: ExpressionNode) -> Predicate | None:
        if left.kind == "Literal":
            left, right, op = right, left, op.flipped
        operand, value = self._operand(left), self._literal(right)
        if operand is None or value is None or (value.value is None and op is not Operator.SAME):
            return None
        return self._compare(operand.column, op, value.value)

    def _compare(self, column: Column, op: Operator, value: Value) -> Predicate | None:
        stored = resolve(column, self._fields).type
        match stored:
            case t.TimeType() if value is not None:
                value = _time_of(value)
                return None if value is None else Comparison(op, column, Literal(value))
            case t.TimestampType() | t.LocalZonedTimestampType() if (
                stored.precision > _SPARK_DIGITS and isinstance(value, Timestamp)
            ):
                return _compare_cut(column, op, value)
            case _:
                return Comparison(op, column, Literal(value))

    def _membership(self, node: ExpressionNode, values: Sequence[Literal | None] | None) -> Predicate | None:
        operand = self._operand(node)
        if operand is None or not values or None in values:
            return None
        literals = tuple(v for v in values if v is not None)
        if _is_seen_as_stored(resolve(operand.column, self._fields).type):
            return nodes.In(operand.column, literals)
        if any(v.value is None for v in literals):
            return None
        choices = [self._compare(operand.column, Operator.EQ, v.value) for v in literals]
        return None if None in choices else any_of(c for c in choices if c is not None)

    def _null_test(self, node: ExpressionNode) -> Predicate | None:
        operand = self._operand(node.children[0])
        if operand is None:
            return None
        test = nodes.IsNull(operand.column)
        return test if node.kind == "IsNull" else nodes.Not(test)

    def _text_test(self, node: ExpressionNode) -> Predicate | None:
        operand, text = self._operand(node.children[0]), self._literal(node.children[1])
        if operand is None or operand.type != "string" or text is None or not isinstance(text.value, str):
            return None
        if node.kind == "StartsWith":
            return nodes.StartsWith(operand.column, text.value)
        return nodes.Like(operand.column, text.value, str(self._filters.at(node).escapeChar()))

    def _operand(self, node: ExpressionNode) -> _Operand | None:
        """Return the column of an expression: a column itself, or a cast that keeps every value of it."""
        match node.kind:
            case "AttributeReference":
                return _Operand(Column((node.json["name"],)), node.json["dataType"])
            case "GetStructField":
                parent = self._operand(node.children[0])
                if parent is None:
                    return None
                field = parent.type["fields"][node.json["ordinal"]]
                return _Operand(Column((*parent.column.path, field["name"])), field["type"])
            case "NaNvl" if _is_nan(node.children[1]):
                return self._operand(node.children[0])
            case "Cast":
                operand = self._operand(node.children[0])
                if operand is None or not _keeps_values(operand.type, node.json["dataType"]):
                    return None
                return _Operand(operand.column, node.json["dataType"])
            case _:
                return None

    def _literal(self, node: ExpressionNode) -> Literal | None:
        if node.kind != "Literal":
            return None
        data_type, text = node.json["dataType"], node.json["value"]
        if text is None:
            return Literal(None)
        if data_type in ("timestamp", "timestamp_ntz", "binary"):
            text = self._filters.at(node).value()  # as text it has lost its zone, or is no value at all
        return literal_of(data_type, text)

    def _members(self, node: ExpressionNode) -> Sequence[Literal | None] | None:
        """Return the values of a set, which Spark leaves out of its JSON."""
        operand = self._operand(node.children[0])
        if operand is None or not isinstance(operand.type, str):
            return None
        texts = member_texts(self._filters.at(node).hset())
        return None if texts is None else [literal_of_text(operand.type, text) for text in texts]


_SPARK_DIGITS = 6
_CUT = 1000
"""Nanoseconds that Spark cannot tell apart."""


def _is_seen_as_stored(data_type: t.DataType) -> bool:
    match data_type:
        case t.TimeType():
            return False
        case t.TimestampType() | t.LocalZonedTimestampType():
            return data_type.precision <= _SPARK_DIGITS
        case _:
            return True


def _compare_cut(column: Column, op: Operator, value: Timestamp) -> Predicate | None:
    """Translate a comparison of timestamps cut to 6 digits into one of the stored timestamps."""
    start = Literal(value)
    end = Literal(Timestamp(value.nanos + _CUT, zoned=value.zoned))
    match op:
        case Operator.LT | Operator.GE:
            return Comparison(op, column, start)
        case Operator.LE:
            return Comparison(Operator.LT, column, end)
        case Operator.GT:
            return Comparison(Operator.GE, column, end)
        case Operator.EQ:
            return all_of([Comparison(Operator.GE, column, start), Comparison(Operator.LT, column, end)])
        case _:
            return None


def _time_of(millis: Value) -> time | None:
    if not isinstance(millis, int) or not 0 <= millis < 86_400_000:
        return None
    seconds, rest = divmod(millis, 1000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1000)


_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def _keeps_values(source: Any, target: Any) -> bool:
    """Whether a cast between two types, as Spark's JSON has them, keeps every value and their order."""
    if source == target:
        return True
    if not isinstance(source, str) or not isinstance(target, str):
        return False
    wanted = DECIMAL.fullmatch(target)
    if source in INTEGERS:
        if target in INTEGERS:
            return INTEGERS.index(source) < INTEGERS.index(target)
        if wanted is not None:
            return int(wanted[1]) - int(wanted[2]) >= _DIGITS[source]
        return target == "double" and source != "long"
    found = DECIMAL.fullmatch(source)
    if found is not None and wanted is not None:
        wholes = [int(m[1]) - int(m[2]) for m in (found, wanted)]
        return wholes[0] <= wholes[1] and int(found[2]) <= int(wanted[2])
    return (source, target) in (("float", "double"), ("date", "timestamp_ntz"))


def _is_nan(node: ExpressionNode) -> bool:
    return node.kind == "Literal" and node.json["value"] == "NaN"
