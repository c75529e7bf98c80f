"""Positions from which a job continues exactly after the rows of a snapshot of its sink.

A job's commits record how far it had read each source (`anabranch.lineage.model`). A batch names only the sources
it read something of, so the positions at a snapshot are collected backwards, from commits of the same query. A
source first named after the snapshot had not been read by then: the start of its first batch is its position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.jobs.job import Job
from anabranch.jobs.state.point import Point
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.past import overwritten, rolled_back_to
from anabranch.lineage.model import Input, LineageEntry, TableInput, entry_or_none
from anabranch.lineage.trace import Positions, SourcePosition
from anabranch.streaming.offsets import Offset


@dataclass(frozen=True, slots=True)
class RecordedPosition:
    """How far a job had read one of its sources."""

    kind: str
    """``table``, ``kafka``, ``files`` or ``unknown``."""
    name: str
    """The table, the topics, or whatever else is known."""
    identity: Hashable
    """For a table, its own; for Kafka, the topics."""
    position: Any
    """As JSON: a table's stream offset, or what the source itself recorded."""

    def __str__(self) -> str:
        return f"{'table' if self.kind == 'table' else self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class KnownPositions:
    """How far a job had read its sources."""

    positions: tuple[RecordedPosition, ...]
    is_complete: bool
    """Whether there are no other sources: the commits that would show them have not expired."""
    point: Point | None = None
    """The streaming batch after which these positions are, if there was one."""

    def with_more(self, others: Iterable[RecordedPosition]) -> KnownPositions:
        """Add positions of sources that are missing here, from a provider that knows all sources."""
        known = {(one.kind, one.identity) for one in self.positions}
        more = [one for one in others if (one.kind, one.identity) not in known]
        return replace(self, positions=(*self.positions, *more), is_complete=True)


def recorded_positions(main: TableContext, moment: Snapshot, job: str) -> KnownPositions:
    """Return how far a job had read its sources when it had made what a snapshot of a table holds.

    Args:
        main: the branch that has the snapshot in its history.

    Raises:
        NotFoundError: no commit of the job is known up to there.
        CorruptTableError: a commit of it records that its sources could not be determined.
    """
    query: str | None = None
    found: dict[tuple[str, str], Input] = {}
    newest: Snapshot | None = None
    point: Point | None = None
    is_complete = False
    others: dict[str, None] = {}
    programs: list[tuple[Snapshot, LineageEntry]] = []
    for snapshot in content_of(main, moment):
        is_complete = is_complete or snapshot.id == 1
        entry = entry_or_none(snapshot)
        if entry is None or entry.is_of_no_job:
            continue
        if entry.job != job:
            others[entry.job] = None
            continue
        if entry.engine.query is None and not entry.streams:
            # A program of the job's name took rows away, or added some: a stream of that name is where it was.
            programs.append((snapshot, entry))
            continue
        if newest is None:
            newest, query, point = snapshot, entry.engine.query, Point.of(entry)
        elif entry.engine.query != query:
            is_complete = True
            break
        is_complete = is_complete or entry.engine.batch == 0
        _check_complete(entry, snapshot, main)
        for read in entry.streams:
            found.setdefault(_slot(read), read)
    if newest is None:
        for snapshot, entry in programs:
            newest = newest or snapshot
            _check_complete(entry, snapshot, main)
    if newest is None:
        raise NotFoundError(
            f"snapshot {moment.id} of '{main.title}' holds no commit of job '{job}' that says what it read",
            hint=f"there are commits of: {', '.join(others)}. A corrected job keeps the name it had."
            if others
            else "only rows that the job wrote itself, and that have not expired since, tell its positions.",
        )
    at: dict[tuple[str, str], tuple[Input, Any]] = {slot: (read, read.end) for slot, read in found.items()}
    for read in _read_later(main, moment, job, query):
        slot, begun = _slot(read), _begin_of(read)
        if slot not in at and begun is not None:
            at[slot] = (read, begun)
        elif slot in at and slot[0] == "kafka":
            at[slot] = (at[slot][0], _with_new_partitions(at[slot][1], begun))
    return KnownPositions(
        tuple(dict.fromkeys(_recorded(*known) for known in at.values())), is_complete, point
    )


def first_positions(entries: Iterable[LineageEntry]) -> dict[str, KnownPositions]:
    """Return, by job, where it began to read its sources, given the entries of commits from its first one on, oldest first."""
    found: dict[str, dict[tuple[str, str], RecordedPosition]] = {}
    for entry in entries:
        if entry.is_of_no_job:
            continue
        begun = found.setdefault(entry.job, {})
        for read in entry.streams:
            begin = _begin_of(read)
            if _slot(read) not in begun and begin is not None:
                begun[_slot(read)] = _recorded(read, begin)
    return {job: KnownPositions(tuple(begun.values()), is_complete=True) for job, begun in found.items()}


def known_positions(
    main: TableContext,
    moment: Snapshot,
    job: str,
    indexed: Callable[[], Iterable[Positions]],
    *,
    is_all: bool = True,
) -> KnownPositions:
    """Return how far a job had read its sources by a moment: from its commits, or lineage if those have expired.

    Args:
        main: the branch that has the snapshot in its history.
        indexed: returns lineage's positions at the snapshot.
        is_all: whether lineage knows all commits up to there.

    Raises:
        NotFoundError: no commit of the job is known up to there.
        CorruptTableError: it is not certain what its sources were, or which were its newest commits.
    """
    try:
        known = recorded_positions(main, moment, job)
    except NotFoundError:
        positions = [one for one in indexed() if one.job == job]
        if not positions:
            raise
        problem = next((problem for one in positions for problem in one.problems), None)
        if problem is not None:
            raise CorruptTableError(
                f"the commits of job '{job}' up to snapshot {moment.id} of '{main.title}' have expired, and it is not "
                f"certain how far it had read: {problem}",
                hint="begin with positions in the options of the sources.",
            ) from None
        return KnownPositions(tuple(indexed_positions(positions, job)), is_all, Point.of(positions[0].entry))
    if known.is_complete:
        return known
    return replace(known.with_more(indexed_positions(indexed(), job)), is_complete=is_all)


def indexed_positions(positions: Iterable[Positions], job: str) -> list[RecordedPosition]:
    """Return the positions of a job among those in the lineage index.

    Raises `CorruptTableError`: it may not know the newest.
    """
    positions = tuple(positions)
    for one in positions:
        if one.unread:
            raise CorruptTableError(
                f"it is not certain how far job '{job}' had read: commits to its table may be missing: {one.unread[0]}",
                hint="mend the table, or begin without --from-tag, with positions in the options of the sources.",
            )
    return [
        RecordedPosition(one.kind, one.name, _identity(one), _json(one.position))
        for found in positions
        if found.job == job
        for one in found.sources
    ]


def _identity(one: SourcePosition) -> Hashable:
    if one.kind == "table":
        return Offset.from_dict(one.position).table_uuid
    return frozenset(one.position) if one.kind == "kafka" else one.source


def check_goes_on(main: TableContext, moment: Snapshot, job: Job) -> None:
    """Raise `InvalidInputError` if a job appends to what it had made as a whole, each time anew: it would stand beside its rows.

    Who took rows away, or replaced a part of them, made nothing as a whole.
    """
    if job.mode != "append":
        return
    for snapshot in content_of(main, moment):
        if snapshot.total_record_count == 0:
            return  # nothing is there for rows to stand beside
        entry = entry_or_none(snapshot)
        if entry is None or entry.job != job.name or snapshot.commit_kind is CommitKind.COMPACT:
            continue
        if _is_made_anew(snapshot, entry):
            raise InvalidInputError(
                f"{job} appends, and up to snapshot {moment.id} of '{main.title}' it replaced what the table holds (snapshot "
                f"{snapshot.id}): the rows of then would stand beside those that it makes now",
                hint="give it mode='complete' or 'overwrite' as before; or give the corrected job another name and table; or "
                "begin at a tag of before its first commit.",
            )
        if snapshot.commit_kind is not CommitKind.OVERWRITE:
            return


def _is_made_anew(snapshot: Snapshot, entry: LineageEntry) -> bool:
    """Whether a commit of a job replaced all rows, or, in a batch, those of the partitions that it makes."""
    said = overwritten(snapshot)
    return said == {} or (said is not None and "dynamic" in said and not entry.streams)


def content_of(main: TableContext, moment: Snapshot) -> Iterator[Snapshot]:
    """Yield the snapshots that made the moment's content, newest first, as far as they are retained."""
    snapshot: Snapshot | None = moment
    while snapshot is not None:
        target = rolled_back_to(snapshot)
        if target is None:
            yield snapshot
        snapshot = (
            main.snapshots.find(snapshot.id - 1 if target is None else target.id) if snapshot.id > 1 else None
        )


def _read_later(main: TableContext, moment: Snapshot, job: str, query: str | None) -> Iterator[Input]:
    """Yield what the query read after the moment, oldest first."""
    number = moment.id + 1
    while (snapshot := main.snapshots.find(number)) is not None:
        entry = entry_or_none(snapshot)
        if entry is not None and entry.job == job and entry.engine.query == query:
            yield from entry.streams
        number += 1


def _begin_of(read: Input) -> Any:
    """Return where a batch began to read a source; None if that is not known.

    A topic enters a query by a batch without records, which ends where it begins; so does a partition.
    """
    if isinstance(read, TableInput) or read.kind != "kafka":
        return read.start
    return _with_new_partitions(read.start, read.end)


def _with_new_partitions(offsets: Any, others: Any) -> Any:
    """Return offsets by topic and partition, adding partitions that are only in the others."""
    topics = {**(others or {}), **(offsets or {})}
    return {topic: {**(others or {}).get(topic, {}), **(offsets or {}).get(topic, {})} for topic in topics}


def _check_complete(entry: LineageEntry, snapshot: Snapshot, main: TableContext) -> None:
    if not entry.knows_positions:
        raise CorruptTableError(
            f"snapshot {snapshot.id} of '{main.title}' does not say how far job '{entry.job}' had read: "
            f"{entry.problems[0]}",
            hint="choose another tag, or begin without --from-tag, with positions in the options of the sources.",
        )


def _slot(read: Input) -> tuple[str, str]:
    """Return a key that tells a source from the others of its query."""
    return ("table", read.table_uuid) if isinstance(read, TableInput) else (read.kind, read.source)


def _recorded(read: Input, at: Any) -> RecordedPosition:
    if isinstance(read, TableInput):
        offset = Offset(read.table_uuid, read.branch_uuid, read.name, at)
        return RecordedPosition("table", read.name, read.table_uuid, _json(offset.to_dict()))
    if read.kind == "kafka" and isinstance(at, dict):
        return RecordedPosition("kafka", ", ".join(sorted(at)), frozenset(at), _json(at))
    return RecordedPosition(read.kind, read.name or read.source, read.source, _json(at))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
