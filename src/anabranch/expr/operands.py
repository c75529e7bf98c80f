"""Parses the operands of conditions, columns and values, from tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from typing import TypeVar

from anabranch.errors import PredicateError
from anabranch.expr.lexer import FilterToken, FilterTokenKind, error_at, tokenize
from anabranch.expr.nodes import Column, Literal
from anabranch.expr.values import (
    RESERVED,
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

_Built = TypeVar("_Built")

_TYPED = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})


class OperandReader:
    """A place in the tokens of a filter; its methods read what comes next and go past it.

    All of them raise `PredicateError`, with the place in the text, for what they do not expect.
    """

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tokenize(sql)
        self._at = 0

    def operand(self) -> Column | Literal:
        """A column or a value, in any number of parentheses."""
        opened = 0
        while self.accept("("):
            opened += 1
        operand = self.bare_operand()
        for _ in range(opened):
            self.expect(")")
        return operand

    def bare_operand(self) -> Column | Literal:
        """A column or a value."""
        token, after = self.peek(), self.peek(1)
        if token.kind is FilterTokenKind.NAME or (
            token.kind is FilterTokenKind.WORD and token.word not in RESERVED
        ):
            if after.kind is FilterTokenKind.TEXT and token.word in _TYPED:
                return self._typed_literal()
            if token.word == "INTERVAL" and after.kind in {FilterTokenKind.TEXT, FilterTokenKind.NUMBER}:
                raise self.error(
                    "INTERVAL is not supported in filters", "compute the moment and compare with it"
                )
            if after.text == "(":
                return self._cast()
            return self._path()
        literal = self._plain_literal()
        if literal is None:
            raise self.error(f"expected a column or a value, found {token}", _operand_hint(token))
        return literal

    def literals(self) -> tuple[Literal, ...]:
        """Values in parentheses, with commas between them."""
        self.expect("(")
        literals = [self.literal()]
        while self.accept(","):
            literals.append(self.literal())
        self.expect(")")
        return tuple(literals)

    def literal(self) -> Literal:
        start = self.peek()
        operand = self.operand()
        if not isinstance(operand, Literal):
            raise self.error("expected a value here", at=start)
        return operand

    def column(self) -> Column:
        start = self.peek()
        operand = self.operand()
        if not isinstance(operand, Column):
            raise self.error("expected a column here", at=start)
        return operand

    def text(self, what: str) -> str:
        """A text in quotes; `what` says what it is for."""
        token = self.peek()
        if token.kind is not FilterTokenKind.TEXT:
            raise self.error(f"expected {what} in single quotes, found {token}")
        self._at += 1
        return token.unquoted

    def peek(self, ahead: int = 0) -> FilterToken:
        """The token that comes next, or one further on."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def accept(self, text: str) -> bool:
        """Go past the keyword or symbol if it comes next."""
        found = self.peek().word == text or (
            self.peek().kind is FilterTokenKind.SYMBOL and self.peek().text == text
        )
        self._at += found
        return found

    def expect(self, text: str, hint: str | None = None) -> None:
        """Go past the keyword or symbol that must come next."""
        if not self.accept(text):
            raise self.error(f"expected {text}, found {self.peek()}", hint)

    def built(self, token: FilterToken, build: Callable[[], _Built]) -> _Built:
        """Return the result of `build`; the position is added to an error that it raises."""
        try:
            return build()
        except PredicateError as error:
            raise self.error(error.message, error.hint, at=token) from None

    def error(
        self, message: str, hint: str | None = None, *, at: FilterToken | None = None
    ) -> PredicateError:
        return error_at(self._sql, (at or self.peek()).start, message, hint)

    def _path(self) -> Column:
        names = [self._name()]
        while self.accept("."):
            names.append(self._name())
        return Column(tuple(names))

    def _name(self) -> str:
        token = self.peek()
        if token.kind is FilterTokenKind.NAME:
            self._at += 1
            return token.unquoted
        if token.kind is not FilterTokenKind.WORD:
            raise self.error(f"expected a name, found {token}")
        self._at += 1
        return token.text

    def _cast(self) -> Literal:
        if self.peek().word != "CAST":
            raise self.error(
                f"the function {self.peek().text} is not supported in filters",
                "compare columns with values; startswith is the only function",
            )
        self._at += 2
        start = self.peek()
        value = self.literal().value
        self.expect("AS")
        double = self.accept("DOUBLE")
        if not double:
            self.expect("FLOAT", "CAST is for values of type DOUBLE and FLOAT only")
        self.expect(")")
        number = _floating(value)
        if number is None:
            raise self.error("this is not a number", at=start)
        return Literal(number if double else to_single(number))

    def _typed_literal(self) -> Literal:
        word, token = self.peek().word, self._tokens[self._at + 1]
        value = self.built(token, lambda: typed_value(word, token.unquoted))
        if value is None:
            form = {"DATE": "'YYYY-MM-DD'", "TIME": "'HH:MM:SS[.ffffff]'"}.get(word, TIMESTAMP_FORM)
            zone = " without a zone" if word == "TIMESTAMP_NTZ" else ""
            raise self.error(f"{token} is no {word}", f"the form is {form}{zone}", at=token)
        self._at += 2
        return Literal(value)

    def _plain_literal(self) -> Literal | None:
        """A literal without a type in front of it; None if there is none here."""
        token = self.peek()
        sign = token.text if token.kind is FilterTokenKind.SYMBOL and token.text in {"+", "-"} else ""
        if sign:
            self._at += 1
            if self.peek().kind is not FilterTokenKind.NUMBER:
                raise self.error(f"expected a number after {sign!r}, found {self.peek()}")
        token = self.peek()
        match token.kind:
            case FilterTokenKind.NUMBER:
                number = number_of(token.text)
                value: Value = number
                if sign == "-":
                    # Decimal's own minus rounds to the precision of the thread's context.
                    value = number.copy_negate() if isinstance(number, Decimal) else -number
            case FilterTokenKind.TEXT:
                value = token.unquoted
            case FilterTokenKind.BINARY:
                value = self._bytes(token)
            case FilterTokenKind.WORD if token.word in {"TRUE", "FALSE"}:
                value = token.word == "TRUE"
            case FilterTokenKind.WORD if token.word == "NULL":
                value = None
            case _:
                return None
        self._at += 1
        return self.built(token, lambda: Literal(value))

    def _bytes(self, token: FilterToken) -> bytes:
        if not re.fullmatch("(?:[0-9a-fA-F]{2})*", digits := token.text[2:-1]):
            raise self.error(f"{token} is not made of pairs of hexadecimal digits")
        return bytes.fromhex(digits)


def _operand_hint(token: FilterToken) -> str | None:
    if token.word in RESERVED:
        return f"put a column of this name in back-ticks: `{token.text}`"
    return None


_SUFFIX = re.compile(r"(?i)(.*?)(bd|[lsydf])?")


def number_of(text: str) -> int | float | Decimal:
    """The number that digits spell, exact unless they have an exponent or a suffix for floating-point numbers."""
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


def typed_value(word: str, text: str) -> Value:
    """The value of ``DATE 'text'`` and the like; None if the text is none."""
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
