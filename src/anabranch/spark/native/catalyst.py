"""Filters of a query as Spark plans with them: expressions of its optimiser, Catalyst, as values here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr.nodes import Literal
from anabranch.expr.values import EPOCH_ORDINAL, Timestamp, Value, to_single
from anabranch.lazy import lazy
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.internals import expressions_json, joined


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """An expression node."""

    number: int
    """Index in the whole tree, by which the JVM finds it."""
    kind: str
    """Class name, without the package."""
    json: dict[str, Any]
    children: tuple[ExpressionNode, ...]

    def chain(self, kind: str) -> Iterator[ExpressionNode]:
        """Yield the parts that nested ANDs or ORs join; iterative, as Spark nests them arbitrarily deep."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            if part.kind == kind:
                waiting.extend(reversed(part.children))
            else:
                yield part

    @property
    def columns(self) -> set[str]:
        """Names of the top-level columns that the expression uses."""
        found, waiting = set(), [self]
        while waiting:
            part = waiting.pop()
            waiting.extend(part.children)
            if part.kind == "AttributeReference":
                found.add(str(part.json["name"]))
        return found


class Filters:
    """Expressions, all of which must hold.

    Args:
        expressions: a Scala ``Seq`` of Catalyst expressions.
    """

    def __init__(self, jvm: Jvm, expressions: Any) -> None:
        self._jvm = jvm
        self.expressions = expressions

    @lazy
    def parts(self) -> tuple[ExpressionNode, ...]:
        """The expressions as trees, in their order."""
        return _tree(json.loads(expressions_json(self._jvm, self.expressions))).children

    def at(self, node: ExpressionNode) -> Any:
        """Return an expression as a JVM object."""
        return self._whole.apply(node.number)

    def without(self, names: Collection[str]) -> Any:
        """Return a Scala ``Seq`` of the expressions that use no column of these names."""
        kept = [part for part in self.parts if part.columns.isdisjoint(names)]
        if len(kept) == len(self.parts):
            return self.expressions
        return self._jvm.seq(self.at(part) for part in kept)

    @lazy
    def _whole(self) -> Any:
        return joined(self._jvm, self.expressions)


def _tree(flat: list[dict[str, Any]]) -> ExpressionNode:
    """Rebuild the expression tree from its nodes, each followed by its children."""
    done: list[ExpressionNode] = []
    for number in range(len(flat) - 1, -1, -1):
        found = flat[number]
        children = tuple(done.pop() for _ in range(found["num-children"]))
        done.append(ExpressionNode(number, str(found["class"]).rpartition(".")[2], found, children))
    return done[0]


INTEGERS = ("byte", "short", "integer", "long")
"""Spark's integer types as in its JSON, narrowest first."""
DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def literal_of(data_type: Any, found: Any) -> Literal | None:
    """Return a literal for a Spark type and the JVM's text or value; None if we have no such literal."""
    if not isinstance(data_type, str):
        return None
    made = _MAKERS["decimal"] if DECIMAL.fullmatch(data_type) else _MAKERS.get(data_type)
    return None if made is None else Literal(made(found))


def literal_of_text(data_type: Any, text: str) -> Literal | None:
    """Return a literal from the JVM's text of a value: days of dates, microseconds of timestamps.

    None if there is no such literal, or if it cannot be told from null.
    """
    if text in ("null", "None") or not isinstance(data_type, str):
        return None
    if data_type == "date":
        return Literal(date.fromordinal(int(text) + EPOCH_ORDINAL)) if _has_ordinal(int(text)) else None
    if data_type == "binary":
        return None
    return literal_of(data_type, int(text) if data_type.startswith("timestamp") else text)


def _has_ordinal(days: int) -> bool:
    return 1 <= days + EPOCH_ORDINAL <= date.max.toordinal()


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise PredicateError(f"{text} is no date of the years 1 to 9999") from error


_MAKERS: dict[str, Callable[[Any], Value]] = {
    **dict.fromkeys(INTEGERS, int),
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
"""Constructors of literals by Spark type; other types have no literals here."""
