"""SQL text into predicates.

The grammar, lowest precedence first; keywords in any case:

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = NOT negation | test
    test        = operand [ comparison operand
                          | IS [NOT] ( NULL | TRUE | FALSE )
                          | [NOT] IN ( literal, ... )
                          | [NOT] BETWEEN operand AND operand
                          | [NOT] LIKE text [ESCAPE text] ]
    operand     = column | literal | startswith ( column , text ) | ( condition )
    comparison  = "=" "==" "<>" "!=" "<" "<=" ">" ">=" "<=>"
    column      = name { . name }          name: word or `anything`
    literal     = number | 'text' | X'hex' | TRUE | FALSE | NULL
                | DATE 'text' | TIME 'text' | TIMESTAMP 'text' | TIMESTAMP_NTZ 'text' | TIMESTAMP_LTZ 'text'
                | CAST ( number or text AS FLOAT or DOUBLE )

A number with an exponent, or with D or F behind it, is a floating-point number; any other is exact. A column on
its own asks whether it is TRUE. In a text, two quotes stand for one and a backslash is a backslash.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from anabranch.errors import PredicateError
from anabranch.expr import nodes as n
from anabranch.expr.function_text import may_compute, parse_computing
from anabranch.expr.lexer import FilterToken, FilterTokenKind
from anabranch.expr.like import DEFAULT_ESCAPE
from anabranch.expr.operands import OperandReader


def parse(sql: str) -> n.Predicate:
    """The predicate that the text of a SQL condition describes.

    What the grammar above does not have, but looks like a function, arithmetic or a cast, is read with sqlglot: see
    `anabranch.expr.function_text`.

    Raises:
        PredicateError: with the place in the text, when it is not a condition.
    """
    try:
        return _Parser(sql).whole()
    except PredicateError as error:
        if not may_compute(sql):
            raise
        return parse_computing(sql, error)


_Term: TypeAlias = n.Predicate | n.Column | n.Literal
"""A condition, or an operand that may become part of one or be one itself."""

_COMPARISONS = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "<=>",
}
_PYTHON: dict[n.Operator, Callable[[Any, Any], bool]] = {
    n.Operator.EQ: operator.eq,
    n.Operator.SAME: operator.eq,
    n.Operator.NE: operator.ne,
    n.Operator.LT: operator.lt,
    n.Operator.LE: operator.le,
    n.Operator.GT: operator.gt,
    n.Operator.GE: operator.ge,
}


def _ordered(value: Any) -> tuple[bool, Any]:
    """A value that compares as in SQL: NaN equals itself and is above all other numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, None if is_nan else value


@dataclass(slots=True)
class _Level:
    """Parser state inside one pair of parentheses, or outside of all."""

    start: FilterToken
    """Where the term being read begins."""
    negations: list[FilterToken] = field(default_factory=list)
    """The NOTs before it."""
    conjuncts: list[n.Predicate] = field(default_factory=list)
    """What it is joined to by AND."""
    disjuncts: list[n.Predicate] = field(default_factory=list)
    """What all that is joined to by OR."""


class _Parser(OperandReader):
    """Conditions. Parentheses are kept on a stack of ours: how deep they go is up to whoever wrote the filter."""

    def whole(self) -> n.Predicate:
        if self.peek().kind is FilterTokenKind.END:
            raise PredicateError("the filter is empty", hint="leave the filter out to keep every row")
        levels = [_Level(self.peek())]
        while True:
            self._open(levels)
            term = self._term()
            while not self._joined(levels[-1], term := self._test(term, levels[-1].start)):
                level = levels.pop()
                if not levels:
                    if self.peek().kind is not FilterTokenKind.END:
                        raise self.error(f"expected AND, OR or the end, found {self.peek()}")
                    return self._truth(self._closed(level, term), level.start)
                self.expect(")")
                term = self._closed(level, term)

    def _open(self, levels: list[_Level]) -> None:
        """Go past what may stand before a term."""
        while True:
            level = levels[-1]
            level.start = token = self.peek()
            if self.accept("NOT"):
                level.negations.append(token)
            elif self.accept("("):
                levels.append(_Level(self.peek()))
            else:
                return

    def _joined(self, level: _Level, term: _Term) -> bool:
        """Keep the term if something is joined to it; go past the AND or OR."""
        if self.peek().word not in {"AND", "OR"}:
            return False
        level.conjuncts.append(self._negated(level, term))
        if not self.accept("AND"):
            self.expect("OR")
            level.disjuncts.append(self._all_of(level))
        return True

    def _closed(self, level: _Level, term: _Term) -> _Term:
        """All that was read on the level."""
        if not (level.negations or level.conjuncts or level.disjuncts):
            return term
        level.conjuncts.append(self._negated(level, term))
        level.disjuncts.append(self._all_of(level))
        return self.built(level.start, partial(n.any_of, level.disjuncts))

    def _all_of(self, level: _Level) -> n.Predicate:
        conjuncts, level.conjuncts = level.conjuncts, []
        return self.built(level.start, partial(n.all_of, conjuncts))

    def _negated(self, level: _Level, term: _Term) -> n.Predicate:
        predicate = self._truth(term, level.start)
        while level.negations:
            predicate = self.built(level.negations.pop(), partial(n.Not, predicate))
        return predicate

    def _term(self) -> _Term:
        if self.peek().word != "STARTSWITH" or self.peek(1).text != "(":
            return self.bare_operand()
        self.accept("STARTSWITH")
        self.expect("(")
        column = self.column()
        self.expect(",")
        prefix = self.text("a prefix")
        self.expect(")")
        return n.StartsWith(column, prefix)

    def _test(self, left: _Term, start: FilterToken) -> _Term:
        """The term with the test that may follow an operand."""
        if isinstance(left, n.Predicate):
            return left
        token = self.peek()
        if token.kind is FilterTokenKind.SYMBOL and token.text in _COMPARISONS:
            self.accept(token.text)
            return self._compared(n.Operator(_COMPARISONS[token.text]), left, self.operand(), token)
        if self.accept("IS"):
            return self._state(left, start)
        negated = self.accept("NOT")
        test = self._membership(left, start)
        if test is None and negated:
            raise self.error(f"expected IN, BETWEEN or LIKE after NOT, found {self.peek()}")
        if test is None:
            return left
        return n.Not(test) if negated else test

    def _state(self, left: n.Column | n.Literal, start: FilterToken) -> n.Predicate:
        """Parse what follows IS."""
        negated = self.accept("NOT")
        column = self._column(left, start)
        test: n.Predicate
        if self.accept("TRUE"):
            test = n.Comparison(n.Operator.SAME, column, n.Literal(True))
        elif self.accept("FALSE"):
            test = n.Comparison(n.Operator.SAME, column, n.Literal(False))
        else:
            self.expect("NULL")
            test = n.IsNull(column)
        return n.Not(test) if negated else test

    def _membership(self, left: n.Column | n.Literal, start: FilterToken) -> n.Predicate | None:
        """The tests that a NOT may stand before, from their keyword on; None if none comes next."""
        token = self.peek()
        match token.word:
            case "IN":
                self.accept(token.word)
                return n.In(self._column(left, start), self.literals())
            case "BETWEEN":
                self.accept(token.word)
                low = self.operand()
                self.expect("AND")
                high = self.operand()
                above = self._compared(n.Operator.GE, left, low, token)
                return n.all_of([above, self._compared(n.Operator.LE, left, high, token)])
            case "LIKE":
                self.accept(token.word)
                pattern = self.text("a pattern")
                escape = self.text("an escape character") if self.accept("ESCAPE") else DEFAULT_ESCAPE
                column = self._column(left, start)
                return self.built(token, partial(n.Like, column, pattern, escape))
        return None

    def _column(self, operand: _Term, start: FilterToken) -> n.Column:
        if not isinstance(operand, n.Column):
            raise self.error("expected a column here", at=start)
        return operand

    def _compared(
        self, op: n.Operator, left: n.Column | n.Literal, right: n.Column | n.Literal, token: FilterToken
    ) -> n.Predicate:
        if isinstance(left, n.Column):
            return n.Comparison(op, left, right)
        if isinstance(right, n.Column):
            return n.Comparison(op.flipped, right, left)
        # Generated text likes 1 = 1.
        number = (int, float, Decimal)
        kinds = [number if isinstance(side.value, number) else type(side.value) for side in (left, right)]
        if kinds[0] != kinds[1] or left.value is None:
            raise self.error("this compares two values and no column", at=token)
        return n.Constant(bool(_PYTHON[op](_ordered(left.value), _ordered(right.value))))

    def _truth(self, term: _Term, start: FilterToken) -> n.Predicate:
        """A condition out of what stands where a condition must."""
        match term:
            case n.Predicate():
                return term
            case n.Column():
                return n.Comparison(n.Operator.EQ, term, n.Literal(True))
            case n.Literal(value=bool() as value):
                return n.Constant(value)
            case _:
                raise self.error(f"expected a condition, found the value {term}", at=start)
