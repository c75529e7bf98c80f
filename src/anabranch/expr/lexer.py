"""SQL text of a filter into tokens, and errors that point into the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from anabranch.errors import PredicateError

_SHOWN = 100
"""Characters of a long line shown around an error."""


class FilterTokenKind(Enum):
    NUMBER = "number"
    TEXT = "text"
    BINARY = "binary"
    NAME = "quoted name"
    WORD = "word"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class FilterToken:
    kind: FilterTokenKind
    text: str
    """The characters of the filter, quotes included."""
    start: int

    @property
    def word(self) -> str:
        """A keyword in capitals; empty for tokens that cannot be one."""
        return self.text.upper() if self.kind is FilterTokenKind.WORD else ""

    @property
    def unquoted(self) -> str:
        """Return the content of a quoted text or name."""
        quote = self.text[0]
        return self.text[1:-1].replace(quote * 2, quote)

    def __str__(self) -> str:
        match self.kind:
            case FilterTokenKind.END:
                return "the end of the filter"
            case FilterTokenKind.TEXT | FilterTokenKind.BINARY | FilterTokenKind.NAME:
                return self.text
            case _:
                return f"'{self.text}'"


def tokenize(sql: str) -> list[FilterToken]:
    """The tokens of the text, the last one of kind END. Raises `PredicateError`."""
    tokens, at = [], 0
    while True:
        at = _skip_space(sql, at)
        if at == len(sql):
            tokens.append(FilterToken(FilterTokenKind.END, "", at))
            return tokens
        found = _TOKEN.match(sql, at)
        if found is None:
            raise _unreadable(sql, at)
        assert found.lastgroup is not None
        tokens.append(FilterToken(FilterTokenKind[found.lastgroup], found[0], at))
        at = found.end()


def error_at(sql: str, at: int, message: str, hint: str | None = None) -> PredicateError:
    """An error that shows the line of the text and marks the place in it."""
    start = sql.rfind("\n", 0, at) + 1
    end = sql.find("\n", at)
    line, column = sql[start : len(sql) if end < 0 else end], at - start
    cut = max(0, column - _SHOWN // 2)
    shown, before = line[cut : cut + _SHOWN], "..." if cut else ""
    after = "..." if cut + _SHOWN < len(line) else ""
    caret = " " * (len(before) + column - cut) + "^"
    text = f"{before}{shown}{after}".replace("\t", " ")
    return PredicateError(f"{message} (at character {at + 1} of the filter)\n  {text}\n  {caret}", hint=hint)


_TOKEN = re.compile(
    r"""
      (?P<NUMBER>(?:[0-9]+[lLsSyY]|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[dDfF])?)(?![\w.]))
    | (?P<BINARY>[xX]'[^']*')
    | (?P<TEXT>'(?:[^']|'')*')
    | (?P<NAME>`(?:[^`]|``)+`)
    | (?P<WORD>[^\W\d]\w*)
    | (?P<SYMBOL><=>|<=|>=|<>|!=|==|[=<>(),.+-])
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")


def _skip_space(sql: str, at: int) -> int:
    found = _SPACE.match(sql, at)
    assert found is not None
    return found.end()


def _unreadable(sql: str, at: int) -> PredicateError:
    match sql[at]:
        case "'":
            return error_at(
                sql, at, "a text in quotes is not closed", "write '' for a quote inside of a text"
            )
        case "`":
            return error_at(sql, at, "a name in back-ticks is empty or not closed")
        case '"':
            return error_at(
                sql,
                at,
                "double quotes are not used in filters",
                "write 'text' for a text and `name` for a name",
            )
        case c if c.isdigit():
            return error_at(sql, at, "this is no number", "put names that start with a digit in back-ticks")
        case c:
            return error_at(sql, at, f"{c!r} has no meaning in a filter")
