"""Finding a snapshot among those whose times or watermarks go up with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.snapshot_log import SnapshotLog


@dataclass(frozen=True, slots=True)
class Border:
    """Where a condition that holds for early snapshots ceases to hold."""

    last: Snapshot | None
    """The last snapshot for which it holds."""
    after: Snapshot | None
    """The first snapshot after it."""


def find_border(log: SnapshotLog, ids: Sequence[int], holds: Callable[[Snapshot], bool]) -> Border:
    """The border among the snapshots of these ascending ids; those that expired since are left out.

    Reads as many snapshots as the number of ids has binary digits.
    """
    last = after = None
    low, high = 0, len(ids) - 1
    while low <= high:
        middle = (low + high) // 2
        snapshot = log.find(ids[middle])
        if snapshot is None:
            low = middle + 1  # expired since, and all before it
        elif holds(snapshot):
            last, low = snapshot, middle + 1
        else:
            after, high = snapshot, middle - 1
    return Border(last, after)
