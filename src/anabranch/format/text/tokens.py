"""Words, numbers and signs of type and column text, with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn

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
