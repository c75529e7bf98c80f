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
    operand     = column | literal | startswith ( column, text ) | ( condition )
    comparison  = "=" "==" "<>" "!=" "<" "<=" ">" ">=" "<=>"
    column      = name { . name }          name: word or `anything`
    literal     = number | 'text' | X'hex' | TRUE | FALSE | NULL
                | DATE 'text' | TIME 'text' | TIMESTAMP 'text' | TIMESTAMP_NTZ 'text' | TIMESTAMP_LTZ 'text'
                | CAST ( number or text AS FLOAT or DOUBLE )

A number with an exponent, or with D or F behind it, is a floating-point number; any other is exact. A column on
its own asks whether it is TRUE. In a text, two quotes stand for one and a backslash is a backslash.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from anabranch.errors import PredicateError
from anabranch.expr.lexer import Kind, Token, error_at, tokenize
from anabranch.expr.like import DEFAULT_ESCAPE
from anabranch.expr.names import RESERVED
from anabranch.expr.nodes import (
    MAX_DEPTH,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)
from anabranch.expr.values import (
    TIMESTAMP_FORM,
    Timestamp,
    Value,
    parse_date,
    parse_double,
    parse_time_nanos,
    parse_timestamp,
    to_double,
    to_single,
)


def parse(sql: str) -> Predicate:
    """The predicate that the text of a SQL condition describes.

    Raises:
        PredicateError: with the place in the text, when it is not a condition of the grammar above.
    """
    return _Parser(sql).whole()


_Term: TypeAlias = Predicate | Column | Literal
_Built = TypeVar("_Built")

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
_TYPED = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})
_PYTHON: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.SAME: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


class _Parser:
    """Recursive descent; one method a rule of the grammar."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tokenize(sql)
        self._at = 0
        self._depth = 0

    def whole(self) -> Predicate:
        if self._peek().kind is Kind.END:
            raise PredicateError("the filter is empty", hint="leave the filter out to keep every row")
        start = self._peek()
        predicate = self._truth(self._condition(), start)
        if self._peek().kind is not Kind.END:
            raise self._error(f"expected AND, OR or the end, found {self._peek()}")
        return predicate

    def _condition(self) -> _Term:
        return self._joined(self._conjunction, "OR", any_of)

    def _conjunction(self) -> _Term:
        return self._joined(self._negation, "AND", all_of)

    def _joined(
        self, part: Callable[[], _Term], word: str, join: Callable[[list[Predicate]], Predicate]
    ) -> _Term:
        start = self._peek()
        first = part()
        if self._peek().word != word:
            return first
        parts = [self._truth(first, start)]
        while self._accept(word):
            start = self._peek()
            parts.append(self._truth(part(), start))
        return self._built(start, lambda: join(parts))

    def _negation(self) -> _Term:
        start = self._peek()
        if not self._accept("NOT"):
            return self._test()
        operand = self._peek()
        self._enter(start)
        child = self._truth(self._negation(), operand)
        self._depth -= 1
        return self._built(start, lambda: Not(child))

    def _test(self) -> _Term:
        start = self._peek()
        left = self._operand()
        if isinstance(left, Predicate):
            return left
        token = self._peek()
        if token.kind is Kind.SYMBOL and token.text in _COMPARISONS:
            self._at += 1
            return self._compared(Operator(_COMPARISONS[token.text]), left, self._value_or_column(), token)
        if self._accept("IS"):
            return self._state(left, start)
        negated = self._accept("NOT")
        test = self._membership(left, start)
        if test is None and negated:
            raise self._error(f"expected IN, BETWEEN or LIKE after NOT, found {self._peek()}")
        if test is None:
            return left
        return Not(test) if negated else test

    def _state(self, left: Column | Literal, start: Token) -> Predicate:
        """What follows IS."""
        negated = self._accept("NOT")
        column = self._column(left, start)
        test: Predicate
        if self._accept("TRUE"):
            test = Comparison(Operator.SAME, column, Literal(True))
        elif self._accept("FALSE"):
            test = Comparison(Operator.SAME, column, Literal(False))
        else:
            self._expect("NULL")
            test = IsNull(column)
        return Not(test) if negated else test

    def _membership(self, left: Column | Literal, start: Token) -> Predicate | None:
        """The tests that a NOT may stand before, from their keyword on; None if none comes next."""
        token = self._peek()
        match token.word:
            case "IN":
                self._at += 1
                return In(self._column(left, start), self._literals())
            case "BETWEEN":
                self._at += 1
                low = self._value_or_column()
                self._expect("AND")
                high = self._value_or_column()
                above = self._compared(Operator.GE, left, low, token)
                return all_of([above, self._compared(Operator.LE, left, high, token)])
            case "LIKE":
                self._at += 1
                pattern = self._text("a pattern")
                escape = self._text("an escape character") if self._accept("ESCAPE") else DEFAULT_ESCAPE
                column = self._column(left, start)
                return self._built(token, lambda: Like(column, pattern, escape))
        return None

    def _operand(self) -> _Term:
        token, after = self._peek(), self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.kind is Kind.NAME or (token.kind is Kind.WORD and token.word not in RESERVED):
            if after.kind is Kind.TEXT and token.word in _TYPED:
                return self._typed_literal()
            if token.word == "INTERVAL" and after.kind in {Kind.TEXT, Kind.NUMBER}:
                raise self._error(
                    "INTERVAL is not supported in filters", "compute the moment and compare with it"
                )
            return self._call() if after.text == "(" else self._path()
        if token.text == "(":
            return self._parenthesized()
        literal = self._plain_literal()
        if literal is None:
            raise self._error(f"expected a column or a value, found {token}", _operand_hint(token))
        return literal

    def _parenthesized(self) -> _Term:
        self._enter(self._peek())
        self._at += 1
        inner = self._condition()
        self._expect(")")
        self._depth -= 1
        return inner

    def _path(self) -> Column:
        names = [self._name()]
        while self._accept("."):
            names.append(self._name())
        return Column(tuple(names))

    def _name(self) -> str:
        token = self._peek()
        if token.kind is Kind.NAME:
            self._at += 1
            return token.unquoted
        if token.kind is not Kind.WORD:
            raise self._error(f"expected a name, found {token}")
        self._at += 1
        return token.text

    def _call(self) -> _Term:
        match self._peek().word:
            case "STARTSWITH":
                self._at += 2
                start = self._peek()
                column = self._column(self._operand(), start)
                self._expect(",")
                prefix = self._text("a prefix")
                self._expect(")")
                return StartsWith(column, prefix)
            case "CAST":
                return self._cast()
            case _:
                raise self._error(
                    f"the function {self._peek().text} is not supported in filters",
                    "compare columns with values; startswith is the only function",
                )

    def _cast(self) -> Literal:
        self._at += 2
        start = self._peek()
        value = self._literal().value
        self._expect("AS")
        double = self._accept("DOUBLE")
        if not double:
            self._expect("FLOAT", "CAST is for values of type DOUBLE and FLOAT only")
        self._expect(")")
        number = _floating(value)
        if number is None:
            raise self._error("this is not a number", at=start)
        return Literal(number if double else to_single(number))

    def _typed_literal(self) -> Literal:
        word, token = self._peek().word, self._tokens[self._at + 1]
        value = self._built(token, lambda: _typed_value(word, token.unquoted))
        if value is None:
            form = {"DATE": "'YYYY-MM-DD'", "TIME": "'HH:MM:SS[.ffffff]'"}.get(word, TIMESTAMP_FORM)
            zone = " without a zone" if word == "TIMESTAMP_NTZ" else ""
            raise self._error(f"{token} is no {word}", f"the form is {form}{zone}", at=token)
        self._at += 2
        return Literal(value)

    def _plain_literal(self) -> Literal | None:
        """A literal without a type in front of it; None if there is none here."""
        token = self._peek()
        sign = token.text if token.kind is Kind.SYMBOL and token.text in {"+", "-"} else ""
        if sign:
            self._at += 1
            if self._peek().kind is not Kind.NUMBER:
                raise self._error(f"expected a number after {sign!r}, found {self._peek()}")
        token = self._peek()
        match token.kind:
            case Kind.NUMBER:
                number = _number(token.text)
                value: Value = number
                if sign == "-":
                    # Decimal's own minus rounds to the precision of the thread's context.
                    value = number.copy_negate() if isinstance(number, Decimal) else -number
            case Kind.TEXT:
                value = token.unquoted
            case Kind.BINARY:
                value = self._bytes(token)
            case Kind.WORD if token.word in {"TRUE", "FALSE"}:
                value = token.word == "TRUE"
            case Kind.WORD if token.word == "NULL":
                value = None
            case _:
                return None
        self._at += 1
        return self._built(token, lambda: Literal(value))

    def _bytes(self, token: Token) -> bytes:
        if not re.fullmatch("(?:[0-9a-fA-F]{2})*", digits := token.text[2:-1]):
            raise self._error(f"{token} is not made of pairs of hexadecimal digits")
        return bytes.fromhex(digits)

    def _literals(self) -> tuple[Literal, ...]:
        self._expect("(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect(")")
        return tuple(literals)

    def _literal(self) -> Literal:
        start = self._peek()
        operand = self._operand()
        if not isinstance(operand, Literal):
            raise self._error("expected a value here", at=start)
        return operand

    def _value_or_column(self) -> Column | Literal:
        start = self._peek()
        operand = self._operand()
        if isinstance(operand, Predicate):
            raise self._error("expected a column or a value here, found a condition", at=start)
        return operand

    def _column(self, operand: _Term, start: Token) -> Column:
        if not isinstance(operand, Column):
            raise self._error("expected a column here", at=start)
        return operand

    def _text(self, what: str) -> str:
        token = self._peek()
        if token.kind is not Kind.TEXT:
            raise self._error(f"expected {what} in single quotes, found {token}")
        self._at += 1
        return token.unquoted

    def _compared(
        self, op: Operator, left: Column | Literal, right: Column | Literal, token: Token
    ) -> Predicate:
        if isinstance(left, Column):
            return Comparison(op, left, right)
        if isinstance(right, Column):
            return Comparison(op.flipped, right, left)
        # Generated text likes 1 = 1.
        number = (int, float, Decimal)
        kinds = [number if isinstance(side.value, number) else type(side.value) for side in (left, right)]
        if kinds[0] != kinds[1] or left.value is None:
            raise self._error("this compares two values and no column", at=token)
        return Constant(bool(_PYTHON[op](left.value, right.value)))

    def _truth(self, term: _Term, start: Token) -> Predicate:
        """A condition out of what stands where a condition must."""
        match term:
            case Predicate():
                return term
            case Column():
                return Comparison(Operator.EQ, term, Literal(True))
            case Literal(value=bool() as value):
                return Constant(value)
            case _:
                raise self._error(f"expected a condition, found the value {term}", at=start)

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _accept(self, text: str) -> bool:
        """Go past the keyword or symbol if it comes next."""
        found = self._peek().word == text or (self._peek().kind is Kind.SYMBOL and self._peek().text == text)
        self._at += found
        return found

    def _expect(self, text: str, hint: str | None = None) -> None:
        if not self._accept(text):
            raise self._error(f"expected {text}, found {self._peek()}", hint)

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth >= MAX_DEPTH:
            raise self._error(f"the filter nests more than {MAX_DEPTH} conditions in one another", at=token)

    def _built(self, token: Token, build: Callable[[], _Built]) -> _Built:
        """What `build` makes; the place is added to an error that it raises."""
        try:
            return build()
        except PredicateError as error:
            raise self._error(error.message, error.hint, at=token) from None

    def _error(self, message: str, hint: str | None = None, *, at: Token | None = None) -> PredicateError:
        return error_at(self._sql, (at or self._peek()).start, message, hint)


def _operand_hint(token: Token) -> str | None:
    if token.word in RESERVED:
        return f"put a column of this name in back-ticks: `{token.text}`"
    return None


_SUFFIX = re.compile(r"(?i)(.*?)(bd|[lsydf])?")


def _number(text: str) -> int | float | Decimal:
    found = _SUFFIX.fullmatch(text)
    assert found is not None, text
    digits, suffix = found[1], (found[2] or "").upper()
    if suffix == "F":
        return to_single(float(digits))
    if suffix == "D" or (suffix != "BD" and "e" in digits.lower()):
        return float(digits)
    number = Decimal(digits)
    # Not through int(): it refuses thousands of digits with an error of its own.
    exact = suffix == "BD" or "." in digits or len(digits) > 4000
    return number if exact else int(digits)


def _floating(value: Value) -> float | None:
    match value:
        case bool():
            return None
        case int() | float() | Decimal():
            return to_double(value)
        case str():
            return parse_double(value)
        case _:
            return None


def _typed_value(word: str, text: str) -> Value:
    match word:
        case "DATE":
            return parse_date(text)
        case "TIME":
            nanos = parse_time_nanos(text)
            if nanos is None or nanos % 1000:
                return None
            seconds, micros = divmod(nanos // 1000, 1_000_000)
            return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
        case "TIMESTAMP_LTZ":
            moment = parse_timestamp(text)
            return None if moment is None else Timestamp(moment.nanos, zoned=True)
        case _:
            moment = parse_timestamp(text)
            return None if moment is not None and moment.zoned and word == "TIMESTAMP_NTZ" else moment
