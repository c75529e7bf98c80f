"""Word by word reader of a statement."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import SqlError
from anabranch.spark.sql.insert import assignments
from anabranch.spark.sql.scanner import Word, closing, matches, name_at, words_of


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
