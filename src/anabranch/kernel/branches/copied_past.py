"""Copies of main's past on a branch, left by a replacement that did not finish."""

from __future__ import annotations

from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.exact import delete_snapshot
from anabranch.kernel.log.main_pointer import replacements


def drop_expired(main: TableContext, target: TableContext, fork: SnapshotRef) -> None:
    """Remove copied snapshots that main no longer has from a branch that never was main, oldest first.

    A replacement that died may have put them when their files were gone already. One that is under way loses
    only expired snapshots. A current or former main keeps its past, and expires it by itself.
    """
    numbers = [number for number in target.snapshots.ids() if number < fork.id]
    if not numbers or _is_or_was_main(main, target):
        return
    oldest = min(main.snapshots.ids(), default=0)  # a main without any has lost them: they did not expire
    for number in numbers:
        copy = target.snapshots.find(number) if number < oldest else None
        if copy is not None:
            delete_snapshot(target, copy)


def _is_or_was_main(main: TableContext, target: TableContext) -> bool:
    uuid = target.branch_uuid
    known = replacements(main)
    return main.branch_uuid == uuid or any(
        uuid in (pointer.main.uuid, pointer.replaced.old.uuid) for pointer in known if pointer.replaced
    )
