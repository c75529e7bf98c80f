"""Merge conflicts, as values that are listed together."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.kernel.commit.base import Conflict


@dataclass(frozen=True, slots=True)
class MergeConflict(Conflict):
    """A conflict between a branch and main.

    Those with a partition are resolved by choosing ``ours`` (main's rows) or ``theirs`` (the branch's) for it; those
    without one are about the whole merge.
    """

    partition: str | None = None
    """Folder name, ``dt=2026-01-01/hour=5``; ``(the whole table)`` where there are no partition columns."""
    snapshots: tuple[int, ...] = ()
    """Ids of the conflicting snapshots of main, oldest first."""
    files: tuple[str, ...] = ()
    """Names of the data files it is about."""

    @classmethod
    def of(cls, conflict: Conflict) -> MergeConflict:
        """Return any conflict as one of a merge: what is about a whole commit is about the whole merge."""
        if isinstance(conflict, MergeConflict):
            return conflict
        return cls(conflict.kind, conflict.message, conflict.hint)

    def __str__(self) -> str:
        where = "" if self.partition is None else f" [{self.partition}]"
        return f"{self.kind}{where}: {self.message}"
