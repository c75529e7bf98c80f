"""How far a branch is behind main, by what both have read of each source: tables, topics of Kafka, folders of files.

Both began with the same commit. What the commits of each since then say they read gives where it stands; before that,
both stood where main had come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from anabranch.errors import CorruptTableError
from anabranch.kernel.context import TableContext
from anabranch.lineage.model import Input, LineageEntry, TableInput, lineage_of
from anabranch.lineage.overlap import Place, places
from anabranch.spec.snapshot import CommitKind, Snapshot

_MOST_BEFORE = 1_000
"""Commits before the fork that are looked through for where a source stood there."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of main, and of the branch."""

    kind: str
    """``table``, ``kafka`` or ``files``."""
    name: str
    """The table, the topic, or which source of the query."""
    behind: int | None
    """Offsets that main has read and the branch has not: snapshots of a table, records of a topic, log entries of files.
    None if the branch has read nothing of it, or nothing that can be compared."""
    main: int
    """Where main stands: the snapshot, or the offsets of all partitions together."""
    branch: int | None
    parts: int = 1
    """Partitions of a topic."""


@dataclass(frozen=True, slots=True)
class BranchLag:
    """A branch beside main."""

    table: str
    branch: str
    sources: tuple[SourceLag, ...]
    """Those that main has read; sorted by kind and name."""
    problems: tuple[str, ...] = ()
    """What is not known, and why."""

    @property
    def behind(self) -> int | None:
        """Offsets over all sources; None if one is not known."""
        known = [source.behind for source in self.sources if source.behind is not None]
        return None if len(known) < len(self.sources) else sum(known)

    @property
    def has_caught_up(self) -> bool:
        """Whether the branch is known to have read all that main has."""
        return self.behind == 0 and not self.problems


@dataclass
class _Reads:
    """How far the commits of one side have read."""

    ends: dict[str, Place] = field(default_factory=dict)
    begun: dict[str, Place] = field(default_factory=dict)
    """Where each was first read from, as far as the commits go back."""
    titles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind and name, by the key of `places`."""
    problems: dict[str, None] = field(default_factory=dict)

    def take(self, snapshot: Snapshot) -> None:
        """Take in what a commit says. They come oldest first."""
        entry = _entry(snapshot)
        if entry is None:
            if snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE):
                self.problems[f"snapshot {snapshot.id} does not say what it read"] = None
            return
        for problem in entry.problems:
            self.problems[f"snapshot {snapshot.id}: {problem}"] = None
        for read in entry.inputs:
            if not (isinstance(read, TableInput) and read.is_state):
                self._take(read, snapshot)

    def _take(self, read: Input, snapshot: Snapshot) -> None:
        found, starts = places(read, read.end), places(read, read.start) or {}
        if found is None:
            self.problems[
                f"snapshot {snapshot.id} read {_title(read, '')[1]}, whose offsets cannot be compared"
            ] = None
            return
        for key, place in found.items():
            self.ends[key] = max(place, self.ends.get(key, place))
            self.begun.setdefault(key, starts.get(key, place))
            self.titles[key] = _title(read, key)


def branch_lag(main: TableContext, branch: TableContext) -> BranchLag:
    """How far a branch is behind main, per source.

    Args:
        main: the main branch.
        branch: another one of the table.
    """
    fork = 0 if branch.fork is None else branch.fork.snapshot.id
    since, own = _since(main, fork), _since(branch, fork)
    before = _before(main, fork, since)
    of_main, of_branch = _Reads(), _Reads()
    for snapshot in before:
        of_main.take(snapshot)
        of_branch.take(snapshot)
    of_main.problems.clear()  # what came before the fork is the same on both sides
    of_branch.problems.clear()
    for snapshot in since:
        of_main.take(snapshot)
    for snapshot in own:
        of_branch.take(snapshot)
    problems = [f"main: {problem}" for problem in of_main.problems]
    problems += [f"{branch.branch}: {problem}" for problem in of_branch.problems]
    return BranchLag(main.name, branch.branch or "main", _compared(of_main, of_branch), tuple(problems))


def _since(context: TableContext, fork: int) -> list[Snapshot]:
    """The commits after the two parted, oldest first."""
    head = context.snapshots.head()
    found = () if head is None else takewhile(lambda s: s.id > fork, context.snapshots.backwards(head))
    return [*found][::-1]


def _before(main: TableContext, fork: int, since: Sequence[Snapshot]) -> list[Snapshot]:
    """The commits up to the fork that say where each source stood there, oldest first."""
    wanted = _Reads()
    for snapshot in since:
        wanted.take(snapshot)
    missing, found = set(wanted.ends), []
    at = main.snapshots.find(fork) if fork else None
    for number, snapshot in enumerate(() if at is None else main.snapshots.backwards(at)):
        if number == _MOST_BEFORE or (number and not missing):
            break
        reads = _Reads()
        reads.take(snapshot)
        found.append(snapshot)
        missing -= reads.ends.keys()
    return found[::-1]


def _compared(main: _Reads, branch: _Reads) -> tuple[SourceLag, ...]:
    by_title: dict[tuple[str, str], list[str]] = {}
    for key in main.ends:
        by_title.setdefault(main.titles[key], []).append(key)
    return tuple(_lag(title, keys, main, branch) for title, keys in sorted(by_title.items()))


def _lag(title: tuple[str, str], keys: Iterable[str], main: _Reads, branch: _Reads) -> SourceLag:
    keys = list(keys)
    known = [key for key in keys if key in branch.ends]
    at_main = sum(main.ends[key][0] for key in keys)
    if not known:
        return SourceLag(*title, None, at_main, None, len(keys))
    # A partition that the topic got since: the branch will read it from where main did.
    at = {key: branch.ends.get(key, main.begun[key]) for key in keys}
    behind = sum(max(0, main.ends[key][0] - at[key][0]) for key in keys)
    if not behind and any(main.ends[key] > at[key] for key in keys):
        behind = 1  # in the middle of a snapshot of which main has read more
    return SourceLag(*title, behind, at_main, sum(place[0] for place in at.values()), len(keys))


def _title(read: Input, key: str) -> tuple[str, str]:
    if isinstance(read, TableInput):
        return "table", read.name
    if read.kind == "kafka" and key:
        return "kafka", key.removeprefix("topic ").rpartition(" ")[0]
    return read.kind, read.name or read.source


def _entry(snapshot: Snapshot) -> LineageEntry | None:
    try:
        return lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
    except CorruptTableError:
        return None
