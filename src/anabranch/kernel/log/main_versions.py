"""Versions of main after replacements: two mains may share a snapshot number, so versions can name the main.

``main@1.snapshot.57`` is snapshot 57 of the main that replacement 1 replaced, ``main.snapshot.57`` that of the current
main. The bare number is refused if it is ambiguous. The same prefixes go before every other version: ``main@1.good``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from anabranch.errors import InvalidInputError
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import former_main_name, former_main_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import former_main
from anabranch.kernel.log.main_pointer import replacements
from anabranch.options import SCAN_VERSION

V = TypeVar("V", str, int, str | int)


def located(context: TableContext, version: V) -> tuple[TableContext, V]:
    """Split a version of main into the branch to look on and the version without its main prefix.

    Raises `NotFoundError`: there is no such former main.
    """
    if not isinstance(version, str) or context.main_generation is None:
        return context, version
    place, _, rest = version.partition(".")
    replacement = former_main_of(place)
    if rest and replacement is not None:
        return former_main(context, replacement), rest
    if rest and place == MAIN_BRANCH and context.main_generation:
        return context.on_branch(context.branch), rest  # by its name: no number is ambiguous there
    return context, version


def located_options(
    context: TableContext, options: Mapping[str, str]
) -> tuple[TableContext, Mapping[str, str]]:
    """Apply `located` to the version in read options. Raises `NotFoundError`."""
    version = SCAN_VERSION.of(options)
    if version is None:
        return context, options
    place, rest = located(context, version)
    return place, {**options, SCAN_VERSION.key: rest}


def check_unambiguous(context: TableContext, number: int) -> None:
    """Raise `InvalidInputError` if a former main had another snapshot of that number."""
    if not context.main_generation:
        return
    for pointer in reversed(replacements(context)):
        if pointer.replaced is not None and pointer.replaced.fork.id < number <= pointer.replaced.head.id:
            former = former_main_name(pointer.generation)
            raise InvalidInputError(
                f"AMBIGUOUS_SNAPSHOT: main of '{context.name}' had a snapshot {number} before replacement "
                f"{pointer.generation}, and may have another one since",
                hint=f"ask for '{former}.snapshot.{number}' or for '{MAIN_BRANCH}.snapshot.{number}'.",
            )
