"""What a branch contains was made by these commits, whether their snapshots are still there or have expired."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.kernel.context import TableContext
from anabranch.kernel.history.archive import Following, archived, archived_branch
from anabranch.spec.history_segment import PastSnapshot
from anabranch.spec.snapshot import Snapshot


def back_from(context: TableContext, newest: Snapshot, above: int = 0) -> Iterator[Snapshot | PastSnapshot]:
    """A snapshot of a branch and those before it, newest first, from the store and then from the archive.

    Ids that are left out expired without being archived, because another engine removed them.

    Args:
        context: the branch.
        newest: where to begin.
        above: only ids above this one; nothing is read for others.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    if newest.id <= above:
        return
    oldest = newest
    for snapshot in context.snapshots.backwards(newest):
        oldest = snapshot
        yield snapshot
        if snapshot.id == above + 1:
            return
    yield from expired(context, Following.of(oldest), above)


def expired(context: TableContext, left: Following, above: int = 0) -> Iterator[PastSnapshot]:
    """What the archive of the table has of a branch before the oldest snapshot that is left of it, newest first.

    What a branch began with, or took over as main, was archived by the branch that it was committed on.

    Args:
        context: the branch.
        left: the oldest that is left.
        above: only ids above this one; nothing is read for others.
    """
    uuid, fork = context.branch_uuid, None if context.fork is None else context.fork.snapshot
    while True:
        for snapshot in archived(context, uuid, left):
            if snapshot.id <= above:
                return
            if fork is not None and snapshot.id <= fork.id:
                break  # all that is archived of a branch on which nothing was committed
            left = Following.of(snapshot)
            yield snapshot
        if fork is None or fork.id <= above:
            return
        if fork.id < left.id:
            left = Following(fork.id + 1, fork.stamp)
        uuid, facts = fork.branch_uuid, archived_branch(context, fork.branch_uuid)
        fork = None if facts is None else facts.fork
