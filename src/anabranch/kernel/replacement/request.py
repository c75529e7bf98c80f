"""The request and state of a replacement of main."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.coverage import Coverage, Gaps
from anabranch.kernel.provenance.origin import Origin
from anabranch.kernel.replacement.expected import Expected
from anabranch.lazy import lazy


@dataclass(frozen=True, slots=True)
class Seen:
    """State of main when the branch's content was checked against it."""

    snapshot: int
    """Id of its newest snapshot."""
    stamp: str
    """Stamp of that snapshot."""
    may_follow: Callable[[Snapshot], bool]
    """Whether a given later commit to main is harmless."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A requested replacement of main, with its conditions."""

    branch: str
    expect_main: Expected | None = None
    """Expected newest snapshot of main; if it differs, nothing is done."""
    wait_millis: int | None = None
    """How long to wait until the branch has caught up with main; None to skip the check."""
    force: bool = False
    """Replace main even if the check failed, or the branch's progress is not known."""
    audit: str | bool = False
    """An audit that the branch must have passed in its current state: by name, or any if True."""
    by: str | None = None
    reason: str | None = None
    coverage: Coverage | None = None
    """Compares what both have read of their sources; None if not known."""
    gaps: Gaps | None = None
    """Finds what only main has; None if not known."""
    origin: Origin | None = None
    """Lineage of the commit's rows, if it is one that replaces rows; None if not known."""
    seen: Seen | None = None
    """State of main and what may have been added since; with anything else nothing is done."""


@dataclass(frozen=True)
class Replacing:
    """A replacement that passed its check."""

    main: TableContext
    target: TableContext
    fork: SnapshotRef
    wishes: Replacement
    undoes: int | None = None
    """The replacement that is undone; its past is there already."""

    @lazy
    def main_since(self) -> SinceFork:
        """Snapshots of main above the fork."""
        return SinceFork(self.main, self.fork)

    @lazy
    def target_since(self) -> SinceFork:
        """Snapshots of the branch above the fork."""
        return SinceFork(self.target, self.fork)


@dataclass
class SinceFork:
    """The snapshots of a branch above its fork, each read once."""

    context: TableContext
    fork: SnapshotRef

    def __post_init__(self) -> None:
        self._known: list[Snapshot] = []

    def until(self, head: Snapshot | None) -> list[Snapshot]:
        """Return the retained ones up to `head`, oldest first."""
        last = self._known[-1].stamp if self._known else None
        new: list[Snapshot] = []
        goes_on = False
        lowest = max(self.fork.id, self._known[-1].id if self._known else 0)
        for snapshot in () if head is None else self.context.snapshots.down_to(head, lowest):
            goes_on = snapshot.stamp == last
            if goes_on or snapshot.id <= self.fork.id:
                break
            new.append(snapshot)
        self._known = [*(self._known if goes_on else ()), *reversed(new)]
        return self._known
