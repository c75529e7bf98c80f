"""How far a branch has read compared with main, by the recorded positions of both in their sources.

Positions are known for tables, Kafka topics and folders of files. Every streaming commit records how far it
read; a branch covers main when it has read as far in every source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.coverage import Covered
from anabranch.kernel.provenance.past import counting, rolled_back_to
from anabranch.lineage.model import Input, TableInput, entry_or_none
from anabranch.lineage.overlap import Place, places


def coverage(
    main: Sequence[Snapshot], branch: Sequence[Snapshot], fork: Snapshot | None, /
) -> Covered | None:
    """Return how far the branch covers main; see `anabranch.kernel.provenance.coverage.Coverage`.

    Unknown if a commit of main since the fork does not say what it read, if the branch has commits and none of
    them does, or if one read a source whose positions cannot be compared.
    """
    begun = {} if fork is None else ends_of(fork) or {}
    ends = [ends_of(snapshot) for snapshot in counting(main) if adds_rows(snapshot)]
    own = [(snapshot, ends_of(snapshot)) for snapshot in branch]
    # What a rollback removed was read, but is not there any more.
    kept = [ends_of(snapshot) for snapshot in counting(branch) if adds_rows(snapshot)]
    if any(end is None for end in ends) or (ends and kept and all(end is None for end in kept)):
        return None
    read = _furthest([begun, *kept])
    behind = sum(not _is_within(end, read) for end in ends if end is not None)
    last = _furthest([begun, *ends])
    resume = fork
    for snapshot, end in own:
        if end is not None and not _is_within(end, last):
            break
        resume = snapshot
    return Covered(behind, resume)


def adds_rows(snapshot: Past) -> bool:
    """Whether it may have changed the set of rows."""
    return snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE)


def ends_of(snapshot: Past) -> dict[str, Place] | None:
    """Return how far the commit read each source; None if that is not known, or cannot be compared."""
    entry = entry_or_none(snapshot)
    if entry is None or not entry.knows_positions or entry.is_silent:
        return None
    ends: list[Mapping[str, Place]] = []
    for read in entry.consumed:
        found = places(read, read.end)
        if found is None:
            return None
        ends.append(found)
    return _furthest(ends)


def _furthest(ends: Sequence[Mapping[str, Place] | None]) -> dict[str, Place]:
    furthest: dict[str, Place] = {}
    for end in ends:
        for source, place in (end or {}).items():
            furthest[source] = max(place, furthest.get(source, place))
    return furthest


def _is_within(end: Mapping[str, Place], limit: Mapping[str, Place]) -> bool:
    return all(source in limit and place <= limit[source] for source, place in end.items())


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
