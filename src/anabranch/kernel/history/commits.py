"""What was committed on a branch, whether its snapshots are still there or only the archive has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.kernel.context import TableContext
from anabranch.kernel.history.archive import Following, archived
from anabranch.kernel.parallel import each
from anabranch.kernel.properties import PARENT_PROPERTY
from anabranch.spec.history_segment import PastSnapshot
from anabranch.spec.snapshot import Snapshot

_AT_ONCE: Final = 256


def own_commits(context: TableContext) -> Iterator[PastSnapshot]:
    """The branch's own commits, newest first, from the store and then from the archive; each read when asked for.

    Of a branch on which nothing was committed the archive may have the snapshot it began with: that comes too.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    following: Following | None = None
    head = context.snapshots.head()
    for snapshot in () if head is None else _there(context, head):
        following = Following.of(snapshot)
        yield PastSnapshot.of(snapshot)
    if following is None and head is not None:  # what is archived of later ones was taken back
        following = Following(head.id + 1, head.stamp)
    yield from archived(context, context.branch_uuid, following)


def _there(context: TableContext, head: Snapshot) -> Iterator[Snapshot]:
    """The branch's own snapshots that are there, newest first, down to the first gap."""
    lowest = 0 if context.fork is None else context.fork.snapshot.id
    if head.id <= lowest:
        return
    yield head
    parent, below, at_once = head.properties.get(PARENT_PROPERTY), head.id - 1, 1
    while below > lowest:
        for snapshot in each(context.snapshots.find, range(below, max(below - at_once, lowest), -1)):
            # Right below history may lie what somebody left who came too late; see `SnapshotLog.backwards`.
            if snapshot is None or parent not in (None, snapshot.stamp):
                return
            yield snapshot
            parent, below = snapshot.properties.get(PARENT_PROPERTY), snapshot.id - 1
        at_once = min(at_once * 2, _AT_ONCE)
