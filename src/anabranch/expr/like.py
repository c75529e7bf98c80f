"""LIKE patterns, taken apart once and written again for whoever matches them."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from anabranch.errors import PredicateError

DEFAULT_ESCAPE = "\\"
"""As in Spark."""


class Wildcard(Enum):
    ONE = "_"
    MANY = "%"


Pattern: TypeAlias = tuple[str | Wildcard, ...]
"""Literal texts, never two in a row and never empty, between wildcards; no two MANY in a row."""


def split_pattern(pattern: str, escape: str) -> Pattern:
    """Take a LIKE pattern apart.

    Raises:
        PredicateError: the escape is not one character other than a wildcard, or stands before one that
            needs none.
    """
    if len(escape) != 1 or escape in "_%":
        raise PredicateError(f"the ESCAPE of LIKE is one character other than '_' and '%', found {escape!r}")
    parts: list[str | Wildcard] = []
    text: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in {"_", "%", escape}:
                raise PredicateError(
                    f"in the LIKE pattern '{pattern}' the escape character {escape} stands before "
                    + (f"'{escaped}'" if escaped else "the end"),
                    hint=f"write {escape * 2} for the character itself, or choose another one with ESCAPE",
                )
            text.append(escaped)
        elif character in "_%":
            _end_text(parts, text)
            if character == "_" or not parts or parts[-1] is not Wildcard.MANY:
                parts.append(Wildcard(character))
        else:
            text.append(character)
    _end_text(parts, text)
    return tuple(parts)


def join_pattern(parts: Pattern) -> str:
    """The pattern with a backslash as its escape character, which is also how Arrow wants it."""
    return "".join(part.value if isinstance(part, Wildcard) else _escaped(part) for part in parts)


def _end_text(parts: list[str | Wildcard], text: list[str]) -> None:
    if text:
        parts.append("".join(text))
        text.clear()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
