"""Tokenizer of statements: words with their positions, without comments and blanks.

Texts and comments are told as Spark's lexer tells them. `HintParser.java` does the same inside of Spark; both are tested
with one table of cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from anabranch.errors import SqlError

_PATTERN: Final = re.compile(
    r"""
    (?P<skip>\s+|--(?:\\\n|[^\r\n])*)
  | (?P<comment>/\*)
  | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d+(?:\.\d*)?)
  | (?P<word>[^\W\d]\w*)
  | (?P<sign>=>|[^'"`])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A token: word, number, literal, sign or hint of a statement."""

    kind: str
    """``word``, ``number``, ``text``, ``quoted``, ``sign``, or ``hint`` for a comment that begins with a plus."""
    text: str
    """Text in the statement, quotes included."""
    start: int
    end: int
    """Position after the last character."""

    def is_(self, *words: str) -> bool:
        """Whether it is one of these keywords or signs, given in upper case."""
        return self.kind in ("word", "sign") and self.text.upper() in words

    @property
    def name(self) -> str:
        """Name without its back-ticks."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text

    @property
    def value(self) -> str:
        """Literal without its quotes."""
        quote = self.text[0]
        if quote in "rR":
            return self.text[2:-1]
        return self.text[1:-1].replace(quote * 2, quote).replace("\\" + quote, quote)


def words_of(statement: str) -> list[Word]:
    """Return the words in order. Raises `SqlError` for an unclosed quote or comment."""
    found: list[Word] = []
    place = 0
    while place < len(statement):
        match = _PATTERN.match(statement, place)
        if match is None:
            _refuse(statement, place, "the quote is never closed")
        end = match.end()
        kind = str(match.lastgroup)
        if kind == "comment":
            end = _end_of_comment(statement, place)
            if statement.startswith("/*+", place):
                found.append(Word("hint", statement[place:end], place, end))
        elif kind != "skip":
            found.append(Word(kind, match[0], place, end))
        place = end
    return found


def closing(words: Sequence[Word], opening: int) -> int:
    """Return the index of the parenthesis that closes the one at `opening`. Raises `SqlError` if none does."""
    depth = 0
    for place in range(opening, len(words)):
        if words[place].is_("(", "["):
            depth += 1
        elif words[place].is_(")", "]"):
            depth -= 1
            if depth == 0:
                return place
    raise SqlError(
        f"a parenthesis is never closed (character {words[opening].start + 1} of the statement)",
        hint="close it.",
    )


def matches(words: Sequence[Word], place: int, *keywords: str) -> bool:
    """Whether these keywords or signs stand at an index, one after the other."""
    coming = words[place : place + len(keywords)]
    return len(coming) == len(keywords) and all(w.is_(k) for w, k in zip(coming, keywords, strict=True))


def name_at(words: Sequence[Word], place: int) -> tuple[tuple[str, ...], int]:
    """Parse a name with dots; return it and the index after it; () if there is none."""
    parts: list[str] = []
    while place < len(words) and words[place].kind in ("word", "quoted"):
        parts.append(words[place].name)
        if not matches(words, place + 1, "."):
            return tuple(parts), place + 1
        place += 2
    return (), place


def spliced(statement: str, pieces: Sequence[tuple[int, int, str]]) -> str:
    """Replace pieces ``(start, end, text)`` of a statement; `end` is exclusive."""
    out, place = [], 0
    for start, end, text in sorted(pieces):
        out += [statement[place:start], text]
        place = end
    return "".join([*out, statement[place:]])


def _end_of_hint(statement: str, start: int) -> int:
    """Return the end of a hint, whose inside are words again."""
    place = start + len("/*+")
    while place < len(statement):
        if statement.startswith("*/", place):
            return place + 2
        match = _PATTERN.match(statement, place)
        if match is None:
            break
        place = _end_of_comment(statement, place) if match.lastgroup == "comment" else match.end()
    return _refuse(statement, start, "the comment is never closed")


def _end_of_comment(statement: str, start: int) -> int:
    """Return the end of a comment or a hint; comments may be nested, but a hint in one is no comment of its own."""
    if statement.startswith("/*+", start):
        return _end_of_hint(statement, start)
    depth, place = 0, start
    while place < len(statement):
        if statement.startswith("/*", place) and not statement.startswith("/*+", place):
            depth, place = depth + 1, place + 2
        elif statement.startswith("*/", place):
            depth, place = depth - 1, place + 2
            if depth == 0:
                return place
        else:
            place += 1
    return _refuse(statement, start, "the comment is never closed")


def _refuse(statement: str, place: int, what: str) -> NoReturn:
    raise SqlError(
        f"{what} (character {place + 1}: {statement[place : place + 30]!r})", hint="look at the quotes."
    )


def statements_of(script: str) -> list[str]:
    """Return the statements between semicolons, as typed; empty ones and lone comments are left out.

    Raises `SqlError` for a quote or comment that is never closed.
    """
    found, begin = [], None
    for word in words_of(script):
        if word.is_(";"):
            if begin is not None:
                found.append(script[begin : word.start].rstrip())
            begin = None
        elif begin is None:
            begin = word.start
    if begin is not None:
        found.append(script[begin:].strip())
    return found
