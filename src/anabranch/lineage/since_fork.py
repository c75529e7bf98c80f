"""The commits of a branch since it parted from another one that count: expired ones included, taken back ones left out."""

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
    """Tells, of snapshots from the newest on, which made what a branch contains: a rollback leaves out what it took back."""

    missing: int = 0
    """How many of them nothing is known of."""
    _next: int | None = None
    """What is contained lies below this id; None before the newest."""

    @property
    def problems(self) -> tuple[str, ...]:
        said = (
            f"{self.missing} snapshots had expired, and are not in the archive: what they read is not known"
        )
        return (said,) if self.missing else ()

    def has(self, snapshot: Past) -> bool:
        """Whether the next snapshot did; one that only brings back an older one did not."""
        if self._next is not None and snapshot.id >= self._next:
            return False
        self.reach(snapshot.id)
        target = rolled_back_to(snapshot)
        self._next = snapshot.id if target is None else target.id + 1
        return target is None

    def reach(self, snapshot_id: int) -> None:
        """There is none above that id any more."""
        if self._next is not None:
            self.missing += max(0, self._next - snapshot_id - 1)


def commits_since(
    context: TableContext, parted: int, content: Content, head: Snapshot | None = None
) -> list[Past]:
    """The commits after the two parted that made what a branch contains, oldest first.

    Args:
        context: the branch.
        parted: id of the snapshot that it has in common with the other.
        content: leaves out what was taken back.
        head: what it contains at this snapshot; None for the newest.
    """
    head = context.snapshots.head() if head is None else head
    every = () if head is None else back_from(context, head, above=parted)
    found = [snapshot for snapshot in every if content.has(snapshot)]
    content.reach(parted)
    return found[::-1]


def title_of(read: Input, key: str) -> tuple[str, str]:
    """Kind and name of what was read, for people; `key` is what `places` calls it."""
    if isinstance(read, TableInput):
        return "table", read.name
    if read.kind == "kafka" and key:
        return "kafka", key.removeprefix("topic ").rpartition(" ")[0]
    return read.kind, read.name or read.source
