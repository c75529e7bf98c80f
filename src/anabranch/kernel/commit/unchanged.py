"""Checks that the rows a commit replaces have not changed since its author read them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.kernel.commit.base import Base, Conflict


def changed_conflict(
    base: Base, since: SnapshotRef, replaced: Callable[[pl.DataFrame], pl.DataFrame]
) -> Conflict | None:
    """Return a conflict if rows to be replaced changed after a snapshot, or if that cannot be told.

    Compactions change no rows.

    Args:
        base: the base of the commit.
        since: the snapshot that was read; number 0 for a table that had none.
        replaced: selects, from manifest entries, those of the partitions to be replaced.
    """
    if base.snapshot is None:
        return None if since.id == 0 else _untold(base, since)
    lowest = None
    for snapshot in base.context.snapshots.down_to(base.snapshot, since.id):
        if snapshot.id <= since.id:
            return None if snapshot.stamp == since.stamp else _untold(base, since)
        try:
            if _changes(base, snapshot, replaced):
                return _changed(base, since, snapshot)
        except CorruptTableError:  # it is expiring just now
            return _untold(base, since)
        lowest = snapshot.id
    return None if since.id == 0 and lowest == 1 else _untold(base, since)


def _changes(base: Base, snapshot: Snapshot, replaced: Callable[[pl.DataFrame], pl.DataFrame]) -> bool:
    if snapshot.commit_kind == CommitKind.COMPACT and not snapshot.delta_record_count:
        return False
    manifests = base.context.manifests
    delta = manifests.entries(manifests.read_list(snapshot.delta_manifest_list))
    return bool(replaced(delta.df).height)


def _changed(base: Base, since: SnapshotRef, snapshot: Snapshot) -> Conflict:
    return Conflict(
        "CHANGED_SINCE",
        f"rows of '{base.context.title}' that are to be replaced were changed after snapshot {since.id}: snapshot "
        f"{snapshot.id} ({snapshot.commit_kind.value} of commit user '{snapshot.commit_user}') did it",
        "nothing was replaced: read the newest snapshot and write again, or overwrite without if_unchanged_since.",
    )


def _untold(base: Base, since: SnapshotRef) -> Conflict:
    return Conflict(
        "CHANGED_SINCE",
        f"it cannot be told whether rows of '{base.context.title}' were changed after snapshot {since.id}: history "
        "does not lead back to it any more",
        "nothing was replaced: read the newest snapshot and write again. Let a consumer or snapshot.num-retained.min "
        "keep the snapshots for as long as the work takes.",
    )
