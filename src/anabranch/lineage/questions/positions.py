"""Positions of jobs in their sources at a moment of a table, from which they continue exactly after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from anabranch.lineage.commit import Commit, CommitRef
from anabranch.lineage.content import Contents, Segment, Segments
from anabranch.lineage.model import Input, TableInput
from anabranch.lineage.overlap import places
from anabranch.lineage.questions.walk import BEYOND
from anabranch.lineage.store import CommitStore, NewestInput, input_key, kind_of, names_of
from anabranch.lineage.trace import Positions, SourcePosition
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.offsets import Offset, Position

_STARTING_OFFSETS = "startingOffsets"

_Rank = tuple[int, ...]
"""Position of a commit in the table's content; newer is smaller."""


def positions(store: CommitStore, moment: CommitRef) -> tuple[Positions, ...]:
    """Return, for each job whose rows a table contained at a moment, how far it had read each source.

    Everything up to there is in the table, and nothing after it. A streaming batch names only sources that had
    something new; for the others the last batch that named them counts. Rows that came by a merge count as well.

    Args:
        moment: the branch, and an id that the snapshot has on it.

    Returns:
        by name of the job; nothing for a job that made the commits without saying what it read.
    """
    found = _Positions(store, moment)
    return tuple(found.of_job(job) for job in sorted(found.jobs))


@dataclass(frozen=True, slots=True)
class _Part:
    """Own commits of a branch that the table contained, and their rank in its content."""

    segment: Segment
    rank: _Rank


@dataclass(frozen=True, slots=True)
class _Found:
    """A commit that names a source."""

    commit: Commit
    read: Input
    rank: _Rank


class _Positions:
    def __init__(self, store: CommitStore, moment: CommitRef) -> None:
        self._store = store
        self._moment = moment
        self._contents = Contents(store)
        self._merges = [flow for flow in store.flows() if flow.is_merge]
        self.jobs: dict[str, list[tuple[_Part, NewestInput]]] = {}
        for part in self._parts(self._contents.content(moment), ()):
            segment = part.segment
            for newest in store.newest_inputs(segment.branch, segment.first, segment.last):
                self.jobs.setdefault(newest.job, []).append((part, newest))

    def of_job(self, job: str) -> Positions:
        """Return how far a job had read its sources."""
        # A program of a job's name that took rows away, or added some, leaves its stream where it was.
        named = [one for one in self.jobs[job] if self._tells_positions(*one)] or self.jobs[job]
        part, newest = min(named, key=lambda one: _rank(*one))
        own = CommitRef(part.segment.branch, newest.snapshot)
        commit = self._store.commit(own)
        entry = None if commit is None else commit.entry
        problems = () if entry is None or entry.knows_positions else entry.problems
        by_source: dict[tuple[str, ...], list[_Found]] = {}
        for found in self._finds(job, newest.query):
            by_source.setdefault(self._source(found.read), []).append(found)
        furthest = [_furthest(found) for found in by_source.values()]
        sources = sorted(
            (self._position(one, job) for one in furthest), key=lambda one: (one.source, one.name)
        )
        missing = tuple(
            f"{one.name}: no option of a reader says this position exactly"
            for one in sources
            if not one.options
        )
        return Positions(
            self._title(self._moment.branch_uuid),
            self._moment.snapshot,
            job,
            own.snapshot,
            tuple(sources),
            (*problems, *missing),
            self._title(own.branch_uuid),
            entry=None if commit is None else commit.entry,
        )

    def _tells_positions(self, part: _Part, newest: NewestInput) -> bool:
        if newest.query is not None:
            return True
        commit = self._store.commit(CommitRef(part.segment.branch, newest.snapshot))
        return commit is not None and commit.entry is not None and bool(commit.entry.streams)

    def _parts(self, segments: Segments, above: _Rank) -> Iterator[_Part]:
        """Yield the parts of a table's content, with the commits of branches that were merged into it."""
        for place, segment in enumerate(segments):
            yield _Part(segment, (*above, place))
            for flow in self._merges:
                if flow.sink != segment.branch:
                    continue
                for read in self._store.readers(flow.source, 1, BEYOND):
                    is_here = read.sink == segment.branch and segment.first <= read.snapshot <= segment.last
                    if read.kind == "merge" and is_here:
                        yield from self._parts(self._contents.taken(read), (*above, place, -read.snapshot))

    def _finds(self, job: str, query: str | None) -> Iterator[_Found]:
        """Return the commits that name the sources of a job, without those of earlier queries of the same name."""
        for part, newest in self.jobs[job]:
            commit = self._store.commit(CommitRef(part.segment.branch, newest.snapshot))
            if newest.query != query or commit is None or commit.entry is None:
                continue
            for read in commit.entry.consumed:
                if input_key(read) == newest.key:
                    yield _Found(commit, read, _rank(part, newest))

    def _source(self, read: Input) -> tuple[str, ...]:
        """Return a key that identifies a source; all branches that were ever main are one source."""
        if not isinstance(read, TableInput):
            return (input_key(read),)
        if read.branch_uuid in self._mains(read.table_uuid):
            return ("main", read.table_uuid)
        return ("branch", read.branch_uuid)

    def _mains(self, table_uuid: str) -> set[str]:
        found = {table_uuid}
        for line in self._store.lines(table_uuid):
            current = line if line.is_main else None
            while current is not None and current.branch_uuid not in found:
                found.add(current.branch_uuid)
                fork = current.fork
                current = None if fork is None else self._store.line(fork.branch_uuid)
        return found

    def _position(self, found: _Found, job: str) -> SourcePosition:
        read = found.read
        if isinstance(read, TableInput):
            end = replace(read.end, full=False) if read.is_state else read.end
            offset = Offset(read.table_uuid, read.branch_uuid, read.name, end).to_dict()
            return SourcePosition(
                "table",
                self._title(read.branch_uuid, read.name),
                input_key(read),
                offset,
                {SCAN_START_OFFSET.key: _json(offset)},
            )
        options = {_STARTING_OFFSETS: _json(read.end)} if read.kind == "kafka" and read.end else {}
        name = ", ".join(names_of(read, job))
        return SourcePosition(kind_of(read), name, read.source, read.end, options)

    def _title(self, branch: str, otherwise: str | None = None) -> str:
        line = self._store.line(branch)
        return (otherwise or branch) if line is None else line.title


def _rank(part: _Part, newest: NewestInput) -> _Rank:
    return (*part.rank, -newest.snapshot)


def _furthest(found: list[_Found]) -> _Found:
    """Return the newest, unless another is at least as far everywhere and further somewhere."""
    ordered = sorted(found, key=lambda one: one.rank)
    best = ordered[0]
    for other in ordered[1:]:
        ends, others = places(best.read, _end(best.read)), places(other.read, _end(other.read))
        if ends and others and ends.keys() <= others.keys() and ends != others:
            best = other if all(others[source] >= end for source, end in ends.items()) else best
    return best


def _end(read: Input) -> Position | Any:
    return read.end


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
