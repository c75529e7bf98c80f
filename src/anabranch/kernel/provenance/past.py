"""The snapshots of a branch back to a known one, and which of them are in effect after rollbacks.

A rollback to a moment of this past undoes all that lies between: the state after it is that moment's,
so the past of the moment is in effect, and the rollback itself changed nothing.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, overload

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.format.records.snapshot_columns import P, Snapshots, field_of, property_of, snapshots_at
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import OVERWRITE_PROPERTY, PARENT_PROPERTY, ROLLBACK_PROPERTY


@dataclass(frozen=True, slots=True)
class Past:
    """Retained history of a branch after one of its snapshots, the base."""

    snapshots: Sequence[Snapshot]
    """Snapshots after the base, oldest first and without gap; if the base is not retained, all there are."""
    reaches_base: bool
    """Whether the one before the first of them is the base."""
    base_is_other: bool = False
    """Whether another snapshot is in place of the base: history was rewritten below it."""


def past_since(
    context: TableContext,
    head: Snapshot,
    base: SnapshotRef,
    *,
    known: Past | None = None,
    deltas: bool = False,
) -> Past:
    """Return the snapshots of a branch from `head` down to the base, or to where history was expired.

    Args:
        head: the newest snapshot to take.
        base: the snapshot to go back to; its branch is ignored, as branches copy each other's past.
        known: the result for an older head, so that only later snapshots are read. Not used if that head is not in the
            past of this one.
        deltas: whether what they changed will be asked for, as for `SnapshotLog.down_to`.
    """
    if head.id < base.id:
        return Past((), reaches_base=False, base_is_other=True)
    if _is_next(head, base):
        return Past((head,), reaches_base=True)  # whether the base is there or not, nothing else was below it
    if known is not None and known.snapshots and known.snapshots[-1].id <= head.id:
        joined = _joined(context, head, known, deltas=deltas)
        if joined is not None:
            return joined
    found: list[Snapshot] = []
    for snapshot in context.snapshots.down_to(head, base.id, deltas=deltas):
        if snapshot.id <= base.id:
            is_base = snapshot.id == base.id and snapshot.stamp == base.stamp
            return Past(tuple(reversed(found)), reaches_base=is_base, base_is_other=not is_base)
        found.append(snapshot)
    # The base itself may have expired: its child tells.
    return Past(tuple(reversed(found)), reaches_base=_is_next(found[-1] if found else head, base))


def _is_next(snapshot: Snapshot, base: SnapshotRef) -> bool:
    """Whether a snapshot says that it was built on the base."""
    return snapshot.id == base.id + 1 and snapshot.properties.get(PARENT_PROPERTY) == base.stamp


def _joined(context: TableContext, head: Snapshot, known: Past, *, deltas: bool) -> Past | None:
    """Return what is known, and what came after it; None if the newest known is not found below the head."""
    newest, found = known.snapshots[-1], list[Snapshot]()
    for snapshot in context.snapshots.down_to(head, newest.id, deltas=deltas):
        if (snapshot.id, snapshot.stamp) == (newest.id, newest.stamp):
            return replace(
                known, snapshots=Joined(known.snapshots, found[::-1]) if found else known.snapshots
            )
        found.append(snapshot)
    return None


class Joined(Snapshots):
    """Snapshots that are known, and those that follow. Most of the known ones are not looked at, so none is copied."""

    def __init__(self, known: Sequence[Snapshot], later: Sequence[Snapshot]) -> None:
        self._known = known
        self._later = later

    def __len__(self) -> int:
        return len(self._known) + len(self._later)

    @overload
    def __getitem__(self, at: int) -> Snapshot: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Snapshot]: ...
    def __getitem__(self, at: int | slice) -> Snapshot | Sequence[Snapshot]:
        known, rows = len(self._known), range(len(self))[at]
        if isinstance(rows, int):
            return self._known[rows] if rows < known else self._later[rows - known]
        if rows.step != 1:
            return tuple(self)[at]
        return (
            *self._known[rows.start : rows.stop],
            *self._later[max(0, rows.start - known) : max(0, rows.stop - known)],
        )

    def __iter__(self) -> Iterator[Snapshot]:
        return chain(self._known, self._later)

    def field(self, name: str) -> Sequence[Any]:
        return [*field_of(self._known, name), *field_of(self._later, name)]

    def property(self, key: str) -> Sequence[str | None]:
        return [*property_of(self._known, key), *property_of(self._later, key)]

    def at(self, rows: Sequence[int]) -> list[Snapshot]:
        known = len(self._known)
        first = bisect_left(rows, known)
        later = [row - known for row in rows[first:]]
        return [*snapshots_at(self._known, rows[:first]), *snapshots_at(self._later, later)]


def after(snapshots: Sequence[Snapshot], point: int) -> Sequence[Snapshot]:
    """Return those of some snapshots, oldest first, that come after the one of that id."""
    return snapshots[bisect_right(field_of(snapshots, "id"), point) :]


def counting(snapshots: Sequence[P], *, is_below: Callable[[SnapshotRef], bool] | None = None) -> Sequence[P]:
    """Return the contiguous snapshots, oldest first, that are still in effect after rollbacks among them.

    A rollback to the moment right before them cancels everything in between; one to any other moment not
    among them counts itself, as an overwrite.

    Args:
        snapshots: of one history.
        is_below: tells of a moment with a smaller number whether it is in the same history: then a rollback to it undoes
            all before that rollback. None if that cannot be known.
    """
    if not any(property_of(snapshots, ROLLBACK_PROPERTY)):
        return snapshots  # stamps of thousands, which cost the most here, are not needed
    at = {(snapshot.id, snapshot.stamp): index for index, snapshot in enumerate(snapshots)}
    if snapshots:
        at[snapshots[0].id - 1, snapshots[0].properties.get(PARENT_PROPERTY, "")] = -1
    kept: list[P] = []
    index = len(snapshots) - 1
    while index >= 0:
        target = rolled_back_to(snapshots[index])
        there = None if target is None else at.get((target.id, target.stamp))
        if there is None:
            kept.append(snapshots[index])
            if is_below and target is not None and target.id < snapshots[0].id and is_below(target):
                break
            index -= 1
        else:
            index = there
    return tuple(reversed(kept))


def counting_of(context: TableContext, snapshots: Sequence[P]) -> Sequence[P]:
    """Return what counts of later snapshots of a branch, where moments before them are looked up in its history.

    A moment that has expired is not known to be of this history: what is before a rollback to it counts, as it may be there.
    """

    def is_below(moment: SnapshotRef) -> bool:
        found = context.snapshots.find(moment.id) if moment.id else None
        return found is not None and found.stamp == moment.stamp

    return counting(snapshots, is_below=is_below)


def since_rolled_back(snapshots: Sequence[P]) -> Sequence[P]:
    """Return the snapshots from the last rollback to a moment before them all, or all of them; oldest first."""
    rollbacks = [index for index, to in enumerate(property_of(snapshots, ROLLBACK_PROPERTY)) if to]
    for index in reversed(rollbacks):
        target = rolled_back_to(snapshots[index])
        if target is not None and target.id < snapshots[0].id:
            return snapshots[index:]
    return snapshots


def overwritten(snapshot: Snapshot | PastSnapshot) -> Mapping[str, Any] | None:
    """Return which partitions an overwrite replaced, as its commit says.

    Returns:
        an empty mapping for all of them; ``dynamic``, ``where`` or ``partition`` for some; None if it does not say.
    """
    try:
        said = json.loads(snapshot.properties.get(OVERWRITE_PROPERTY, "null"))
    except ValueError:
        return None
    if snapshot.commit_kind != CommitKind.OVERWRITE or not isinstance(said, dict):
        return None
    return {} if said == {"partition": {}} else said


def rolled_back_to(snapshot: Snapshot | PastSnapshot) -> SnapshotRef | None:
    """Return the moment that a snapshot restored, if it is one of our rollbacks."""
    text = snapshot.properties.get(ROLLBACK_PROPERTY)
    if text is None:
        return None
    try:
        return SnapshotRef.from_dict(json.loads(text)["to"], where=f"snapshot {snapshot.id}")
    except (ValueError, KeyError, TypeError, CorruptTableError):
        return None
