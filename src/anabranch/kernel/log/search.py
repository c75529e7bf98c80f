"""Binary search over snapshots whose times or watermarks increase with their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.snapshot_log import SnapshotLog


@dataclass(frozen=True, slots=True)
class Border:
    """The border between snapshots that satisfy a condition and later ones that do not."""

    last: Snapshot | None
    """The last snapshot for which it holds."""
    after: Snapshot | None
    """The first snapshot after it."""


def find_border(log: SnapshotLog, ids: Sequence[int], holds: Callable[[Snapshot], bool]) -> Border:
    """Find the border among these ascending snapshot ids; those that expired meanwhile are left out.

    Reads about log2(number of ids) snapshots.
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
