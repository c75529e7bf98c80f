"""Whether a snapshot that was just put became part of history, or took a number that history has left.

Put-if-absent protects a number only while its file exists. If a writer is paused while snapshots n-1 and n
are expired or rolled away, or while the whole table is dropped, renamed or created again, its put of n
succeeds although it is not reachable from history.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from anabranch.errors import AnabranchError, CommitConflictError, CommitOutcomeUnknownError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.option_change import differing_placement
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.commit.leftovers import displace, take_over
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.properties import LEFTOVER_PROPERTY, PARENT_PROPERTY
from anabranch.kernel.log.removals import has_taken_over, record_removal
from anabranch.kernel.log.seals import check_open

_LOG = logging.getLogger(__name__)

_MOST_BRIDGED = 64
"""Most empty snapshots put between the newest and a late one. Above a larger gap the late one is left in place."""


def stays_in_history(context: TableContext, snapshot: Snapshot, built_on: Snapshot | None) -> bool:
    """Return True if the snapshot is in the current history; otherwise displace it and return False.

    Args:
        snapshot: the snapshot that was put.
        built_on: the snapshot before it; None for the first of a table.

    Raises:
        CommitOutcomeUnknownError: the remaining history does not tell.
    """
    if built_on is not None:
        holds = context.snapshots.still(built_on) is not None
        # A fork snapshot is there again if another branch of the same name was made from the same tag.
        if holds and not (context.is_forked(built_on) and _is_gone(context, snapshot)):
            return True
    if _is_in_history(context, snapshot) and not (built_on is None and is_misplaced(context, snapshot)):
        return True
    below = None if built_on is None else _rolled_back_to(context, snapshot)
    if built_on is None or below is None:
        delete_snapshot(context, snapshot)  # others may have put a snapshot in its place in one step
        return False
    record_removal(context.storage, context.layout, context.manifests, below, [built_on])
    try:
        _replace(context, snapshot)
    except AnabranchError as error:  # the next committer finds it in the way, and does the same
        _LOG.warning("snapshot %d of '%s' stays above the newest: %s", snapshot.id, context.title, error)
    # The snapshot that bridges the gap follows from the one before: it may be the one this was built on.
    return context.snapshots.still(built_on) is not None and context.snapshots.still(snapshot) is not None


def _replace(context: TableContext, snapshot: Snapshot) -> None:
    """Extend history up to a snapshot above the newest, and store a continuing snapshot in its place.

    Others may do so before, and commit on top. Removing it after that would take their commits out of history;
    the replacement is the same whoever stores it.
    """
    for _ in range(_MOST_BRIDGED):
        head = context.snapshots.head()
        if head is None or head.id >= snapshot.id:
            return
        if head.id == snapshot.id - 1:
            displace(context, head)
            return
        check_open(context, head)
        take_over(context, snapshot)


def _rolled_back_to(context: TableContext, snapshot: Snapshot) -> Snapshot | None:
    """Return the newest snapshot below a stray one that is above the newest of history; None if there is none."""
    if _is_gone(context, snapshot):
        return None
    ids = context.snapshots.ids()
    if not ids or (ids[-1] != snapshot.id and not _is_beside(context, snapshot)):
        return None
    below = (one for one in reversed(ids) if one < snapshot.id)
    return next((found for one in below if (found := context.snapshots.find(one)) is not None), None)


def _is_in_history(context: TableContext, snapshot: Snapshot) -> bool:
    """Tell from the snapshots around it whether a snapshot is in history, when its parent is gone."""
    if _is_gone(context, snapshot):
        return False
    there = context.snapshots.find(snapshot.id)
    if there is not None and there.properties.get(LEFTOVER_PROPERTY) is not None:
        return False  # it was displaced: see `leftovers`
    if there is not None and there.stamp != snapshot.stamp:
        raise _untold(context, snapshot, "its number is another one's now")
    ids = context.snapshots.ids()
    if snapshot.id not in ids:
        raise _untold(context, snapshot, "it has been removed since, as an expiry does with old snapshots")
    if ids == [snapshot.id]:
        return True  # an expiry left it, or it is the first
    if snapshot.id + 1 not in ids:
        return False  # history goes on above a gap, or was rolled back to below it
    # Another engine builds on whatever has the highest number.
    return _is_built_on(context, snapshot) and not _is_beside(context, snapshot)


def _is_beside(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether history ends below a stray snapshot that is not built on its newest one, or goes on without it."""
    below = context.snapshots.find(snapshot.id - 1)
    if below is not None and context.snapshots.follows(below, snapshot):
        return False
    head = context.snapshots.head()
    if below is None:
        # Where it expired, history goes on above. Where it ends further below, it was rolled back for good.
        return head is not None and head.id < snapshot.id
    # Somebody may have displaced it while we looked.
    return head is not None and (head.id < snapshot.id or context.snapshots.still(snapshot) is None)


def _is_gone(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the branch or its table was dropped, renamed or created again."""
    try:
        if context.is_replaced(None):
            return True
    except NotFoundError:
        return True
    return not context.storage.exists(context.layout.schema_path(snapshot.schema_id))


def _is_built_on(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the snapshot with the next id was built on this one."""
    following = context.snapshots.find(snapshot.id + 1)
    if following is None:
        raise _untold(context, snapshot, "the one after it was removed while it was looked at")
    parent = following.properties.get(PARENT_PROPERTY)
    if parent is not None:
        return parent == snapshot.stamp
    found = has_taken_over(context.manifests, following, snapshot)
    if found is not None:
        return found
    raise _untold(context, snapshot, "the one after it does not tell what it was built on")


def _untold(context: TableContext, snapshot: Snapshot, why: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"snapshot {snapshot.id} of '{context.title}' was stored, but the snapshot before it was removed "
        f"meanwhile and {why}",
        hint=f"compare the rows of commit user {snapshot.commit_user} with the table before writing again.",
    )


# A racing change of placement (bucket key, folder names) and first commit detect each other by re-reading.
#
# Snapshots are checked before a schema is put, and the schema before a snapshot is put, so a
# change of placement and the first commit may miss each other. Both therefore check again after their put:
# whatever the order, the later one sees the earlier, and at least one gives way.


def placement_conflict(base: Base, schema_ids: set[int]) -> Conflict | None:
    """Return a conflict if files of these schemas do not lie where the base's schema says."""
    for schema_id in sorted(schema_ids - {base.schema.id}):
        differing = differing_placement(base.context.schemas.get(schema_id), base.schema)
        if differing is not None:
            return _conflict(base.context, schema_id, base.schema.id, differing)
    return None


def is_misplaced(context: TableContext, first: Snapshot) -> bool:
    """Whether the placement was changed while the first snapshot of a table was being made."""
    latest = context.schemas.latest()
    if latest is None or latest.id == first.schema_id:
        return False
    if differing_placement(context.schemas.get(first.schema_id), latest) is None:
        return False
    return not context.storage.exists(context.layout.snapshot_path(first.id + 1))  # built on: too late


def keep_placement(context: TableContext, before: TableSchema, after: TableSchema) -> None:
    """Take back a schema with a new placement that was put while rows were committed in the old one.

    Raises `CommitConflictError` if so.
    """
    differing = differing_placement(before, after)
    if differing is None:
        return
    head = context.snapshots.head()
    if head is None or all(s.schema_id >= after.id for s in context.snapshots.backwards(head)):
        return
    restored = False
    while not restored:
        newest = context.schemas.latest()
        assert newest is not None, "a version was just put"
        restored = context.schemas.add(
            replace(
                before,
                id=newest.id + 1,
                highest_field_id=newest.highest_field_id,
                time_millis=context.runtime.clock.now_millis(),
            )
        )
    conflict = _conflict(context, before.id, after.id, differing)
    raise CommitConflictError(
        f"{conflict.kind}: {conflict.message}", conflicts=(conflict,), hint=conflict.hint
    )


def _conflict(context: TableContext, written: int, now: int, option: str) -> Conflict:
    return Conflict(
        "PLACEMENT_CHANGED",
        f"option '{option}' of '{context.title}' differs between version {written} of the schema, with which rows "
        f"were written, and version {now}: they do not lie where it says",
        "write the rows again with a new handle; once rows are committed the option stays.",
    )
