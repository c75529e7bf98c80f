"""Traversal of a branch's snapshots by a stream: in order, and always the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import AnabranchError, NotFoundError, PositionLostError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.log.savepoint_log import readable_snapshot, savepoints
from anabranch.kernel.log.tag_log import all_tags
from anabranch.streaming.difference import Crossing, crossing
from anabranch.streaming.offsets import Position


@dataclass(frozen=True, slots=True)
class History:
    """Lookup of snapshots by positions, which detects rewritten history."""

    context: TableContext
    find: Callable[[int], Snapshot | None] | None = None
    """Lookup function for following snapshots, replacing that of the branch."""

    def verified(self, position: Position) -> Snapshot | None:
        """Return the snapshot of a position, or None if it has rightly expired. Raises `NotFoundError`."""
        if position.snapshot == 0:
            return None
        snapshots = self.context.snapshots
        snapshot, head = snapshots.find(position.snapshot), None
        if snapshot is None:
            head = snapshots.head()
            if head is None:
                self._check_is_there()
                head = snapshots.head()
            # A disk that was away at the first look may be back since.
            snapshot = snapshots.find(position.snapshot)
        if snapshot is not None:
            self.check_stamp(snapshot, position)
            return snapshot
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
        """Return the next snapshot, the jump over expired ones, or None if there is none yet.

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
        """Raise `NotFoundError` if a position names another snapshot of that id."""
        if position.stamp is not None and snapshot.stamp != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} is another one now")

    def _check_parent(self, snapshot: Snapshot, position: Position) -> None:
        """Check by its parent that a snapshot follows a position, even if the position's own one has expired."""
        parent = snapshot.properties.get(PARENT_PROPERTY)
        if parent is not None and position.stamp is not None and parent != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} was built on another one")

    def _check_is_there(self) -> None:
        """Raise `NotFoundError` if the whole table is away, as with a mount: then nothing is known of its history."""
        if not self.context.schemas.ids():
            raise self._away("nothing is in its folder")

    def _away(self, found: str) -> NotFoundError:
        return NotFoundError(
            f"table '{self.context.title}' is not there: {found}, {self.context.storage.url}",
            hint="if its disk or mount is away, bring it back: who reads the table goes on where it was.",
        )

    def _rewritten(self, position: Position, found: str) -> AnabranchError:
        return PositionLostError(
            f"HISTORY_REWRITTEN: the stream had read '{self.context.title}' up to snapshot {position.snapshot} "
            f"with stamp {position.stamp}, but {found}: the table was rolled back or replaced",
            hint="compare what was delivered with the table, then start with a new checkpoint location and "
            "scan.mode=from-snapshot, scan.snapshot-id=<first snapshot still wanted>.",
        )

    def gone(self, position: Position) -> AnabranchError:
        """Return the error for a needed snapshot that has expired."""
        earliest = self.context.snapshots.earliest_id()
        if earliest is None:  # expiry keeps one, so the whole table is away
            return self._away(f"snapshot {position.snapshot} is wanted, and there is none")
        return PositionLostError(
            f"the stream needs snapshot {position.snapshot} of '{self.context.title}', which has expired; "
            f"the earliest is {earliest}",
            hint=f"what expired is lost to this stream. Start with a new checkpoint location and "
            f"scan.mode=latest-full (everything again), or scan.mode=from-snapshot, scan.snapshot-id={earliest} "
            "(a consumer goes before these: reset or delete it); a longer snapshot.time-retained, or a consumer, "
            "keeps it from happening.",
        )


# Snapshots that a stream is reading although their own files have expired.
#
# A stream that begins with all rows of a tag or savepoint, or with what its snapshot added, may be half way through
# them when it is restarted. The position names the snapshot by id and stamp; here it is found again.


def held_snapshot(context: TableContext, position: Position) -> Snapshot | None:
    """Return the snapshot of a position from a tag or savepoint of the branch, or None if none holds it.

    Reads all tags and savepoints, so look into the snapshot log first.
    """
    for tag in all_tags(context):  # among them those that savepoints are pinned by
        if _is_of(position, tag.snapshot):
            return tag.snapshot
    for savepoint in savepoints(context):
        if savepoint.saved_snapshot_id == position.snapshot:
            found = readable_snapshot(context, savepoint)
            if _is_of(position, found):
                return found
    return None


def _is_of(position: Position, snapshot: Snapshot) -> bool:
    return (snapshot.id, snapshot.stamp) == (position.snapshot, position.stamp)
