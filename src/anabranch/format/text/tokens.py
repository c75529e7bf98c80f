"""Words, numbers and signs of type and column text, with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from enum import Enum, auto
from typing import Final, NoReturn

from anabranch.errors import SchemaError

_PATTERN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>[0-9]+)
  | `(?P<quoted>(?:[^`]|``)*)`
  | '(?P<text>(?:[^']|'')*)'
  | (?P<sign>[^`'])
    """,
    re.VERBOSE,
)
_MOST_DIGITS = 10


class TokenKind(Enum):
    WORD = auto()
    NUMBER = auto()
    QUOTED = auto()
    """An identifier between back-ticks."""
    TEXT = auto()
    """A literal between single quotes."""
    SIGN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    value: str
    """Without quotes; a doubled quote inside is one."""
    position: int
    """Characters before it."""

    @property
    def shown(self) -> str:
        """The token as a message names it."""
        return "the end" if self.kind is TokenKind.END else f"'{self.value[:40]}'"


class Tokens:
    """A text, read token by token. Failures are `SchemaError` naming the text and the position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = list(self._split())
        self._next = 0

    @property
    def here(self) -> Token:
        """The next token, not taken."""
        return self._tokens[self._next]

    @property
    def at_end(self) -> bool:
        return self.here.kind is TokenKind.END

    def take(self) -> Token:
        token = self.here
        if not self.at_end:
            self._next += 1
        return token

    def accept(self, *words: str | None) -> bool:
        """Take these keywords (upper case) or signs if they come next, all of them or none; None is any."""
        coming = self._tokens[self._next : self._next + len(words)]
        if len(coming) < len(words) or not all(map(_is, coming, words)):
            return False
        self._next += len(words)
        return True

    def before(self, count: int) -> str:
        """Return the value of the token taken so many tokens ago."""
        return self._tokens[self._next - count].value

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"expected {word}, found {self.here.shown}")

    def expect_end(self, expected: str) -> None:
        if not self.at_end:
            self.fail(f"expected {expected}, found {self.here.shown}")

    def number(self, meaning: str) -> int:
        """Take a whole number."""
        token = self.take()
        if token.kind is not TokenKind.NUMBER:
            self.fail(f"expected {meaning}, found {token.shown}", at=token)
        if len(token.value) > _MOST_DIGITS:
            self.fail(f"{meaning} is too large", at=token)
        return int(token.value)

    def name(self, meaning: str) -> str:
        """Take an identifier, quoted or not."""
        token = self.take()
        if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            self.fail(f"expected {meaning}, found {token.shown}", at=token)
        return token.value

    def literal(self, meaning: str) -> str:
        """Take a text between single quotes."""
        token = self.take()
        if token.kind is not TokenKind.TEXT:
            self.fail(f"expected {meaning} in single quotes, found {token.shown}", at=token)
        return token.value

    def fail(self, message: str, *, at: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise `SchemaError` with the position of `at`, or of the next token."""
        position = (at or self.here).position
        shown = self.text if len(self.text) <= 120 else f"{self.text[:120]}…"
        raise SchemaError(f'{message} (character {position + 1} of "{shown}")', hint=hint)

    def _split(self) -> list[Token]:
        tokens = []
        position = 0
        while position < len(self.text):
            match = _PATTERN.match(self.text, position)
            if match is None:
                quote = Token(TokenKind.SIGN, self.text[position], position)
                self.fail(f"the quote {quote.shown} is never closed", at=quote)
            group = str(match.lastgroup)
            if group != "space":
                mark = {"quoted": "`", "text": "'"}.get(group)
                value = match[group] if mark is None else match[group].replace(mark * 2, mark)
                tokens.append(Token(TokenKind[group.upper()], value, position))
            position = match.end()
        tokens.append(Token(TokenKind.END, "", len(self.text)))
        return tokens


def _is(token: Token, word: str | None) -> bool:
    if word is None:
        return token.kind is not TokenKind.END
    return token.kind in (TokenKind.WORD, TokenKind.SIGN) and token.value.upper() == word


_MILLIS: Final = {
    "WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000, "MILLISECOND": 1,
}  # fmt: skip
_COMPOUND: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
"""Units that stand together, as in DAY TO SECOND, from the largest on."""
_LIMITS: Final = {"HOUR": 24, "MINUTE": 60, "SECOND": 60}
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_MOST_INTERVAL_DIGITS: Final = 2
"""Digits that the largest field has for other engines if its unit does not say."""


def read_interval(tokens: Tokens) -> int:
    """Take an interval of days or less from the tokens of a longer text; milliseconds, parts of one count as one.

    Raises `SchemaError` naming the position if there is none, or one of months, which have no length.
    """
    tokens.expect("INTERVAL")
    sign = -1 if tokens.accept("-") else 1
    at = tokens.here
    text = _value(tokens)
    if text[:1] in ("+", "-"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:].strip()
    largest = _unit(tokens)
    smallest = _unit(tokens) if tokens.accept("TO") else largest
    if largest == smallest:
        parts, units = [text], [largest]
    else:
        units = _units(tokens, largest, smallest, at)
        parts = _split(tokens, text, units, at)
    return sign * _millis(tokens, parts, units, at)


def interval_text(millis: int) -> str:
    """The interval as every engine reads it, in the largest unit in which it is a whole number."""
    for unit in ("DAY", "HOUR", "MINUTE"):
        if millis and millis % _MILLIS[unit] == 0:
            return _spelled(str(millis // _MILLIS[unit]), unit)
    seconds, rest = divmod(millis, 1000)
    return _spelled(f"{seconds}.{rest:03}" if rest else str(seconds), "SECOND")


def _spelled(number: str, unit: str) -> str:
    digits = len(number.partition(".")[0])
    return f"INTERVAL '{number}' {unit}" + (f"({digits})" if digits > _MOST_INTERVAL_DIGITS else "")


def _value(tokens: Tokens) -> str:
    """Take the quantity, which some dialects spell without quotes."""
    token = tokens.take()
    if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER):
        tokens.fail(f"expected a length of time such as '5', found {token.shown}", at=token)
    return token.value.strip()


def _unit(tokens: Tokens) -> str:
    """Take a unit, with the number of its digits, which does not matter here."""
    token = tokens.take()
    unit = token.value.upper().removesuffix("S")
    if token.kind is not TokenKind.WORD or unit not in _MILLIS:
        months = unit in ("MONTH", "QUARTER", "YEAR")
        tokens.fail(
            f"{token.shown} has no fixed length"
            if months
            else f"expected a unit of time, found {token.shown}",
            at=token,
            hint="units are SECOND, MINUTE, HOUR and DAY.",
        )
    if tokens.accept("("):
        tokens.number("a number of digits")
        if tokens.accept(","):
            tokens.number("a number of digits")
        tokens.expect(")")
    return unit


def _units(tokens: Tokens, largest: str, smallest: str, at: Token) -> list[str]:
    if largest not in _COMPOUND or smallest not in _COMPOUND:
        tokens.fail(f"{largest} TO {smallest} is no unit of time", at=at)
    first, last = _COMPOUND.index(largest), _COMPOUND.index(smallest)
    if first > last:
        tokens.fail(f"{largest} TO {smallest} has the larger unit last", at=at)
    return list(_COMPOUND[first : last + 1])


def _split(tokens: Tokens, text: str, units: list[str], at: Token) -> list[str]:
    """The numbers of ``1 02:03:04.5``, one for each unit."""
    parts = text.split(":")
    if units[0] == "DAY":
        parts = [*parts[0].split(), *parts[1:]]
    if len(parts) != len(units):
        tokens.fail(f"'{text}' is not {units[0]} TO {units[-1]}", at=at)
    return parts


def _millis(tokens: Tokens, parts: list[str], units: list[str], at: Token) -> int:
    total = Decimal(0)
    for place, (part, unit) in enumerate(zip(parts, units, strict=True)):
        whole_only = unit not in ("SECOND", "MILLISECOND")
        if _NUMBER.fullmatch(part) is None or (whole_only and "." in part):
            tokens.fail(f"'{part}' is no number of {unit.lower()}s", at=at)
        number = Decimal(part)
        if place and number >= _LIMITS[unit]:
            tokens.fail(f"'{part}' is too many {unit.lower()}s behind a larger unit", at=at)
        total += number * _MILLIS[unit]
    return int(total.to_integral_value(ROUND_CEILING))
