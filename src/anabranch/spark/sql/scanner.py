"""Tokenizer of statements, and a reader word by word: words with their positions, without comments and blanks.

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


def properties(words: Sequence[Word]) -> dict[str, str]:
    """Parse ``'k' = 'v', ...``. Raises `SqlError`."""
    found: dict[str, str] = {}
    for place in range(0, len(words), 4):
        entry = words[place : place + 4]
        shape = [w.kind for w in entry[:3]]
        last = len(entry) == 3 or (len(entry) == 4 and entry[3].is_(","))
        if len(shape) < 3 or shape[0] != "text" or not entry[1].is_("=") or not last:
            raise SqlError(
                "the properties of the table are not written as 'key' = 'value'",
                hint="write WITH ('bucket' = '8', 'bucket-key' = 'id').",
            )
        found[entry[0].value] = entry[2].value if shape[2] == "text" else entry[2].text
    return found


def assignments(statement: str, words: Sequence[Word]) -> dict[str, str | None]:
    """Parse ``dt = 'x', h`` into names and the text of values."""
    found: dict[str, str | None] = {}
    place = 0
    while place < len(words):
        name = words[place].name
        end = next((i for i in range(place, len(words)) if words[i].is_(",")), len(words))
        has_value = matches(words, place + 1, "=")
        found[name] = statement[words[place + 2].start : words[end - 1].end] if has_value else None
        place = end + 1
    return found


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


class WordReader:
    """Remaining words of a statement. Failures are `SqlError` with the statement's beginning."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        self._words = [word for word in words_of(statement) if word.kind != "hint"]
        while self._words and self._words[-1].is_(";"):
            self._words.pop()
        self._place = 0

    @property
    def here(self) -> Word | None:
        """The next word, not taken; None at the end."""
        return self._words[self._place] if self._place < len(self._words) else None

    def accept(self, *keywords: str) -> bool:
        """Take these keywords or signs if they come next, all of them or none."""
        if not matches(self._words, self._place, *keywords):
            return False
        self._place += len(keywords)
        return True

    def accept_any(self, *keywords: str) -> bool:
        """Take one of these if it comes next; return whether it did."""
        return any(self.accept(keyword) for keyword in keywords)

    def expect(self, *keywords: str) -> None:
        if not self.accept(*keywords):
            self.fail(" ".join(keywords))

    def name(self, meaning: str = "a name") -> tuple[str, ...]:
        """Take a name with dots."""
        found, after = name_at(self._words, self._place)
        if not found:
            self.fail(meaning)
        self._place = after
        return found

    def text(self, meaning: str) -> str:
        """Take a literal; return it without its quotes."""
        word = self.here
        if word is None or word.kind != "text":
            self.fail(meaning)
        self._place += 1
        return word.value

    def inside(self, meaning: str) -> list[Word]:
        """Take a pair of parentheses; return the words between them."""
        if not matches(self._words, self._place, "("):
            self.fail(meaning)
        end = closing(self._words, self._place)
        found, self._place = self._words[self._place + 1 : end], end + 1
        return found

    def partition(self) -> dict[str, str | None]:
        """Take ``PARTITION (dt = 'x', h)`` if it comes next; return {} if not."""
        return assignments(self.statement, self.inside("( ... )")) if self.accept("PARTITION") else {}

    def until(self, *keywords: str) -> str:
        """Take and return the text before one of these, outside of parentheses and angles."""
        begin, depth = self._place, 0
        while self._place < len(self._words):
            word = self._words[self._place]
            if depth == 0 and word.is_(*keywords):
                break
            depth += word.is_("(", "<") - word.is_(")", ">")
            self._place += 1
        return self.span(self._words[begin : self._place])

    def span(self, words: list[Word]) -> str:
        """Return the text from the first of some words to the last."""
        return self.statement[words[0].start : words[-1].end] if words else ""

    @property
    def rest(self) -> str:
        """Return the remaining text, as typed."""
        return self.span(self._words[self._place :])

    def end(self) -> None:
        """Raise unless all words were taken."""
        if self.here is not None:
            self.fail("the end of the statement")

    def fail(self, expected: str) -> NoReturn:
        shown = " ".join(self.statement.split())
        found = "the end" if self.here is None else f"'{self.here.text[:40]}'"
        raise SqlError(f'expected {expected}, found {found} in "{shown[:120]}"')
