"""The effective commits of a branch since its fork: expired ones included, rolled back ones left out."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.past import rolled_back_to
from anabranch.lineage.model import Input, TableInput

Past = Snapshot | PastSnapshot


@dataclass
class Content:
    """Tells, for snapshots from the newest on, which made the branch's content: not those rolled back."""

    missing: int = 0
    """Number of snapshots about which nothing is known."""
    _next: int | None = None
    """The content lies below this id; None before the newest."""

    @property
    def problems(self) -> tuple[str, ...]:
        said = (
            f"{self.missing} snapshots had expired, and are not in the archive: what they read is not known"
        )
        return (said,) if self.missing else ()

    def has(self, snapshot: Past) -> bool:
        """Whether the next snapshot made content; one that only restores an older one did not."""
        if self._next is not None and snapshot.id >= self._next:
            return False
        self.reach(snapshot.id)
        target = rolled_back_to(snapshot)
        self._next = snapshot.id if target is None else target.id + 1
        return target is None

    def reach(self, snapshot_id: int) -> None:
        """Record that no snapshots are left above that id."""
        if self._next is not None:
            self.missing += max(0, self._next - snapshot_id - 1)


def commits_since(
    context: TableContext, parted: int, content: Content, head: Snapshot | None = None
) -> list[Past]:
    """Return the commits after the fork that made a branch's content, oldest first.

    Args:
        context: the branch.
        parted: id of the snapshot that both have in common.
        content: leaves out what was rolled back.
        head: take the content at this snapshot; None for the newest.
    """
    head = context.snapshots.head() if head is None else head
    every = () if head is None else back_from(context, head, above=parted)
    found = [snapshot for snapshot in every if content.has(snapshot)]
    content.reach(parted)
    return found[::-1]


def title_of(read: Input, key: str) -> tuple[str, str]:
    """Return kind and name of an input, for people; `key` is its name in `places`."""
    if isinstance(read, TableInput):
        return "table", read.name
    if read.kind == "kafka" and key:
        return "kafka", key.removeprefix("topic ").rpartition(" ")[0]
    return read.kind, read.name or read.source
