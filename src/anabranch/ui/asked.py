"""The arguments of one request: text from outside, checked before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.errors import InvalidInputError

_MOST_TEXT = 2_000
"""Most characters of an argument; longer ones are no names."""


class Asked:
    """Arguments by name, each a list of texts as they come from the address of a request."""

    def __init__(self, pairs: Iterable[tuple[str, str]], body: Mapping[str, Any] | None = None) -> None:
        self._given: dict[str, list[str]] = {}
        for name, value in pairs:
            if len(value) > _MOST_TEXT:
                raise InvalidInputError(
                    f"argument '{name[:40]}' has {len(value):,} characters",
                    hint=f"shorten it: names and filters have at most {_MOST_TEXT:,} here.",
                )
            self._given.setdefault(name, []).append(value)
        self.body = dict(body or {})

    def text(self, name: str) -> str:
        """Return an argument that must be given. Raises `InvalidInputError`."""
        found = self.optional(name)
        if found is None:
            raise _lacking(name)
        return found

    def optional(self, name: str) -> str | None:
        """Return an argument, or None if it was not given or is empty."""
        found = self._given.get(name)
        return found[-1] or None if found else None

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of an argument."""
        return self._given.get(name, [])

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = 1 << 62) -> int:
        """Return a whole number; one above `most` is taken for that. Raises `InvalidInputError`, also for one below `least`."""
        found = self.optional(name)
        if found is None:
            if default is None:
                raise _lacking(name)
            return default
        wanted = f"write it in digits, from {least} on."
        if not found.isascii() or not found.isdigit() or len(found) > 19:
            raise InvalidInputError(f"'{name}' must be a whole number, not '{found[:40]}'", hint=wanted)
        if int(found) < least:
            raise InvalidInputError(f"'{name}' must be at least {least}, not {int(found)}", hint=wanted)
        return min(int(found), most)

    def check_only(self, known: Iterable[str]) -> None:
        """Raise `InvalidInputError` naming arguments that are not among those known: they would have no effect."""
        unknown = sorted(self._given.keys() - {*known})
        if unknown:
            raise InvalidInputError(
                f"there is no argument '{unknown[0][:40]}' here",
                hint=f"arguments there are: {', '.join(known) or 'none'}.",
            )

    def flag(self, name: str) -> bool:
        """Return whether an argument is ``1``."""
        return self.optional(name) == "1"


def _lacking(name: str) -> InvalidInputError:
    return InvalidInputError(f"the request lacks '{name}'", hint=f"add it to the address, as {name}=VALUE.")
