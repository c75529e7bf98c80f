"""The names objects may have, checked by their text alone before any store is asked.

Nothing here looks at a store, so what a name means cannot change between the check and the use.
"""

from __future__ import annotations

import os
from typing import Final

from anabranch.errors import InvalidInputError, InvalidNameError

# The longest file name of every common file system, in bytes.
_LONGEST_FILE_NAME: Final = 255


def check_path(path: str) -> None:
    """Refuse an invalid object name. Raises `InvalidNameError`."""
    for segment in path.split("/"):
        if segment in {"", ".", ".."}:
            raise InvalidNameError(
                f"{path!r} is not the name of an object: it has {_described(segment, path)}",
                hint="Names are relative to the root of the store, with single slashes and no dots between.",
            )
    if not path.isascii():
        _check_encodable(path)
    if "\0" in path:
        raise InvalidNameError(f"{path!r} is not the name of an object: it contains a NUL character")


def check_prefix(prefix: str) -> None:
    """Refuse an invalid folder name; the empty one is the root. Raises `InvalidNameError`."""
    if prefix:
        check_path(prefix)


def check_range(path: str, start: int, length: int) -> None:
    """Refuse an invalid range. Raises `InvalidInputError`."""
    if start < 0 or length < 0:
        raise InvalidInputError(f"cannot read {length} bytes from byte {start} of {path}: both count from 0")


def join(prefix: str, path: str) -> str:
    """The name of `path` seen from the folder above `prefix`; either may be empty."""
    return f"{prefix}/{path}" if prefix and path else prefix or path


def temporary_name(path: str, unique: str) -> str:
    """Name under which `path` is written before it appears: ``.<file name>.<unique>.tmp`` beside it."""
    folder, _, name = path.rpartition("/")
    room = _LONGEST_FILE_NAME - len(f"..{unique}.tmp")
    shortened = os.fsdecode(os.fsencode(name)[:room])
    return join(folder, f".{shortened}.{unique}.tmp")


def is_temporary(path: str) -> bool:
    """Whether the name is one of an unfinished write, ours or another engine's."""
    return path.endswith(".tmp") and path[path.rfind("/") + 1] == "."


def _described(segment: str, path: str) -> str:
    if segment:
        return f"a segment {segment!r}"
    return "no segments" if not path else "an empty segment"


def _check_encodable(path: str) -> None:
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"{path!r} is not the name of an object: {error.reason}") from None
