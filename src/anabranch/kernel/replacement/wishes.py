"""What is to take the place of main, and what is known of both while that is going on."""

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
    """What main was when somebody looked whether the branch has all that it has to have."""

    snapshot: int
    """Id of its newest snapshot."""
    stamp: str
    """Of the same."""
    may_follow: Callable[[Snapshot], bool]
    """Whether a commit that came to main since does not matter."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is to take the place of main, and under which conditions."""

    branch: str
    expect_main: Expected | None = None
    """Main's newest snapshot; with another one nothing is done."""
    wait_millis: int | None = None
    """How long to wait until the branch has caught up with main; None not to ask."""
    force: bool = False
    """Replace main although the check found something, or it is not known how far the branch is."""
    audit: str | bool = False
    """An audit that the branch must have passed as it is: by name, or any if True."""
    by: str | None = None
    reason: str | None = None
    coverage: Coverage | None = None
    """Compares what both have read of their sources; None if nobody knows."""
    gaps: Gaps | None = None
    """Finds what only main has; None if nobody knows."""
    origin: Origin | None = None
    """What the commit says of where its rows come from, if it is one that replaces rows; None if nobody knows."""
    seen: Seen | None = None
    """What main was, and what may have come to it since; with anything else nothing is done."""


@dataclass(frozen=True)
class Replacing:
    """A replacement that passed its check."""

    main: TableContext
    target: TableContext
    fork: SnapshotRef
    wishes: Replacement
    undoes: int | None = None
    """The replacement that is taken back; its past is there already."""

    @lazy
    def main_since(self) -> SinceFork:
        """What main has above the snapshot where the two parted."""
        return SinceFork(self.main, self.fork)

    @lazy
    def target_since(self) -> SinceFork:
        """The same of the branch."""
        return SinceFork(self.target, self.fork)


@dataclass
class SinceFork:
    """The snapshots of a branch above the one where it parted from another, each read once."""

    context: TableContext
    fork: SnapshotRef

    def __post_init__(self) -> None:
        self._known: list[Snapshot] = []

    def until(self, head: Snapshot | None) -> list[Snapshot]:
        """Those up to `head` that are there, oldest first."""
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
