"""The stored pointer to main, ``branch/MAIN-<g>``, and the seal that announces the next one.

Every record is put if absent and never changed, so what was read once stays true; only its absence
must be checked again. A pointer that belongs to a group takes effect when the group is decided, and as decided:
until then only the deciding processes see it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import BRANCH_FOLDER, Part, numbered_id
from anabranch.format.records.main_pointer import (
    MAIN_PREFIX,
    RELEASE_PREFIX,
    SEAL_PREFIX,
    BranchRef,
    MainPointer,
    Release,
    Seal,
)
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_group_decision
from anabranch.kernel.log.parallel import each, reading
from anabranch.kernel.log.properties import SEAL_PROPERTY

COPY_PREFIX = "main-"
"""File name prefix of the copies of decisions, in the archive's folder."""
_WEIGHT = 2048
"""Approximate bytes of a cached pointer without its past."""


def find_pointer(context: TableContext, generation: int, *, fresh: bool = False) -> MainPointer | None:
    """Return ``MAIN-<g>``, or None if it is not decided yet. Raises `CorruptTableError`.

    Args:
        fresh: whether to ask the store instead of the cache: the table may have been replaced by a
            backup.
    """
    known = None if fresh else _known_pointer(context, generation)
    if known is not None:
        return known
    try:
        pointer = proposed_pointer(context, generation)
    except CorruptTableError:
        # The copy is stored once the decision takes effect, and says the same.
        copy = None
        with suppress(CorruptTableError):
            copy = find_copy(context, generation)
        if copy is None:
            raise
        return copy
    if pointer is not None and pointer.group is not None:
        decided = find_group_decision(context, pointer)
        if decided is None:
            return None
        # It counts from the decision on, not from when it was proposed.
        pointer = replace(pointer, made_millis=max(pointer.made_millis, decided.made_millis))
        pointer = pointer if decided.made else pointer.stays(past_after(context, generation - 1))
    if pointer is not None:
        context.cache.put(_key(context, generation), pointer, _WEIGHT + 128 * len(pointer.past))
    return pointer


def _known_pointer(context: TableContext, generation: int) -> MainPointer | None:
    """Return ``MAIN-<g>`` if this process has read it."""
    return context.cache.get(_key(context, generation))


def _key(context: TableContext, generation: int) -> tuple[str, str, str]:
    return context.table_uuid, context.storage.url, pointer_path(context, MAIN_PREFIX, generation)


def find_copy(context: TableContext, generation: int) -> MainPointer | None:
    """The copy of a decision, or None. Raises `CorruptTableError`."""
    return MainPointer.find(context.storage, copy_path(context, generation), generation=generation)


def copy_path(context: TableContext, generation: int) -> str:
    """Return the path of a decision's copy, outside the folders that branch removal touches."""
    return context.layout.history_path(f"{COPY_PREFIX}{generation}")


def proposed_pointer(context: TableContext, generation: int) -> MainPointer | None:
    """Return ``MAIN-<g>`` as stored; in a group it may still be undecided. Raises `CorruptTableError`."""
    path = pointer_path(context, MAIN_PREFIX, generation)
    return MainPointer.find(context.storage, path, generation=generation)


def is_ever_replaced(context: TableContext) -> bool:
    """Whether there is a record of a first replacement, decided or not, or a folder in its place; without, main never moved."""
    try:
        context.storage.info(pointer_path(context, MAIN_PREFIX, 1))
    except NotFoundError as error:
        return error.is_folder
    return True


def newest_pointer(context: TableContext, *, above: int = 0) -> MainPointer | None:
    """Return the pointer in effect, or None if none has a higher number than `above`.

    One read if there is none, whatever `above` is.

    Raises `CorruptTableError`: it cannot be read, and has no copy. Damaged ones below it do not matter.
    """
    try:
        newest = find_pointer(context, above + 1, fresh=True)
    except CorruptTableError:
        listed = _last_in_row(context, above + 1)
        newest = find_pointer(context, listed, fresh=True) if listed > above + 1 else None
        if newest is None:
            raise
    if newest is None:
        return None
    following: MainPointer | None = newest
    listed = _last_in_row(context, newest.generation)
    if listed > newest.generation:
        # Only the highest can be undecided: a number is announced when the one before is decided.
        with reading(context.storage) as begin:
            highest, above_it = (
                begin(partial(find_pointer, context, number, fresh=True)) for number in (listed, listed + 1)
            )
            following = highest() or find_pointer(context, listed - 1, fresh=True)
            if following is not None and following.generation == listed:
                # A decision above one that is made may be looked for before that is read: it is there or it is not.
                newest, following = following, above_it()
    while following is not None:
        newest, following = following, find_pointer(context, following.generation + 1, fresh=True)
    return newest


def _last_in_row(context: TableContext, known: int) -> int:
    """Return the highest pointer number. Raises `CorruptTableError` if lower ones that nobody announced are missing.

    Every replacement takes the next number, so only manual file copying leaves one out. Believing it
    would make every reader look for all the numbers below it. An announced number was decided, or nothing came after
    it: if its record was lost, it is still the highest in effect.
    """
    last = known
    for number in [number for number in numbers(context, MAIN_PREFIX) if number > known]:
        for expected in range(last + 1, number):
            if context.storage.exists(pointer_path(context, MAIN_PREFIX, expected)):
                return _last_in_row(context, known)  # it was put while we listed
            if not context.storage.exists(pointer_path(context, SEAL_PREFIX, expected)):
                raise CorruptTableError(
                    f"there is no {MAIN_PREFIX}{expected}, and without it replacement {number} cannot have been made",
                    path=pointer_path(context, MAIN_PREFIX, number),
                    hint="move this file out of the folder: it did not come about by replacing main.",
                )
        last = number
    return last


def replacements(context: TableContext) -> list[MainPointer]:
    """Return all completed replacements, oldest first."""
    known = context.main_generation or 0  # no decision up to that changes any more
    newest = newest_pointer(context, above=known)
    last = known if newest is None else newest.generation
    found = {number: _known_pointer(context, number) for number in range(1, last + 1)}
    unknown = [number for number, pointer in found.items() if pointer is None]
    read = each(partial(find_pointer, context), unknown, at=context.storage)
    found.update(zip(unknown, read, strict=True))
    return [pointer for pointer in found.values() if pointer is not None and pointer.replaced is not None]


def put_pointer(context: TableContext, pointer: MainPointer) -> bool:
    """Store a decision, or a proposal within a group; False if the number is taken. Raises `StorageError`."""
    return context.storage.put_if_absent(
        pointer_path(context, MAIN_PREFIX, pointer.generation), pointer.to_json()
    )


def main_before(context: TableContext, generation: int) -> BranchRef:
    """Return the branch that was main before decision `generation`."""
    before = find_pointer(context, generation - 1) if generation > 1 else None
    return BranchRef(None, context.table_uuid) if before is None else before.main


def past_after(context: TableContext, generation: int) -> tuple[Part, ...]:
    """Return where main's history goes on below what lies in its own folder, after decision `generation`."""
    pointer = find_pointer(context, generation) if generation else None
    return () if pointer is None else pointer.past


def find_seal(context: TableContext, generation: int) -> Seal | None:
    """``SEAL-<g>``, or None. Raises `CorruptTableError`."""
    return Seal.find(context.storage, pointer_path(context, SEAL_PREFIX, generation))


def put_seal(context: TableContext, generation: int, seal: Seal) -> bool:
    """Announce a replacement; False if another one took that number."""
    return context.storage.put_if_absent(pointer_path(context, SEAL_PREFIX, generation), seal.to_json())


def seal_of(snapshot: Snapshot) -> int | None:
    """Return the number of the replacement that a snapshot seals, or None if it is not a seal."""
    number = snapshot.properties.get(SEAL_PROPERTY, "")
    return int(number) if number.isascii() and number.isdigit() else None


def find_release(context: TableContext, generation: int) -> Release | None:
    """Return ``RELEASE-<g>``, or None while it is undecided. Raises `CorruptTableError`."""
    return Release.find(context.storage, pointer_path(context, RELEASE_PREFIX, generation))


def is_dropped(context: TableContext, replacement: MainPointer) -> bool:
    """Whether it is decided that the main of before a replacement goes. Raises `CorruptTableError`."""
    release = find_release(context, replacement.generation)
    return release is not None and release.what == "drop"


def put_release(context: TableContext, generation: int, release: Release) -> bool:
    """Decide whether a replaced main is dropped or kept; False if that was decided otherwise."""
    return context.storage.put_if_absent(pointer_path(context, RELEASE_PREFIX, generation), release.to_json())


def numbers(context: TableContext, prefix: str) -> list[int]:
    """Return the numbers of the records of one kind, ascending; one listing."""
    names = (info.path.rpartition("/")[2] for info in context.storage.list(BRANCH_FOLDER))
    return sorted(number for name in names if (number := numbered_id(name, prefix)) is not None)


def pointer_path(context: TableContext, prefix: str, generation: int) -> str:
    """Return the path of a decision, seal or release."""
    return context.layout.branches_file_path(f"{prefix}{generation}")
