"""Which branch is main: the one in the table's own folder, until a replacement names another.

A context that was opened as main knows how many replacements had been decided by then. Whoever begins an operation
with it asks `main_of` again, which costs one look for the next pointer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from anabranch.errors import NotFoundError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_pointer import find_pointer, find_release, newest_pointer, replacements
from anabranch.kernel.log.properties import WRITER_PROPERTY

_LOG = logging.getLogger(__name__)


def main_of(context: TableContext) -> TableContext:
    """The main branch of a table as of now.

    Args:
        context: the table, on any branch. One that was opened as main is returned itself if it still is.

    Raises `CorruptTableError`: a pointer cannot be read, so it is not known what main is.
    """
    pointer = newest_pointer(context, above=context.main_generation or 0)
    if pointer is not None:
        _warn_of_foreign_commits(context, pointer)
        return as_main(context, pointer.main.name, pointer.generation)
    return context if context.main_generation is not None else as_main(context, None, 0)


def as_main(context: TableContext, branch: str | None, generation: int) -> TableContext:
    """A branch as the main that it was after so many decisions."""
    return replace(context, branch=branch, main_generation=generation, known_as=None)


def former_main(context: TableContext, generation: int) -> TableContext:
    """The branch that a replacement put out of the place of main: ``main@<g>``, which can only be read.

    Raises `NotFoundError`: there was no such replacement, or what it replaced was dropped.
    """
    name = former_main_name(generation)
    pointer = find_pointer(context, generation)
    if pointer is None or pointer.replaced is None:
        known = ", ".join(former_main_name(found.generation) for found in replacements(context))
        raise NotFoundError(
            f"branch '{name}' does not exist in '{context.name}': main was not replaced under that number",
            hint=f"replaced mains there are: {known}." if known else "main was never replaced.",
        )
    release = find_release(context, generation)
    if release is not None and release.what == "drop":
        raise NotFoundError(
            f"'{name}' of '{context.name}' was dropped, when it was not kept any longer",
            hint="branch.replaced-main.time-retained says how long a replaced main is kept.",
        )
    return replace(context, branch=pointer.replaced.old.name, main_generation=None, known_as=name)


def foreign_after(context: TableContext, pointer: MainPointer) -> Snapshot | None:
    """A snapshot that another engine put on a replaced main after it was sealed, or None.

    It is in no main any more. Asked of a pointer whose old main is not main again.
    """
    if pointer.replaced is None:
        return None
    old = context.on_branch(pointer.replaced.old.name)
    found = old.snapshots.find(pointer.replaced.head.id + 2)
    return None if found is None or WRITER_PROPERTY in found.properties else found


def _warn_of_foreign_commits(context: TableContext, pointer: MainPointer) -> None:
    found = foreign_after(context, pointer)
    key = (context.storage.url, context.table_uuid, "foreign after seal", str(pointer.generation))
    if found is not None and context.cache.get(key) is None:
        context.cache.put(key, True, 1)
        _LOG.warning(
            "FOREIGN_AFTER_SEAL: another engine committed snapshot %d to the old main of '%s' after it was replaced; its "
            "rows are not in main, but in '%s'",
            found.id,
            context.name,
            former_main_name(pointer.generation),
        )


def succession(context: TableContext, branch_uuid: str) -> MainPointer | None:
    """The newest replacement that put this branch out of the place of main, or None if it never was."""
    for pointer in reversed(replacements(context)):
        if pointer.replaced is not None and pointer.replaced.old.uuid == branch_uuid:
            return pointer
    return None


def is_in_past(main: TableContext, snapshot: SnapshotRef) -> bool:
    """Whether a snapshot is in the history of main, what replacements copied to it included.

    Where its own file has expired, the replacements tell up to where each main took over the past of the one before.
    """
    found = main.snapshots.find(snapshot.id) if snapshot.id else None
    if found is not None:
        return found.stamp == snapshot.stamp
    head = main.snapshots.head()
    if head is None or not 0 < snapshot.id < head.id:
        return False
    known = replacements(main)
    return _maker(known, main.branch_uuid, snapshot.id) == _maker(known, snapshot.branch_uuid, snapshot.id)


def _maker(known: Sequence[MainPointer], uuid: str, number: int) -> str:
    """The identity of the branch that made the snapshot of that number in the history of a branch that is or was main."""
    for _ in known:  # each step goes to a branch that is older, so there are no more of them
        begun = [
            p.replaced.fork for p in known if p.main.uuid == uuid and p.replaced and p.replaced.undoes is None
        ]
        if not begun or number > begun[-1].id:
            break
        uuid = begun[-1].branch_uuid
    return uuid


def main_by_uuid(context: TableContext, branch_uuid: str) -> TableContext | None:
    """The branch of that identity as main, which it is or was; None if it never was.

    Args:
        context: the table, on any branch.
        branch_uuid: of the branch.
    """
    main = main_of(context)
    if main.branch_uuid == branch_uuid:
        return main
    pointer = succession(main, branch_uuid)
    if pointer is None or pointer.replaced is None:
        return None
    return as_main(main, pointer.replaced.old.name, pointer.generation - 1)
