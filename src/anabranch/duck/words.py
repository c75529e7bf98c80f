"""The words of SQL, with strings, quoted names, comments and hints told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anabranch.errors import SqlError

_PATTERN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*)
  | (?P<hint>/\*\+)
  | (?P<comment>/\*.*?\*/)
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
  | (?P<number>\d[\w.]*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<sign>[^'"`])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a statement, and where it stands."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        if self.kind != "quoted":
            return self.text
        quote = self.text[0]
        return self.text[1:-1].replace(quote * 2, quote)

    def is_(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


def words_of(statement: str) -> list[Word]:
    """Return the words of a statement without comments. Raises `SqlError` for a quote or comment that is never closed."""
    found, place = [], 0
    while place < len(statement):
        match = _PATTERN.match(statement, place)
        if match is None or (statement.startswith("/*", place) and match.lastgroup == "sign"):
            what = "the quote" if match is None else "the comment"
            raise SqlError(
                f"{what} is never closed (character {place + 1}: {statement[place : place + 30]!r})",
                hint="look at the quotes.",
            )
        if match.lastgroup not in ("skip", "comment"):
            found.append(Word(str(match.lastgroup), match[0], place))
        place = match.end()
    return found


def statements_of(script: str) -> list[str]:
    """Split a script at semicolons, leaving out empty and comment-only parts. Raises `SqlError`."""
    found, begin = [], None
    for word in words_of(script):
        if word.text == ";":
            if begin is not None:
                found.append(script[begin : word.start].rstrip())
            begin = None
        elif begin is None:
            begin = word.start
    return found if begin is None else [*found, script[begin:].strip()]


def quoted(name: str) -> str:
    """Return a name as DuckDB reads it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
