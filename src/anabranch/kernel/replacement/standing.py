"""Selects the replacements of main that are in effect, after undos."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.kernel.log.context import TableContext


def standing(known: Sequence[MainPointer]) -> list[MainPointer]:
    """Return the replacements that were not undone, oldest first.

    Args:
        known: all replacements, oldest first.
    """
    found: list[MainPointer] = []
    for pointer in known:
        if pointer.replaced is not None and pointer.replaced.undoes is not None:
            found.pop()
        else:
            found.append(pointer)
    return found


def last_standing(main: TableContext, known: Sequence[MainPointer], asked: int | None) -> MainPointer:
    """Return the last replacement in effect, the only one that can be undone.

    Args:
        main: the main branch.
        known: all replacements, oldest first.
        asked: number of the requested one; None for the last.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: another one is requested.
    """
    found = standing(known)
    if not found:
        raise NotFoundError(
            f"main of '{main.name}' was not replaced" + (", or all of that was taken back" if known else ""),
            hint="a replacement in the mode 'commit' is an ordinary commit: `rollback` takes it back.",
        )
    last = found[-1]
    if asked not in (None, last.generation):
        raise InvalidInputError(
            f"replacement {asked} of main of '{main.name}' is not the last one that counts, which is {last.generation}",
            hint=f"take back {former_main_name(last.generation)} first.",
        )
    return last
