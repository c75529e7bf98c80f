"""Finds the newest snapshot that main shares with a branch.

A branch that began in main's past shares everything up to its fork. One that is put in main's place by force may have
begun elsewhere, as on a main that was replaced since. Numbers alone say nothing then: main has a snapshot of the fork's
number that the branch never had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.format.records.main_pointer import MainPointer
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import is_in_past, main_by_uuid
from anabranch.kernel.log.main_pointer import replacements


def last_in_common(main: TableContext, fork: SnapshotRef) -> SnapshotRef:
    """Return the newest snapshot that main and a branch have in common.

    Args:
        main: the main branch.
        fork: the snapshot that the branch began with.

    Returns:
        `fork` itself if it is in main's past. Snapshot 0 if there is none, or it can no longer be told.
    """
    if is_in_past(main, fork):
        return fork
    known = replacements(main)
    head = main.snapshots.head()
    ours = [] if head is None else [SnapshotRef(main.branch_uuid, head.id, head.stamp)]
    ours += _beginnings(known, main.branch_uuid)
    for mine in ours:
        for theirs in (fork, *_beginnings(known, fork.branch_uuid)):
            if mine.branch_uuid == theirs.branch_uuid:
                return _lower(main, mine, theirs) or _nothing(main)
    return _nothing(main)


def _beginnings(known: Sequence[MainPointer], uuid: str) -> Iterator[SnapshotRef]:
    """Yield what a current or former main shares with the main that it replaced, then what that shared, and so on."""
    for _ in known:  # each step goes to an older branch, which bounds the loop
        begun = [
            p.replaced.fork for p in known if p.main.uuid == uuid and p.replaced and p.replaced.undoes is None
        ]
        if not begun or not begun[-1].id:
            return
        yield begun[-1]
        uuid = begun[-1].branch_uuid


def _lower(main: TableContext, one: SnapshotRef, other: SnapshotRef) -> SnapshotRef | None:
    """Return the older of two snapshots of a branch; None if that branch no longer has it."""
    branch = main_by_uuid(main, one.branch_uuid)
    older = min(one, other, key=lambda ref: ref.id)
    found = None if branch is None else branch.snapshots.find(older.id)
    return older if found is not None and found.stamp == older.stamp else None


def _nothing(main: TableContext) -> SnapshotRef:
    return SnapshotRef(main.branch_uuid, 0, "")
