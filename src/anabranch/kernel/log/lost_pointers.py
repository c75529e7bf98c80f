"""Decisions about main of which the record was lost: ``MAIN-<g>`` is not there, though other records prove that it was.

Without it main would be what it was before, and whoever waits for the decision would make another. What proves one was
all stored after it: a copy in the folder of the archive, which everybody puts who replaced main and `maintain` where
that died; the hint for people that names main, where it is newer than the announcement; what became of the old main;
a decision of a higher number. So each is looked at before the decision itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.records.layout import HISTORY_FOLDER, numbered_id
from anabranch.format.records.main_pointer import (
    HINT_FILE,
    MAIN_PREFIX,
    RELEASE_PREFIX,
    SEAL_PREFIX,
    MainPointer,
    Seal,
)
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_pointer import (
    COPY_PREFIX,
    copy_path,
    find_pointer,
    find_seal,
    newest_pointer,
    numbers,
)


@dataclass(frozen=True, slots=True)
class LostDecision:
    """A decision about main that was made, and of which the record is not there."""

    generation: int
    proof: str
    """The file that proves it."""
    path: str
    """Where the record is missing."""


def keep_copy(context: TableContext, pointer: MainPointer) -> None:
    """Store a replacement that counts once more, out of reach of who removes branches. A failure is left for `maintain`."""
    with suppress(StorageError):
        context.storage.put_if_absent(copy_path(context, pointer.generation), pointer.to_json())


def complete_pointer_copies(context: TableContext, pointers: Sequence[MainPointer]) -> None:
    """Store the copies that are missing, because whoever replaced main died right then; one listing."""
    known = copies(context) if pointers else set()
    for pointer in pointers:
        if pointer.generation not in known:
            keep_copy(context, pointer)


def lost_decisions(context: TableContext) -> list[LostDecision]:
    """All of them, oldest first. Three listings where main was ever replaced, two elsewhere."""
    copied = copies(context)
    seals = set(numbers(context, SEAL_PREFIX))
    hinted = _hinted(context, max(seals)) if seals else None
    released = set(numbers(context, RELEASE_PREFIX))
    decided = set(numbers(context, MAIN_PREFIX))
    newest = max(decided, default=0)
    found = []
    for number in sorted((copied | seals | released) - decided):
        if number in copied:
            proof = copy_path(context, number)
        elif number in released:
            proof = _path(context, RELEASE_PREFIX, number)
        elif number < newest:
            proof = _path(context, MAIN_PREFIX, newest)
        elif number == hinted:
            proof = context.layout.branches_file_path(HINT_FILE)
        else:
            continue
        path = _path(context, MAIN_PREFIX, number)
        if not context.storage.exists(path):
            found.append(LostDecision(number, proof, path))
    return found


def check_decisions(context: TableContext) -> None:
    """Raise `CorruptTableError` if a decision was lost: what is taken for main then need not be."""
    for lost in lost_decisions(context):
        raise _refusal(context, lost)


def check_sealed(context: TableContext, generation: int) -> None:
    """Refuse to take a main for undecided that was sealed and replaced, and whose replacement was lost.

    Raises `CorruptTableError`.
    """
    check_decisions(context)
    if find_seal(context, generation) is None and find_pointer(context, generation) is None:
        # It is announced before main is sealed, and the announcement stays.
        path = _path(context, MAIN_PREFIX, generation)
        raise _refusal(context, LostDecision(generation, "the last snapshot, which is a seal,", path))


def check_main_known(context: TableContext, generation: int | None) -> None:
    """Refuse to read what was main, if what is read is its seal and the replacement was lost.

    Args:
        context: the branch that is read.
        generation: the replacement that the snapshot is the seal of; None if it is none, which costs nothing.

    Raises `CorruptTableError`.
    """
    known = context.main_generation
    if generation is not None and known is not None and generation > known:
        with suppress(CorruptTableError):
            if newest_pointer(context, above=known) is not None:
                return  # decided meanwhile, or main stayed
        check_sealed(context, generation)


def lost_seal(context: TableContext, generation: int) -> Seal | None:
    """The announcement of a lost decision, as far as it can be read."""
    try:
        return find_seal(context, generation)
    except AnabranchError:
        return None


def _hinted(context: TableContext, newest: int) -> int | None:
    """The newest announcement, if the name of main was written down after it and is the one announced."""
    path = context.layout.branches_file_path(HINT_FILE)
    try:
        seal = find_seal(context, newest)
        name, written = context.storage.get(path), context.storage.info(path).modified_millis
        begun = context.storage.info(_path(context, SEAL_PREFIX, newest)).modified_millis
    except (NotFoundError, CorruptTableError):
        return None
    if seal is None or written < begun or name != (seal.target.name or "main").encode():
        return None
    return newest


def _refusal(context: TableContext, lost: LostDecision) -> CorruptTableError:
    return CorruptTableError(
        f"it is not known which branch is main of '{context.name}': {lost.path}, the record of replacement "
        f"{lost.generation}, is not there, though {lost.proof} tells that it was decided",
        path=lost.path,
        hint="`repair` puts it back; until then nothing is read from or written to what was main before.",
    )


def copies(context: TableContext) -> set[int]:
    """The numbers of the decisions of which there is a copy; one listing."""
    names = (info.path.rpartition("/")[2] for info in context.storage.list(HISTORY_FOLDER))
    return {number for name in names if (number := numbered_id(name, COPY_PREFIX)) is not None}


def _path(context: TableContext, prefix: str, generation: int) -> str:
    return context.layout.branches_file_path(f"{prefix}{generation}")
