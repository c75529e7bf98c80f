"""How far a branch is behind main in reading each source: tables, Kafka topics, folders of files.

Both began with the same commit. The commits of each since then give its positions; before that,
both stood where main had read to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Self

from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.log.archive import Following
from anabranch.kernel.log.commits import back_from, expired
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.coverage import Content, Past, commits_since, title_of
from anabranch.lineage.model import Input, TableInput, entry_or_none
from anabranch.lineage.overlap import Place, places

_MOST_BEFORE = 1_000
"""Commits before the fork that are searched for the position of a source there."""

_NOT_OF_A_JOB: Final = "it was made outside of any job, and does not say how far one had come"


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Positions of main and of the branch in one source."""

    kind: str
    """``table``, ``kafka`` or ``files``."""
    name: str
    """The table, the topic, or the number of the query's source."""
    behind: int | None
    """Offsets that main has read and the branch has not: snapshots of a table, records of a topic, log entries of files.
    None if the branch has read nothing of it, or nothing that can be compared."""
    main: int
    """Position of main: the snapshot, or the sum of the offsets of all partitions."""
    branch: int | None
    parts: int = 1
    """Partitions of a topic."""


@dataclass(frozen=True, slots=True)
class BranchLag:
    """Lag of a branch behind main."""

    table: str
    branch: str
    sources: tuple[SourceLag, ...]
    """Sources that main has read; sorted by kind and name."""
    problems: tuple[str, ...] = ()
    """What is unknown, and why."""

    @property
    def behind(self) -> int | None:
        """Offsets behind, over all sources; None if one is not known."""
        known = [source.behind for source in self.sources if source.behind is not None]
        return None if len(known) < len(self.sources) else sum(known)

    @property
    def has_caught_up(self) -> bool:
        """Whether the branch is known to have read everything that main has."""
        return self.behind == 0 and not self.problems


@dataclass
class _Reads:
    """How far the commits of one side have read."""

    ends: dict[str, Place] = field(default_factory=dict)
    begun: dict[str, Place] = field(default_factory=dict)
    """Where each source was first read from, as far back as the commits go."""
    titles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind and name, by the key of `places`."""
    problems: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, before: Iterable[Past], since: Iterable[Past]) -> Self:
        """Collect the reads of one side's commits, both oldest first; problems from before the fork are dropped."""
        reads = cls()
        for snapshot in before:
            reads.take(snapshot)
        reads.problems.clear()
        for snapshot in since:
            reads.take(snapshot)
        return reads

    def take(self, snapshot: Past) -> None:
        """Add a commit's reads. Commits come oldest first."""
        entry = entry_or_none(snapshot)
        if entry is None:
            if snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE):
                self.problems[f"snapshot {snapshot.id} does not say what it read"] = None
            return
        for problem in () if entry.knows_positions else entry.problems or (_NOT_OF_A_JOB,):
            self.problems[f"snapshot {snapshot.id}: {problem}"] = None
        for read in entry.consumed:
            if not (isinstance(read, TableInput) and read.is_state):
                self._take(read, snapshot)

    def _take(self, read: Input, snapshot: Past) -> None:
        found, starts = places(read, read.end), places(read, read.start) or {}
        if found is None:
            self.problems[
                f"snapshot {snapshot.id} read {title_of(read, '')[1]}, whose offsets cannot be compared"
            ] = None
            return
        for key, place in found.items():
            self.ends[key] = max(place, self.ends.get(key, place))
            self.begun.setdefault(key, starts.get(key, place))
            self.titles[key] = title_of(read, key)


def branch_lag(main: TableContext, branch: TableContext) -> BranchLag:
    """Return how far a branch is behind main, per source.

    Args:
        branch: another one of the table.
    """
    fork = None if branch.fork is None else branch.fork.snapshot
    parted = 0 if fork is None else fork.id
    in_main, in_branch = Content(), Content()
    since, own = commits_since(main, parted, in_main), commits_since(branch, parted, in_branch)
    # Losses from before the fork only leave sources unknown.
    lost, own_lost = in_main.problems, in_branch.problems
    there = main.snapshots.find(parted) if parted else None
    is_other = there is not None and fork is not None and there.stamp != fork.stamp
    before: list[Past] = []
    begun: list[Past] = []
    if fork is not None and not is_other:
        below = Following(fork.id + 1, fork.stamp)
        past = expired(main, below) if there is None else back_from(main, there)
        before, begun = _before(past, since, in_main, in_branch)
    of_main, of_branch = _Reads.of(before, since), _Reads.of(begun, own)
    problems = [f"main: {problem}" for problem in (*of_main.problems, *lost)]
    problems += [f"{branch.branch}: {problem}" for problem in (*of_branch.problems, *own_lost)]
    if is_other:
        problems.append(
            f"{branch.branch}: it began with a snapshot {parted} that is no part of main any more"
        )
    return BranchLag(main.name, branch.branch or "main", _compared(of_main, of_branch), tuple(problems))


def _before(
    past: Iterator[Past], since: Sequence[Past], in_main: Content, in_branch: Content
) -> tuple[list[Past], list[Past]]:
    """Return the commits up to the fork that give each source's position: of main, of the branch; oldest first."""
    of_main: list[Past] = []
    of_branch: list[Past] = []
    missing = set(_Reads.of((), since).ends)
    for snapshot in islice(past, _MOST_BEFORE):
        if in_branch.has(snapshot):
            of_branch.append(snapshot)
        if in_main.has(snapshot):
            of_main.append(snapshot)
            missing -= _Reads.of((), [snapshot]).ends.keys()
            if not missing:
                break
    return of_main[::-1], of_branch[::-1]


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
    # A partition that the topic got since: the branch will read it from the same position as main.
    at = {key: branch.ends.get(key, main.begun[key]) for key in keys}
    behind = sum(max(0, main.ends[key][0] - at[key][0]) for key in keys)
    if not behind and any(main.ends[key] > at[key] for key in keys):
        behind = 1  # in the middle of a snapshot of which main has read more
    return SourceLag(*title, behind, at_main, sum(place[0] for place in at.values()), len(keys))
