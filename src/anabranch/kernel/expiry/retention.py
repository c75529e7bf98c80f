"""Retention: which snapshots of a branch may expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.expiry.ref_files import SnapshotFile
from anabranch.kernel.log.properties import PARENT_PROPERTY

FOREVER = 2**63 - 1
"""A time after every moment."""
LEAST_RETAINED = 2
"""Fewer would let a paused writer take its late snapshot for a part of history."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention limits; times in epoch milliseconds.

    A snapshot's age counts from when the next one replaced it: until then a reader may have chosen it
    as the newest.
    """

    at_least: int
    """Number of newest snapshots kept regardless of age; never fewer than two."""
    at_most: int
    """Snapshots beyond this number expire regardless of age."""
    replaced_before: int
    """Snapshots that were replaced until this moment expire."""
    in_grace_since: int = FOREVER
    """Snapshots replaced after this moment stay in any case."""
    limit: int | None = None
    """Most snapshots to expire at once."""

    def __post_init__(self) -> None:
        if self.at_most < self.at_least:
            raise InvalidInputError(
                f"at most {self.at_most} snapshots are to be kept, but at least {self.at_least}",
                hint="make retain_max (snapshot.num-retained.max) no smaller than retain_min (.min).",
            )

    def until(self, *, is_one_too_many: bool) -> int:
        """Return the moment until which a snapshot must have been replaced to expire."""
        return self.in_grace_since if is_one_too_many else min(self.replaced_before, self.in_grace_since)

    def due(
        self, history: Sequence[Snapshot], unread: int | None = None, stored: Sequence[int] | None = None
    ) -> list[Snapshot]:
        """Return the oldest snapshots of a branch that may expire.

        Args:
            history: all snapshots, oldest first, without gap.
            unread: id of the first snapshot that a consumer of the branch has not read.
            stored: when the file of each snapshot was stored, in epoch milliseconds, if known.
        """
        too_many = len(history) - max(self.at_most, LEAST_RETAINED)
        most = len(history) - max(self.at_least, LEAST_RETAINED)
        if self.limit is not None:
            most = min(most, self.limit)
        gone: list[Snapshot] = []
        times = _replaced_at(history, stored or [FOREVER] * len(history))
        for snapshot, replaced in zip(history[: max(most, 0)], times, strict=False):
            if unread is not None and snapshot.id >= unread:
                break
            if replaced > self.until(is_one_too_many=len(gone) < too_many):
                break
            gone.append(snapshot)
        return gone


def _replaced_at(history: Sequence[Snapshot], stored: Sequence[int]) -> list[int]:
    """Return the latest possible time at which each snapshot but the last was replaced.

    That is the time of the next one, unless a clock was wrong: then that time is earlier than those
    before it, or later than its file was stored. In both cases the file's time is used.
    """
    times, highest = [], 0
    for snapshot, at in zip(history, stored, strict=True):
        is_behind = snapshot.time_millis < highest
        highest = max(highest, snapshot.time_millis)
        times.append(at if is_behind and at != FOREVER else min(highest, at))
    return times[1:]


@dataclass(frozen=True, slots=True)
class RetainedHistory:
    """The contiguous snapshots of a branch, and older stray ones."""

    snapshots: tuple[Snapshot, ...]
    """Oldest first, without gap."""
    stored: tuple[int, ...]
    """When the file of each was stored, in epoch milliseconds."""
    below: tuple[SnapshotFile, ...]
    """Below a gap: left by a late writer that died, or by an expiry of another engine."""

    @classmethod
    def of(cls, found: Sequence[SnapshotFile], head: Snapshot) -> RetainedHistory | None:
        """Split snapshots given by ascending id; None if the head is no longer among them."""
        last = next((i for i, file in enumerate(found) if file.snapshot.stamp == head.stamp), None)
        if last is None:
            return None
        first = last
        while first > 0 and _follows(found[first - 1].snapshot, found[first].snapshot):
            first -= 1
        chain = found[first : last + 1]
        times = tuple(file.modified_millis for file in chain)
        return cls(tuple(file.snapshot for file in chain), times, tuple(found[:first]))


def _follows(snapshot: Snapshot, following: Snapshot) -> bool:
    parent = following.properties.get(PARENT_PROPERTY)
    return following.id == snapshot.id + 1 and parent in (None, snapshot.stamp)
