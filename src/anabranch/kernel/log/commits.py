"""The commits of a branch, from the store and, where expired, from the archive; and the record of a rollback among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.errors import NotFoundError
from anabranch.format.records.history_segment import REWIND_PREFIX, PastSnapshot, RemovedSnapshot, Rewind
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.archive import Following, archived, archived_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import PARENT_PROPERTY

_AT_ONCE: Final = 256


def with_expired(
    context: TableContext, left: Sequence[Snapshot], after: int
) -> Sequence[Snapshot | PastSnapshot]:
    """Return commits, oldest first, and before them those that have expired, as far as they were archived.

    Args:
        context: the branch.
        left: what has not expired of the commits after a snapshot, without gap.
        after: id of that snapshot.

    Raises `AnabranchError` if the archive cannot be read.
    """
    if not left or left[0].id <= after + 1:
        return left
    older = [*expired(context, Following.of(left[0]), above=after)]
    return [*reversed(older), *left]


def own_commits(context: TableContext) -> Iterator[PastSnapshot]:
    """Yield the branch's own commits, newest first, from the store and then from the archive; read lazily.

    For a branch without commits, the archive may hold the snapshot it began with: that is yielded too.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    following: Following | None = None
    head = context.snapshots.head()
    for snapshot in () if head is None else _there(context, head):
        following = Following.of(snapshot)
        yield PastSnapshot.of(snapshot)
    if following is None and head is not None:  # later archived ones were rolled back
        following = Following(head.id + 1, head.stamp)
    yield from archived(context, context.branch_uuid, following)


def back_from(context: TableContext, newest: Snapshot, above: int = 0) -> Iterator[Snapshot | PastSnapshot]:
    """Yield a snapshot of a branch and those before it, newest first, from the store and then from the archive.

    Missing ids expired without being archived, because another engine removed them.

    Args:
        newest: where to begin.
        above: only ids above this one; others are not read.

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
    """Yield the archived snapshots of a branch that are older than its oldest retained one, newest first.

    Snapshots that a branch began with, or took over as main, were archived by the branch they were committed on.

    Args:
        left: the oldest that is left.
        above: only ids above this one; others are not read.
    """
    uuid, fork = context.branch_uuid, None if context.fork is None else context.fork.snapshot
    while True:
        for snapshot in archived(context, uuid, left):
            if snapshot.id <= above:
                return
            if fork is not None and snapshot.id <= fork.id:
                break  # a branch without commits archives only this one
            left = Following.of(snapshot)
            yield snapshot
        if fork is None or fork.id <= above:
            return
        if fork.id < left.id:
            left = Following(fork.id + 1, fork.stamp)
        uuid, facts = fork.branch_uuid, archived_branch(context, fork.branch_uuid)
        fork = None if facts is None else facts.fork


def _there(context: TableContext, head: Snapshot) -> Iterator[Snapshot]:
    """Yield the branch's own retained snapshots, newest first, down to the first gap."""
    lowest = 0 if context.fork is None else context.fork.snapshot.id
    if head.id <= lowest:
        return
    yield head
    parent, below, at_once = head.properties.get(PARENT_PROPERTY), head.id - 1, 1
    while below > lowest:
        ids = range(below, max(below - at_once, lowest), -1)
        for snapshot in each(context.snapshots.find, ids, at=context.storage):
            # A late writer's leftover may lie right below history; see `SnapshotLog.backwards`.
            if snapshot is None or parent not in (None, snapshot.stamp):
                return
            yield snapshot
            parent, below = snapshot.properties.get(PARENT_PROPERTY), snapshot.id - 1
        at_once = min(at_once * 2, _AT_ONCE)


_WEIGHT_OF_ONE = 128
"""Approximate bytes of a removed snapshot in the cache."""


def record_rewind(context: TableContext, target: Snapshot, head: Snapshot) -> None:
    """Record which snapshots of a branch are about to be removed, or had expired. Idempotent.

    Args:
        target: the newest snapshot that stays.
        head: the newest that goes.
    """
    known = rewinds(context)
    gone = tuple(
        RemovedSnapshot(s.id, s.stamp, s.time_millis) for s in back_from(context, head, above=target.id)
    )
    made = max(context.runtime.clock.now_millis(), *(s.time_millis for s in gone))
    number = len(known) + 1
    while True:
        rewind = Rewind(number, context.branch_uuid, target.id, gone, made)
        if context.storage.put_if_absent(_path(context, number), rewind.to_json()):
            return
        number += 1


def rewinds(context: TableContext) -> list[Rewind]:
    """Return all destructive rollbacks, oldest first; one read if there are none. Raises `CorruptTableError`."""
    found: list[Rewind] = []
    while (rewind := _find(context, len(found) + 1)) is not None:
        found.append(rewind)
    return found


def _find(context: TableContext, number: int) -> Rewind | None:
    path = _path(context, number)
    key = (context.table_uuid, context.storage.url, path)
    known: Rewind | None = context.cache.get(key)
    if known is not None:
        return known
    try:
        data = context.storage.get(path)
    except NotFoundError:
        return None
    rewind = Rewind.from_json(data, number=number, path=path)
    context.cache.put(key, rewind, _WEIGHT_OF_ONE * (1 + len(rewind.removed)))
    return rewind


def _path(context: TableContext, number: int) -> str:
    return context.layout.branches_file_path(f"{REWIND_PREFIX}{number}")
