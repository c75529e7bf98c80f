"""Filters of a query as Spark plans with them: expressions of its optimiser, Catalyst, as values here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

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
        jvm: of the session.
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
