"""Limits for one step of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.kernel.scan.split import SplitFile


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
