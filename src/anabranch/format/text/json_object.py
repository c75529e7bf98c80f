"""Reading JSON that somebody else wrote: whatever is wrong becomes one error that names the file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from anabranch.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError

MIN_LONG = -(2**63)
MAX_LONG = 2**63 - 1
_MAX_DEPTH = 350
"""Deep enough for the deepest type, and shallow enough to be written again from anywhere."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object and the path of the file it stands in.

    The accessors check the JSON type of a value; one that returns an optional value takes null for absent.
    All raise `CorruptTableError` naming the file, the key and what was found.
    """

    values: Mapping[str, Any]
    path: str

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> JsonObject:
        """The object that a file holds."""
        try:
            value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
            _check_depth(value)
            if b"\\u" in data:
                # Escapes can spell half of a surrogate pair, which no file could be written with again.
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise CorruptTableError(
                f"is no readable JSON: {_reason(error)}",
                path=path,
                hint="the file is damaged or was cut off: `verify` tells what depends on it, `repair` makes it again where it can.",
            ) from error
        if not isinstance(value, dict):
            raise CorruptTableError(f"holds {describe(value)}, expected a JSON object", path=path)
        return cls(value, path)

    def integer(self, key: str, *, minimum: int = MIN_LONG, maximum: int = MAX_LONG) -> int:
        """A number without fraction between the bounds."""
        value = self.optional_integer(key, minimum=minimum, maximum=maximum)
        return self._missing(key, "a whole number") if value is None else value

    def optional_integer(self, key: str, *, minimum: int = MIN_LONG, maximum: int = MAX_LONG) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(f"'{key}' is {describe(value)}, expected a whole number")
        if not minimum <= value <= maximum:
            self.fail(f"'{key}' is out of range: expected {minimum} to {maximum}")
        return value

    def version(self, newest: int, *, first: int | None = None) -> int:
        """Read the version of a file of ours. Raises `UnsupportedFeatureError` if a newer Anabranch wrote it.

        Args:
            newest: the newest version that this release reads.
            first: the version of files that name none; None if every file names its own.
        """
        check_version(self.values.get("version"), newest, path=self.path)
        if first is not None and "version" not in self.values:
            return first
        return self.integer("version", minimum=1, maximum=newest)

    def others(self, known: Collection[str]) -> dict[str, Any]:
        """Return the fields that this release does not know, to be written again with the file.

        Raises `CorruptTableError` if one of them is a known key in which a bit has changed.
        """
        found = {key: value for key, value in self.values.items() if key not in known}
        if found:
            self.check_keys(found, [key for key in known if key not in self.values])
        return found

    def check_keys(self, found: Iterable[str], missing: Collection[str]) -> None:
        """Raise `CorruptTableError` if one bit tells a key that is there from one that is missing.

        What a file says under such a key would go without a word: a checksum in it goes as well.
        """
        for key in found:
            for other in missing:
                if _is_a_bit_from(key, other):
                    raise CorruptTableError(
                        f"has the key {describe(key)} with one bit changed in place of '{other}'",
                        path=self.path,
                        hint="the file is damaged. `verify` tells what depends on it, `repair` puts it right where it can.",
                    )

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        return self._missing(key, "text") if value is None else value

    def optional_text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(f"'{key}' is {describe(value)}, expected text")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            self.fail(f"'{key}' is {describe(value)}, expected true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """A JSON array, its members not yet checked."""
        value = self.values.get(key)
        if value is None:
            self._missing(key, "an array")
        if not isinstance(value, list):
            self.fail(f"'{key}' is {describe(value)}, expected an array")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of text."""
        items = self.items(key)
        for item in items:
            if not isinstance(item, str):
                self.fail(f"'{key}' holds {describe(item)}, expected text only")
        return tuple(items)

    def text_map(self, key: str) -> dict[str, str]:
        """An object whose values are text; absent is an error."""
        value = self.values.get(key)
        return self._missing(key, "an object") if value is None else self.optional_text_map(key)

    def optional_text_map(self, key: str) -> dict[str, str]:
        """An object whose values are text; empty if absent."""
        value = self._optional_object(key)
        for name, item in value.items():
            if not isinstance(item, str):
                self.fail(f"'{key}' gives '{name}' as {describe(item)}, expected text")
        return value

    def optional_integer_map(self, key: str) -> dict[int, int]:
        """An object from whole numbers, written as text, to whole numbers; empty if absent."""
        inner = JsonObject(self._optional_object(key), self.path)
        result: dict[int, int] = {}
        for name in inner.values:
            digits = name.removeprefix("-")
            if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
                self.fail(f"'{key}' has the key {describe(name)}, expected a whole number")
            result[int(name)] = inner.integer(name)
        return result

    def part(self, key: str) -> JsonObject:
        """An object within this one; absent is an error."""
        if self.values.get(key) is None:
            self._missing(key, "an object")
        return JsonObject(self._optional_object(key), f"{self.path}: {key}")

    def fail(self, message: str) -> NoReturn:
        """Raise `CorruptTableError` naming the file."""
        raise CorruptTableError(message, path=self.path)

    def _optional_object(self, key: str) -> dict[str, Any]:
        value = self.values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(f"'{key}' is {describe(value)}, expected an object")
        return value

    def _missing(self, key: str, expected: str) -> NoReturn:
        self.fail(f"'{key}' is missing, expected {expected}")


def check_version(found: Any, newest: int, *, path: str) -> None:
    """Raise `UnsupportedFeatureError` if a file or value of ours has a newer version than this release reads.

    Every reader of a format of our own asks here first: what an old release does not understand it neither takes for damage,
    nor repairs, nor writes again without the parts that are new.

    Args:
        found: the value of ``version``; one that is not a number is left to the reader.
        newest: the newest version that this release reads.
    """
    if isinstance(found, int) and not isinstance(found, bool) and found > newest:
        raise UnsupportedFeatureError(
            f"was written by a newer version of Anabranch: it has format version {found}, and this release reads up to {newest}",
            feature="newer-version",
            path=path,
            hint="upgrade Anabranch here too: pip install --upgrade anabranch. Nothing was changed.",
        )


def to_bytes(values: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    """The object as the content of a file. Raises `InvalidInputError` for text that no file can hold.

    Args:
        values: of the object.
        indent: how far parts are indented, for people; None for one line, which takes a tenth of the time.
    """
    try:
        return json.dumps(values, ensure_ascii=False, indent=indent, allow_nan=False).encode("utf-8")
    except ValueError as error:
        raise InvalidInputError(
            f"a text or number cannot be stored: {error}", hint="use valid Unicode text and finite numbers."
        ) from error


def describe(value: Any) -> str:
    """Describe a JSON value, short enough for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return repr(value if len(value) <= 40 else f"{value[:40]}…")
        case list():
            return "an array"
        case _:
            return "an object"


def _is_a_bit_from(key: str, other: str) -> bool:
    one, two = key.encode("utf-8"), other.encode("utf-8")
    return len(one) == len(two) and sum((a ^ b).bit_count() for a, b in zip(one, two, strict=True)) == 1


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise RecursionError


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
