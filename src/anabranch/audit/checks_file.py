"""A parsed file of checks: YAML whose every part knows its line.

YAML is read by PyYAML, which every Python platform has and which reports positions. The type of a plain value
is decided here, by its use: ``no`` is the text "no" where text is expected. Duplicate keys, anchors and
unknown keys are errors, because each of them hides a check that somebody believes is made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

import yaml

from anabranch.errors import InvalidInputError, did_you_mean
from anabranch.option_kinds import parse_duration

_MOST_CHARACTERS = 1 << 18
_MOST_DIGITS = 400
"""Most digits of a number before and after the point; column values have at most 309."""


@dataclass(frozen=True)
class Item:
    """A value of the file, of any kind."""

    node: Any
    """The PyYAML node."""
    file: str

    def mapping(self, known: Collection[str]) -> dict[str, Item]:
        """Return the values by their keys. Raises `InvalidInputError` for an unknown or duplicate key."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"expected keys and values, found {self._what}")
        found: dict[str, Item] = {}
        for key_node, value in self.node.value:
            key = Item(key_node, self.file)
            name = key.text()
            if name not in known:
                hint = did_you_mean(name, known, f"what is: {', '.join(known)}.")
                key.fail(f"'{name}' is not known here", hint)
            if name in found:
                key.fail(f"'{name}' is here twice", "leave one of them out.")
            found[name] = Item(value, self.file)
        return found

    def items(self) -> list[Item]:
        """Return the members of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"expected a list, found {self._what}")
        return [Item(node, self.file) for node in self.node.value]

    def text(self) -> str:
        """Return the text unchanged."""
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value.strip():
            self.fail(f"expected text, found {self._what}")
        return str(self.node.value).strip()

    def line(self) -> str:
        """Return one line of printable text: a name, which is stored with the verdict and shown on terminals."""
        text = self.text()
        if not text.isprintable():
            self.fail(f"a name has signs in it that cannot be printed: {text!a}", "leave them out.")
        return text

    def texts(self) -> list[str]:
        """Return a list of texts, or a single text as a list."""
        if isinstance(self.node, yaml.ScalarNode):
            return [self.text()]
        found = [item.text() for item in self.items()]
        if not found or len({*found}) < len(found):
            self.fail("expected names, each once" if found else "the list is empty")
        return found

    def each(self) -> list[Item]:
        """Return the members of a list of distinct texts, or the one text alone."""
        self.texts()
        return self.items() if isinstance(self.node, yaml.SequenceNode) else [self]

    def integer(self) -> int:
        """Return a whole number from 0 on."""
        number = self.number()
        if number != int(number) or number < 0:
            self.fail(f"expected a whole number, found {number}")
        return int(number)

    def number(self) -> Decimal:
        """Return a number; underscores may group its digits."""
        number = _decimal(self.text())
        if number is None:
            self.fail(f"expected a number, found '{self.text()}'")
        return number

    def value(self) -> str:
        """Return a value to compare a column with, as text: the column's type determines its meaning."""
        is_quoted = isinstance(self.node, yaml.ScalarNode) and self.node.style in ("'", '"')
        return str(self.node.value) if is_quoted else self.text()

    def percentage(self) -> Decimal:
        """Return the number of a percentage: 5 for ``5 %``."""
        text = self.text()
        number, sign, rest = text.partition("%")
        if not sign or rest:
            self.fail(f"expected a percentage, found '{text}'", f"write '{text} %'.")
        found = _decimal(number.strip())
        if found is None:
            self.fail(f"expected a percentage, found '{text}'", "write '5 %'.")
        if found < 0:
            self.fail(f"expected a percentage from 0 on, found '{text}'")
        return found

    @property
    def is_percentage(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and "%" in self.node.value

    def duration(self) -> int:
        """Return milliseconds, from text such as ``2 h``."""
        try:
            return parse_duration(self.text())
        except ValueError:
            self.fail(f"expected a duration, found '{self.text()}'", "write '2 h', '1 d' or '30 min'.")

    def choice(self, *known: str) -> str:
        """Return one of some words."""
        text = self.text()
        if text not in known:
            self.fail(f"expected one of {', '.join(known)}, found '{text}'", did_you_mean(text, known))
        return text

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise `InvalidInputError` naming the file and the line."""
        raise InvalidInputError(f"{self.file}, line {self.node.start_mark.line + 1}: {message}", hint=hint)

    @property
    def _what(self) -> str:
        match self.node:
            case yaml.ScalarNode(value=""):
                return "nothing"
            case yaml.ScalarNode(value=value):
                return f"'{value}'"
            case yaml.SequenceNode():
                return "a list"
            case _:
                return "keys and values"


def _decimal(text: str) -> Decimal | None:
    """Return a finite number of not too many digits; None for any other text.

    ``1e999999999`` is ten characters, but as a whole number it takes hours.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_MOST_DIGITS or number.adjusted() > _MOST_DIGITS:
        return None
    return number


@dataclass(frozen=True)
class Checks:
    """A file of checks, read but not yet interpreted."""

    name: str
    """Name of the file without its folder and extension."""
    root: Item
    digest: str
    """SHA-256 of the text."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checks:
        """Read a file. Raises `InvalidInputError`: it cannot be read, or is not valid YAML."""
        try:
            text = Path(path).read_text("utf-8")
        except OSError as error:
            raise InvalidInputError(
                f"the checks cannot be read from '{os.fspath(path)}': {error.strerror}",
                hint="name a file of checks in YAML.",
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"'{os.fspath(path)}' is no text in UTF-8") from error
        return cls.parse(text, name=Path(path).stem, file=Path(path).name)

    @classmethod
    def parse(cls, text: str, *, name: str = "checks", file: str | None = None) -> Checks:
        """Parse the text of a file. Raises `InvalidInputError`: it is not valid YAML."""
        where = file or name
        if len(text) > _MOST_CHARACTERS:
            raise InvalidInputError(f"{where} has more than {_MOST_CHARACTERS:,} characters")
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
            raise InvalidInputError(f"{where}{line}: {error.problem or error.context}") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise InvalidInputError(f"{where} is no YAML: {str(error).splitlines()[0]}") from error
        if node is None:
            raise InvalidInputError(f"{where} is empty", hint="write a list of checks under 'checks:'.")
        return cls(name, Item(node, where), hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # it comes without types
    """A loader without anchors: with references, a few lines can stand for more than memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not understood", problem_mark=mark)
        return super().compose_node(parent, index)
