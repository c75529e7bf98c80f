"""The snapshots of a branch as a stream goes through them: one after the other, and always the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.streaming.difference import Crossing, crossing
from anabranch.streaming.held import held_snapshot
from anabranch.streaming.offsets import Position


@dataclass(frozen=True, slots=True)
class History:
    """Finds snapshots by positions, and sees when they are not those that the stream has read."""

    context: TableContext
    find: Callable[[int], Snapshot | None] | None = None
    """What finds the snapshots that follow, if not the branch itself."""

    def verified(self, position: Position) -> Snapshot | None:
        """The snapshot of a position, or None if it has rightly expired. Raises `NotFoundError`."""
        if position.snapshot == 0:
            return None
        snapshot = self.context.snapshots.find(position.snapshot)
        if snapshot is not None:
            self.check_stamp(snapshot, position)
            return snapshot
        head = self.context.snapshots.head()
        if head is None or head.id < position.snapshot:
            raise self._rewritten(
                position, f"the newest snapshot is {head.id}" if head else "it has no snapshots"
            )
        if position.files is None:
            return None
        held = held_snapshot(self.context, position)
        if held is None:
            raise self.gone(position)
        return held

    def following(self, position: Position) -> Snapshot | Crossing | None:
        """The snapshot after a position's, the way over those that have expired, or None if it is yet to come.

        Raises `NotFoundError`: it has expired, and it is not certain that only rows were added since; or history was
        rewritten.
        """
        missing = position.snapshot + 1
        found = (self.find or self.context.snapshots.find)(missing)
        if found is not None:
            self._check_parent(found, position)
            return found
        head = self.context.snapshots.head()
        if head is None or head.id <= missing or self.context.snapshots.find(missing) is not None:
            return None
        held = self.context.snapshots.find(position.snapshot) if position.snapshot else None
        if held is None or position.stamp not in (None, held.stamp):
            held = None if position.stamp is None else held_snapshot(self.context, position)
        over = None if held is None else crossing(self.context, held)
        if over is None:
            raise self.gone(Position(missing, None))
        return over

    def check_stamp(self, snapshot: Snapshot, position: Position) -> None:
        """Raises `NotFoundError` if a position names another snapshot of that id."""
        if position.stamp is not None and snapshot.stamp != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} is another one now")

    def _check_parent(self, snapshot: Snapshot, position: Position) -> None:
        """Also where the position's own snapshot has expired, the one after it may say what it was built on."""
        parent = snapshot.properties.get(PARENT_PROPERTY)
        if parent is not None and position.stamp is not None and parent != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} was built on another one")

    def _rewritten(self, position: Position, found: str) -> AnabranchError:
        return NotFoundError(
            f"HISTORY_REWRITTEN: the stream had read '{self.context.title}' up to snapshot {position.snapshot} "
            f"with stamp {position.stamp}, but {found}: the table was rolled back or replaced",
            hint="compare what was delivered with the table, then start with a new checkpoint location and "
            "scan.mode=from-snapshot, scan.snapshot-id=<first snapshot still wanted>.",
        )

    def gone(self, position: Position) -> AnabranchError:
        """The error of a snapshot that is needed and has expired."""
        earliest = self.context.snapshots.earliest_id()
        return NotFoundError(
            f"the stream needs snapshot {position.snapshot} of '{self.context.title}', which has expired; "
            f"the earliest is {earliest}",
            hint=f"what expired is lost to this stream. Start with a new checkpoint location and "
            f"scan.mode=latest-full (everything again), or scan.mode=from-snapshot, scan.snapshot-id={earliest} "
            "(a consumer goes before these: reset or delete it); a longer snapshot.time-retained, or a consumer, "
            "keeps it from happening.",
        )
