"""Bounds of a stream: limits for one step, and the watermark at which it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.errors import NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.split import SplitFile
from anabranch.options import SCAN_BOUNDED_WATERMARK
from anabranch.streaming.offsets import BEGINNING, Position


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for one step of a stream; None is no limit. At least one file is taken in any case."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


UNLIMITED = Limits()


@dataclass
class Budget:
    """Remaining budget of a step."""

    limits: Limits
    taken: Limits = field(default_factory=lambda: Limits(0, 0, 0))

    def take(self, files: Sequence[SplitFile | None]) -> int | None:
        """Take files in order, with None for one that costs nothing.

        Returns:
            The place of the first that does not fit any more; None if all do.
        """
        for place, file in enumerate(files):
            if file is not None and not self._fits(file):
                return place
        return None

    def _fits(self, file: SplitFile) -> bool:
        used = self.taken
        more = Limits((used.files or 0) + 1, (used.bytes or 0) + file.size, (used.rows or 0) + file.row_count)
        pairs = (
            (more.files, self.limits.files),
            (more.bytes, self.limits.bytes),
            (more.rows, self.limits.rows),
        )
        if used.files and any(limit is not None and (value or 0) > limit for value, limit in pairs):
            return False
        self.taken = more
        return True


@dataclass(frozen=True, slots=True)
class WatermarkBound:
    """Filter of the snapshots that a bounded stream delivers."""

    context: TableContext
    watermark: int
    """Bound in epoch milliseconds."""

    def excludes(self, snapshot: Snapshot) -> bool:
        """Whether the stream ends before the snapshot."""
        return snapshot.watermark is not None and snapshot.watermark > self.watermark

    def last_before(self, excluded: Snapshot) -> Position:
        """Return the position before all rows of the newest snapshot within the bound; before the first if none is.

        Raises `NotFoundError` if it has expired.
        """
        earliest = self.context.snapshots.earliest_id() or excluded.id
        within: Snapshot | None = None
        low, high = earliest, excluded.id - 1  # watermarks never go back
        while low <= high:
            middle = (low + high + 1) // 2
            found = self.context.snapshots.find(middle)
            if found is not None and self.excludes(found):
                excluded, high = found, middle - 1
            else:  # nothing is found where it expires while we look
                within, low = found or within, middle + 1
        if within is not None:
            return Position(within.id, within.stamp, files=0, full=True)
        if excluded.id == 1:
            return BEGINNING
        raise NotFoundError(
            f"the stream of '{self.context.title}' is to end with watermark {self.watermark}, but what is of before "
            f"has expired: snapshot {excluded.id}, the earliest that is left, has watermark {excluded.watermark}",
            hint=f"set {SCAN_BOUNDED_WATERMARK.key} to {excluded.watermark} or more, or begin at a tag or savepoint "
            "with scan.mode=from-snapshot-full.",
        )
