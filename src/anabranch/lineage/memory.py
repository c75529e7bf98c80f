"""A store of commits in memory: for tables that are not in a warehouse, and for tests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Self

from anabranch.kernel.log.context import TableContext
from anabranch.lazy import lazy
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.commits import branches_of, commits_backwards
from anabranch.lineage.store import (
    Break,
    FlowSummary,
    JobSummary,
    NewestInput,
    OtherRead,
    Read,
    input_key,
    name_of_source,
    other_reads_of,
    reads_of,
    source_id,
)
from anabranch.lineage.trace import Range


class MemoryStore:
    """All commits of some tables. See `anabranch.lineage.store.CommitStore`."""

    def __init__(self, lines: Iterable[Line], commits: Iterable[Commit]) -> None:
        self._lines = {line.branch_uuid: line for line in sorted(lines, key=lambda line: line.branch_uuid)}
        own: dict[str, dict[int, Commit]] = {}
        for commit in commits:
            own.setdefault(commit.branch_uuid, {})[commit.snapshot] = commit
        self._own = {branch: [found[i] for i in sorted(found)] for branch, found in own.items()}
        self._ids = {branch: [commit.snapshot for commit in found] for branch, found in self._own.items()}

    @classmethod
    def of_tables(cls, tables: Iterable[TableContext]) -> Self:
        """Read all commits of some tables, expired ones included.

        Raises `CorruptTableError`, `UnsupportedFeatureError`.
        """
        lines: list[Line] = []
        commits: list[Commit] = []
        for table in tables:
            branches, forks = branches_of(table)
            for branch in branches:
                lines.append(branch.line)
                commits += commits_backwards(branch, forks, table)
        return cls(lines, commits)

    def lines(self, table_uuid: str | None = None) -> Sequence[Line]:
        return [line for line in self._lines.values() if table_uuid in (None, line.table_uuid)]

    def line(self, branch_uuid: str) -> Line | None:
        return self._lines.get(branch_uuid)

    def warehouses(self) -> Mapping[str, str]:
        return {}

    def newest(self, branch_uuid: str) -> int:
        ids = self._ids.get(branch_uuid)
        return ids[-1] if ids else 0

    def commit(self, ref: CommitRef) -> Commit | None:
        found = list(self._between(ref.branch_uuid, ref.snapshot, ref.snapshot))
        return found[0] if found else None

    def commits(self, branch_uuid: str, first: int = 1) -> Iterator[Commit]:
        return self._between(branch_uuid, first, self.newest(branch_uuid))

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        return self._breaks.get(branch_uuid, ())

    def rowless(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        return [commit.snapshot for commit in self._between(branch_uuid, first, last) if not commit.has_rows]

    def gaps(self, branch_uuid: str) -> Sequence[Range]:
        line = self._lines.get(branch_uuid)
        begin = 0 if line is None or line.fork is None else line.fork.snapshot
        known = [begin, *self._ids.get(branch_uuid, ())]
        return [(one + 1, other - 1) for one, other in pairwise(known) if other > one + 1]

    def unsaid(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        found = self._between(branch_uuid, first, last)
        return [commit.snapshot for commit in found if commit.has_rows and commit.entry is None]

    def problems(self, branch_uuid: str, first: int, last: int) -> Sequence[tuple[int, str]]:
        return [
            (commit.snapshot, problem)
            for commit in self._between(branch_uuid, first, last)
            if commit.entry is not None
            for problem in commit.entry.problems
        ]

    def reads(self, sink: str, first: int, last: int) -> Iterator[Read]:
        for commit in self._between(sink, first, last):
            if commit.has_rows:
                yield from reads_of(commit)

    def readers(self, source: str, first: int, last: int) -> Iterator[Read]:
        for read in self._readers.get(source, ()):
            if read.after < last and read.through >= first:
                yield read

    def other_reads(self, sink: str, first: int, last: int) -> Iterator[OtherRead]:
        for commit in self._between(sink, first, last):
            if commit.has_rows:
                yield from other_reads_of(commit)

    def flows(self) -> Sequence[FlowSummary]:
        found: dict[tuple[str, str, str, bool], FlowSummary] = {}
        for commit in sorted(self._all, key=lambda commit: commit.time_millis):
            for summary in {one[:6]: one for one in self._flows_of(commit)}.values():
                key = (summary.source, summary.sink, summary.job, summary.is_merge)
                known = found.get(key)
                found[key] = summary if known is None else _together(known, summary)
        return [found[key] for key in sorted(found)]

    def jobs(self) -> Sequence[JobSummary]:
        found: dict[tuple[str, str], JobSummary] = {}
        for commit in self._all:
            entry = commit.entry
            if entry is None or not commit.may_bring_rows or entry.is_anonymous:
                continue
            key = (entry.job, commit.branch_uuid)
            known = found.get(key)
            found[key] = JobSummary(
                entry.job,
                commit.branch_uuid,
                entry.engine.name,
                1 if known is None else known.commits + 1,
                commit.time_millis if known is None else min(known.first_millis, commit.time_millis),
                commit.time_millis if known is None else max(known.last_millis, commit.time_millis),
                commit.snapshot,
            )
        return [found[key] for key in sorted(found)]

    def newest_inputs(self, sink: str, first: int, last: int) -> Iterator[NewestInput]:
        newest: dict[tuple[str, str | None, str], int] = {}
        for commit in self._between(sink, first, last):
            entry = commit.entry
            if entry is None or entry.taken is not None or entry.is_of_no_job or not commit.may_bring_rows:
                continue
            for key in {input_key(read) for read in entry.consumed} or {""}:
                newest[entry.job, entry.engine.query, key] = commit.snapshot
        for (job, query, key), snapshot in newest.items():
            yield NewestInput(job, query, key, snapshot)

    @property
    def _all(self) -> Iterator[Commit]:
        """All commits, branch by branch, ascending within a branch."""
        return (commit for own in self._own.values() for commit in own)

    def _flows_of(self, commit: Commit) -> Iterator[FlowSummary]:
        time = commit.time_millis
        for read in reads_of(commit):
            line = self._lines.get(read.source)
            name = name_of_source(commit, read.source) if line is None else line.title
            yield FlowSummary(
                read.source,
                "table",
                name,
                read.sink,
                read.job,
                read.kind == "merge",
                commits=1,
                first_millis=time,
                last_millis=time,
            )
        for other in other_reads_of(commit):
            source = source_id(other.kind, other.name)
            yield FlowSummary(
                source,
                other.kind,
                other.name,
                other.sink,
                other.job,
                is_merge=False,
                commits=1,
                first_millis=time,
                last_millis=time,
            )

    def _between(self, branch_uuid: str, first: int, last: int) -> Iterator[Commit]:
        ids = self._ids.get(branch_uuid, [])
        own = self._own.get(branch_uuid, [])
        return iter(own[bisect_left(ids, first) : bisect_right(ids, last)])

    @lazy
    def _breaks(self) -> dict[str, list[Break]]:
        return {
            branch: [
                Break(commit.snapshot, commit.base, commit.restores)
                for commit in own
                if commit.base != CommitRef(branch, commit.snapshot - 1) or commit.restores
            ]
            for branch, own in self._own.items()
        }

    @lazy
    def _readers(self) -> dict[str, list[Read]]:
        found: dict[str, list[Read]] = {}
        for own in self._own.values():
            for commit in own:
                if commit.has_rows:
                    for read in reads_of(commit):
                        found.setdefault(read.source, []).append(read)
        return found


def _together(one: FlowSummary, other: FlowSummary) -> FlowSummary:
    return other._replace(
        commits=one.commits + other.commits,
        first_millis=min(one.first_millis, other.first_millis),
        last_millis=max(one.last_millis, other.last_millis),
    )
