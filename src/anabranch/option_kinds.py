"""What an option is, and the kinds of values that there are: how the text of each is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo

from anabranch.errors import OptionError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option: how its text is read and what holds when it is absent."""

    key: str
    parse: Callable[[str], T]
    default: T
    meaning: str
    kind: str

    def of(self, options: Mapping[str, str]) -> T:
        """The option's value in `options`. Raises `OptionError` naming the key."""
        text = options.get(self.key)
        if text is None:
            return self.default
        try:
            return self.parse(str(text))
        except ValueError as error:
            raise OptionError(
                f"option '{self.key}' is '{text}', which is no {self.kind}",
                hint=f"{self.meaning} Default: {self.default}.",
            ) from error


LONGEST = 2**63 - 1
"""The largest size, duration or whole number: those of Java, which other engines read them with."""
_SIZE = re.compile(r"\s*(\d+)\s*([a-zA-Z]*)\s*")
_SIZE_UNITS = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_DURATION_UNITS = {
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "secs": 1_000, "second": 1_000, "seconds": 1_000,
    "": 1, "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def _scaled(text: str, units: Mapping[str, int]) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(text)
    value = int(match[1]) * units[match[2].lower()]
    if value > LONGEST:
        raise ValueError(text)
    return value


def parse_size(text: str) -> int:
    """Bytes from text such as ``256 MB`` or ``8mb``; units are powers of 1024. Raises `ValueError`."""
    return _scaled(text, _SIZE_UNITS)


def parse_duration(text: str) -> int:
    """Milliseconds from text such as ``1 h``, ``30 s`` or ``500 ms``. Raises `ValueError`."""
    return _scaled(text, _DURATION_UNITS)


def parse_bool(text: str) -> bool:
    """``true`` or ``false`` in any case. Raises `ValueError`."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(text)


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > LONGEST:
        raise ValueError(text)
    return value


def at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _whole(text)
        if value < least:
            raise ValueError(text)
        return value

    return parse


def text(key: str, default: str | None, meaning: str) -> Option[str | None]:
    """Text, or None."""
    return Option(key, str, default, meaning, "text")


def required_text(key: str, default: str, meaning: str) -> Option[str]:
    """Text that is there."""
    return Option(key, str, default, meaning, "text")


def integer(key: str, default: int, meaning: str) -> Option[int]:
    """A whole number."""
    return Option(key, _whole, default, meaning, "whole number")


def bounded(key: str, default: int, least: int, most: int, meaning: str) -> Option[int]:
    """A whole number from `least` to `most`."""

    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return Option(key, parse, default, meaning, f"whole number from {least} to {most}")


def spelled(key: str, default: str, pattern: str, meaning: str, kind: str) -> Option[str]:
    """Text of one form, in any case."""

    def parse(text: str) -> str:
        if re.fullmatch(pattern, text.strip(), re.IGNORECASE) is None:
            raise ValueError(text)
        return text

    return Option(key, parse, default, meaning, kind)


def count(key: str, default: int, meaning: str) -> Option[int]:
    """A whole number above 0."""
    return Option(key, at_least(1), default, meaning, "whole number above 0")


def limit(key: str, meaning: str) -> Option[int | None]:
    """A whole number above 0, or None."""
    return Option(key, at_least(1), None, meaning, "whole number above 0")


def flag(key: str, default: bool, meaning: str) -> Option[bool]:
    """True or false."""
    return Option(key, parse_bool, default, meaning, "true or false")


def size(key: str, default: str, meaning: str) -> Option[int]:
    """Bytes, such as ``128 MB``."""
    return Option(key, parse_size, parse_size(default), meaning, "size such as '128 MB'")


def optional_size(key: str, meaning: str) -> Option[int | None]:
    """Bytes, or None."""
    return Option(key, parse_size, None, meaning, "size such as '128 MB'")


def duration(key: str, default: str, meaning: str) -> Option[int]:
    """Milliseconds, such as ``30 s``."""
    return Option(key, parse_duration, parse_duration(default), meaning, "duration such as '30 s'")


def optional_duration(key: str, meaning: str) -> Option[int | None]:
    """Milliseconds, or None."""
    return Option(key, parse_duration, None, meaning, "duration such as '30 s'")


def choice(key: str, default: str, choices: tuple[str, ...], meaning: str) -> Option[str]:
    """One of some words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return Option(key, parse, default, meaning, "one of " + ", ".join(choices))


def zone(key: str, default: str | None, meaning: str) -> Option[str | None]:
    """Name of a time zone."""

    def parse(text: str) -> str:
        try:
            return ZoneInfo(text).key
        except (KeyError, OSError) as error:
            raise ValueError(text) from error

    return Option(key, parse, default, meaning, "time zone such as 'Europe/Berlin'")
