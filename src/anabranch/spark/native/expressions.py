"""Filters of a Spark query, as Spark plans with them, as predicates that our planner understands.

Spark filters every row again, so what cannot be said is left out: the result may hold for more rows, never for
fewer. Below NOT that does not go, there a filter is translated exactly or not at all.

What a filter says of a column it says of the values that Spark sees. These differ from what is stored in digits 7
to 9 of timestamps, which Spark does not have, and in times of day, which are numbers to it; statistics are of what
is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr import nodes
from anabranch.expr.bind import BoundPredicate, bind, resolve
from anabranch.expr.bound import ALWAYS, conjunction
from anabranch.expr.nodes import Column, Comparison, Literal, Operator, Predicate, all_of, any_of
from anabranch.expr.values import EPOCH_ORDINAL, Timestamp, Value, to_single
from anabranch.spec.types import DataType, Field, LocalZonedTimestampType, TimestampType, TimeType


def predicate_of(expressions: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    """What filters ask of the columns `fields`, all of them together; None if nothing that we can use.

    Args:
        expressions: a Scala ``Seq`` of Catalyst expressions.
        fields: the columns under the names that the expressions know.
    """
    found = conjunction(
        part
        for i in range(expressions.length())
        if (part := _bound(expressions.apply(i), fields)) is not None
    )
    return None if found == ALWAYS else found


def understood(expression: Any, fields: Sequence[Field]) -> bool:
    """Whether a Catalyst expression can be said, at least in part."""
    return _bound(expression, fields) is not None


def columns_in(expression: Any) -> set[str]:
    """Names of the top-level columns that a Catalyst expression looks at."""
    return {node["name"] for node in json.loads(expression.toJSON()) if _name(node) == "AttributeReference"}


@dataclass(frozen=True, slots=True)
class _Node:
    """A Catalyst expression."""

    number: int
    """Its place in the whole expression, by which the JVM finds it."""
    kind: str
    """Name of its class, without the package."""
    json: dict[str, Any]
    children: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Operand:
    """A column, or a field inside of one, and the Spark type in which it is compared."""

    column: Column
    type: Any
    """As Spark's JSON has it."""


def _bound(expression: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    try:
        root = _tree(json.loads(expression.toJSON()))
        parts = [_Translation(expression, fields).of(part) for part in _chain(root, "And")]
        said = [bind(part, fields) for part in parts if part is not None]
    except (PredicateError, RecursionError):
        return None  # a value that no literal holds, or a text of a thousand nested parentheses
    return conjunction(said) if said else None


def _tree(flat: list[dict[str, Any]]) -> _Node:
    """The expression from its nodes, each followed by its children."""
    done: list[_Node] = []
    for number in range(len(flat) - 1, -1, -1):
        found = flat[number]
        children = tuple(done.pop() for _ in range(found["num-children"]))
        done.append(_Node(number, _name(found), found, children))
    return done[0]


def _name(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _chain(node: _Node, kind: str) -> Iterator[_Node]:
    """The parts that ANDs or ORs join, however they are nested: Spark nests as many as there are."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if part.kind == kind:
            waiting.extend(reversed(part.children))
        else:
            yield part


_OPERATORS = {
    "EqualTo": Operator.EQ,
    "EqualNullSafe": Operator.SAME,
    "LessThan": Operator.LT,
    "LessThanOrEqual": Operator.LE,
    "GreaterThan": Operator.GT,
    "GreaterThanOrEqual": Operator.GE,
}


class _Translation:
    """Translates the parts of one expression; None stands for what cannot be said."""

    def __init__(self, expression: Any, fields: Sequence[Field]) -> None:
        self._expression = expression
        self._fields = fields

    def of(self, node: _Node) -> Predicate | None:
        """A predicate that is TRUE wherever the expression is."""
        match node.kind:
            case "And":
                parts = [part for child in _chain(node, "And") if (part := self.of(child)) is not None]
                return all_of(parts) if parts else None
            case "Or":
                choices = [self.of(child) for child in _chain(node, "Or")]
                return None if None in choices else any_of(c for c in choices if c is not None)
            case _:
                return self._exact(node)

    def _exact(self, node: _Node) -> Predicate | None:
        """A predicate that is TRUE, FALSE and unknown where the expression is."""
        match node.kind:
            case "And" | "Or":
                parts = [self._exact(child) for child in _chain(node, node.kind)]
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

    def _comparison(self, op: Operator, left: _Node, right: _Node) -> Predicate | None:
        if left.kind == "Literal":
            left, right, op = right, left, op.flipped
        operand, value = self._operand(left), self._literal(right)
        if operand is None or value is None or (value.value is None and op is not Operator.SAME):
            return None
        return self._compare(operand.column, op, value.value)

    def _compare(self, column: Column, op: Operator, value: Value) -> Predicate | None:
        stored = resolve(column, self._fields).type
        match stored:
            case TimeType() if value is not None:
                value = _time_of(value)
                return None if value is None else Comparison(op, column, Literal(value))
            case TimestampType() | LocalZonedTimestampType() if (
                stored.precision > _SPARK_DIGITS and isinstance(value, Timestamp)
            ):
                return _compare_cut(column, op, value)
            case _:
                return Comparison(op, column, Literal(value))

    def _membership(self, node: _Node, values: Sequence[Literal | None] | None) -> Predicate | None:
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

    def _null_test(self, node: _Node) -> Predicate | None:
        operand = self._operand(node.children[0])
        if operand is None:
            return None
        test = nodes.IsNull(operand.column)
        return test if node.kind == "IsNull" else nodes.Not(test)

    def _text_test(self, node: _Node) -> Predicate | None:
        operand, text = self._operand(node.children[0]), self._literal(node.children[1])
        if operand is None or operand.type != "string" or text is None or not isinstance(text.value, str):
            return None
        if node.kind == "StartsWith":
            return nodes.StartsWith(operand.column, text.value)
        return nodes.Like(operand.column, text.value, str(self._at(node).escapeChar()))

    def _operand(self, node: _Node) -> _Operand | None:
        """The column that an expression is, if it is one or keeps every value of it."""
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

    def _literal(self, node: _Node) -> Literal | None:
        if node.kind != "Literal":
            return None
        data_type, text = node.json["dataType"], node.json["value"]
        if text is None:
            return Literal(None)
        if data_type in ("timestamp", "timestamp_ntz", "binary"):
            text = self._at(node).value()  # as text it has lost its zone, or is no value at all
        return _value(data_type, text)

    def _members(self, node: _Node) -> Sequence[Literal | None] | None:
        """The values of a set, which Spark leaves out of its JSON."""
        operand = self._operand(node.children[0])
        if operand is None or not isinstance(operand.type, str):
            return None
        texts = _texts(self._at(node).hset())
        return None if texts is None else [literal_of_text(operand.type, text) for text in texts]

    def _at(self, node: _Node) -> Any:
        """The expression in the JVM."""
        return self._expression.apply(node.number)


_SPARK_DIGITS = 6
_CUT = 1000
"""Nanoseconds that are one moment to Spark."""


def _is_seen_as_stored(data_type: DataType) -> bool:
    match data_type:
        case TimeType():
            return False
        case TimestampType() | LocalZonedTimestampType():
            return data_type.precision <= _SPARK_DIGITS
        case _:
            return True


def _compare_cut(column: Column, op: Operator, value: Timestamp) -> Predicate | None:
    """A comparison of the moment without digits 7 to 9, by the moment with them."""
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


_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def _keeps_values(source: Any, target: Any) -> bool:
    """Whether a cast between two types, as Spark's JSON has them, keeps every value and their order."""
    if source == target:
        return True
    if not isinstance(source, str) or not isinstance(target, str):
        return False
    wanted = _DECIMAL.fullmatch(target)
    if source in _INTEGERS:
        if target in _INTEGERS:
            return _INTEGERS.index(source) < _INTEGERS.index(target)
        if wanted is not None:
            return int(wanted[1]) - int(wanted[2]) >= _DIGITS[source]
        return target == "double" and source != "long"
    found = _DECIMAL.fullmatch(source)
    if found is not None and wanted is not None:
        wholes = [int(m[1]) - int(m[2]) for m in (found, wanted)]
        return wholes[0] <= wholes[1] and int(found[2]) <= int(wanted[2])
    return (source, target) in (("float", "double"), ("date", "timestamp_ntz"))


def _is_nan(node: _Node) -> bool:
    return node.kind == "Literal" and node.json["value"] == "NaN"


def _value(data_type: Any, found: Any) -> Literal | None:
    """A literal from its Spark type and the text or value that the JVM gave; None if we have no such."""
    if not isinstance(data_type, str):
        return None
    made = _MAKERS["decimal"] if _DECIMAL.fullmatch(data_type) else _MAKERS.get(data_type)
    return None if made is None else Literal(made(found))


def literal_of_text(data_type: Any, text: str) -> Literal | None:
    """A literal from the text of a value as the JVM keeps it: days of dates, microseconds of timestamps.

    None if there is no such literal, or if it cannot be told from null.
    """
    if text in ("null", "None") or not isinstance(data_type, str):
        return None
    if data_type == "date":
        return Literal(date.fromordinal(int(text) + EPOCH_ORDINAL)) if _has_ordinal(int(text)) else None
    if data_type == "binary":
        return None
    return _value(data_type, int(text) if data_type.startswith("timestamp") else text)


def _has_ordinal(days: int) -> bool:
    return 1 <= days + EPOCH_ORDINAL <= date.max.toordinal()


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise PredicateError(f"{text} is no date of the years 1 to 9999") from error


_MAKERS: dict[str, Callable[[Any], Value]] = {
    **dict.fromkeys(_INTEGERS, int),
    "float": lambda text: to_single(float(text)),
    "double": float,
    "decimal": Decimal,
    "boolean": lambda text: text == "true",
    "string": str,
    "binary": bytes,
    "date": _date,
    "timestamp": lambda micros: Timestamp(micros * 1000, zoned=True),
    "timestamp_ntz": lambda micros: Timestamp(micros * 1000),
}
"""How literals are made of what the JVM says; of Spark's other types we have none."""

_SEPARATORS = ("\x1f", "\x1e", "\x00\x1f\x00")


def _texts(members: Any) -> list[str] | None:
    """The members of a Scala set as texts, in one call; None if no separator keeps them apart."""
    size = int(members.size())
    for separator in _SEPARATORS:
        texts = str(members.mkString(separator)).split(separator)
        if len(texts) == size:
            return texts
    return None
