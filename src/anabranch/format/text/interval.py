"""Lengths of time as SQL spells them: ``INTERVAL '5' SECOND``, ``INTERVAL '01:30' HOUR TO MINUTE``."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from anabranch.format.text.tokens import Token, TokenKind, Tokens

_MILLIS: Final = {
    "WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000, "MILLISECOND": 1,
}  # fmt: skip
_COMPOUND: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
"""Units that stand together, as in DAY TO SECOND, from the largest on."""
_LIMITS: Final = {"HOUR": 24, "MINUTE": 60, "SECOND": 60}
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_MOST_DIGITS: Final = 2
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
    return f"INTERVAL '{number}' {unit}" + (f"({digits})" if digits > _MOST_DIGITS else "")


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
