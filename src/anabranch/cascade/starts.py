"""Positions from which a job's sources continue on corrected tables, after what its table's branch begins with.

The positions that a job recorded are on former mains. Up to the snapshot where such a main and the branch to read
parted, both have the same history: so the same position on the corrected one is followed by the corrected
rows. This holds for every source whose main was replaced since, whether by this correction, an earlier one, or several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.cascade.taken_away import Taking, newest_beyond, restored_by
from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.jobs.job import Job
from anabranch.jobs.positions import KnownPositions, check_goes_on, known_positions
from anabranch.jobs.source import FILES_READ
from anabranch.jobs.starts import starts_at
from anabranch.jobs.state.point import Point
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_by_uuid, succession
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.refs.moments import place_and_moment
from anabranch.lineage.trace import Positions
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.offsets import BEGINNING, Offset, Position


@dataclass(frozen=True, slots=True)
class Corrected:
    """A table in its corrected form."""

    table: str
    main: TableContext
    """Its current main."""
    branch: str | None = None
    """The branch to read, by its name; None for main."""
    fork: int | None = None
    """Up to this snapshot its history is that of main; None if it is main."""
    branch_uuid: str | None = None
    """Identity of the branch to read; None while it does not exist yet."""
    emptied: Position | None = None
    """Position at which a branch that begins empty was emptied."""
    takings: tuple[Taking, ...] = ()
    """Commits of its branches that took rows away before they became main."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Positions of the jobs that made what a branch begins with."""

    moment: Snapshot | None = None
    """Snapshot it begins with; None if it begins with nothing."""
    positions: tuple[Positions, ...] = ()
    """Of each job whose rows are in it, including jobs whose commits have expired."""
    unknown: str | None = None
    """Why unknown jobs may have written to it."""
    firsts: Mapping[str, KnownPositions] = field(default_factory=dict)
    """By job, where it began to read its sources, among the commits that are made again."""
    logs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By job, among the same: see `newest_logs`."""


@dataclass(frozen=True, slots=True)
class SourceStart:
    """Position where a source of a job begins."""

    source: str
    """Its name in the job."""
    name: str
    """The table, with its branch; the topics, or whatever it is."""
    begins: str
    """For people: ``after snapshot 5``, ``with all rows of snapshot 5``, ``as declared``, ``as it is``."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """Positions where the sources of a job begin."""

    sources: tuple[SourceStart, ...]
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source."""
    notices: tuple[str, ...] = ()
    problem: str | None = None
    """Why the job cannot continue from there by itself."""
    point: Point | None = None
    """The job's last batch in what its branch begins with; None if it begins with nothing."""
    file_logs: Mapping[str, int] = field(default_factory=dict)
    """As of a `Run`."""


def start_of(
    job: Job,
    main: TableContext,
    stand: Stand,
    sources: Mapping[str, Corrected],
    tables: Mapping[str, str],
    *,
    is_batch: bool,
) -> JobStart:
    """Return where a job begins so that it makes what its table has after a moment.

    Args:
        main: the table that it writes.
        stand: state with which its branch begins.
        sources: how tables that the job names without a branch are read, by the name of the source.
        tables: identity of the table of each source that is one, by the name of the source.
        is_batch: whether none of its sources is a stream.
    """
    declared = JobStart(tuple(_as_declared(name, job, sources) for name in job.sources))
    pinned = _pinned_beyond(job, sources)
    if pinned is not None:
        return replace(declared, problem=pinned)
    if stand.moment is None:
        return _as_begun(declared, job, stand, sources, tables)
    if job.name not in {one.job for one in stand.positions}:
        if stand.unknown is None:
            return _as_begun(declared, job, stand, sources, tables)
        return replace(declared, problem=f"it is not known whether it had written before: {stand.unknown}")
    try:
        check_goes_on(main, stand.moment, job)
    except AnabranchError as error:
        return replace(declared, problem=error.message)
    if is_batch:
        return declared  # a batch job reads its sources as they are, however far it had read
    try:
        known = known_positions(
            main, stand.moment, job.name, lambda: stand.positions, is_all=stand.unknown is None
        )
        found = starts_at(known, job.sources, tables)
        options = {
            name: _on_corrected(dict(given), sources.get(name)) for name, given in found.options.items()
        }
    except AnabranchError as error:
        return replace(declared, problem=error.message)
    begun = [
        _begun(name, job, sources, options[name]) if name in options else _as_declared(name, job, sources)
        for name in job.sources
    ]
    return JobStart(tuple(begun), options, found.notices, point=found.point)


def _pinned_beyond(job: Job, sources: Mapping[str, Corrected]) -> str | None:
    """Say which source looks a corrected table up at a moment that was taken out; None if there is none.

    A number or a time would name something else on its branch, whose snapshots come later, and a tag nothing.
    """
    for name, one in sources.items():
        if one.fork is None or job.sources[name].kind != "static":
            continue
        try:
            _, moment = place_and_moment(one.main, job.sources[name].options)
        except AnabranchError:
            continue  # the job will not be able to read it
        if moment is not None and moment.snapshot.id > one.fork:
            return (
                f"source '{name}' reads '{one.table}' at {moment.name}, which was taken out: what is kept ends at {one.fork}, and "
                "what it should read in its place cannot be told"
            )
    return None


def _as_begun(
    declared: JobStart, job: Job, stand: Stand, sources: Mapping[str, Corrected], tables: Mapping[str, str]
) -> JobStart:
    """Return where a job begins all of whose rows are made again.

    What is declared to begin with the newest rows, or at a time, would begin elsewhere now than it did: it begins there.
    """
    known = stand.firsts.get(job.name)
    names = [name for name, source in job.sources.items() if source.begins_anywhere]
    if not names or known is None:
        return declared
    try:
        found = starts_at(known, job.sources, tables).options
        options = {
            name: _on_corrected(dict(found[name]), sources.get(name)) for name in names if name in found
        }
    except AnabranchError as error:
        return replace(declared, problem=error.message)
    begun = [
        _begun(name, job, sources, options[name]) if name in options else _as_declared(name, job, sources)
        for name in job.sources
    ]
    return JobStart(tuple(begun), options)


def on_corrected(sources: Iterable[Corrected]) -> Callable[[Offset], Offset]:
    """Return a function that maps a position on a former main to the same one on the table as it is read now.

    It raises `NotFoundError` for a position beyond what is kept.
    """
    by_table = {one.main.table_uuid: one for one in sources}

    def moved(offset: Offset) -> Offset:
        one = by_table.get(offset.table_uuid)
        if one is None:
            return offset
        if offset.branch_uuid == one.branch_uuid:
            if one.emptied is None or offset.position != BEGINNING:
                return offset
            return replace(offset, position=one.emptied)
        origin = None
        if offset.origin is not None:
            begun = replace(
                offset, position=offset.origin, branch_uuid=offset.origin_branch or offset.branch_uuid
            )
            origin = _kept(one, begun)
        return replace(
            offset,
            branch_uuid=one.branch_uuid or offset.branch_uuid,
            position=_kept(one, offset),
            origin=origin,
            origin_branch=None,
        )

    return moved


def _on_corrected(options: dict[str, str], one: Corrected | None) -> dict[str, str]:
    """Return the same position on the corrected table."""
    text = options.get(SCAN_START_OFFSET.key)
    if one is None or text is None:
        return options
    offset = Offset.from_dict(json.loads(text))
    if offset.branch_uuid == one.branch_uuid:
        return options
    moved = Offset(offset.table_uuid, one.branch_uuid or offset.branch_uuid, offset.name, _kept(one, offset))
    return {**options, SCAN_START_OFFSET.key: json.dumps(moved.to_dict(), separators=(",", ":"))}


def _kept(one: Corrected, offset: Offset) -> Position:
    """Return the same position in the kept part. Raises `NotFoundError`: something beyond it had been read."""
    return _past_takings(one, _in_kept(one, offset))


def _past_takings(one: Corrected, position: Position) -> Position:
    """Return the position of which the rows to come are right, though rows after it were taken away again.

    Raises `NotFoundError`: rows that were taken away and those that stayed cannot be told apart.
    """
    last = newest_beyond(one.takings, position.snapshot, one.fork)
    if last is None:
        return position
    snapshot = one.main.snapshots.find(last)
    if snapshot is not None and position.files is None and position.snapshot:
        if restored_by(snapshot) == position.snapshot:
            return Position.after(snapshot)
    elif position == BEGINNING or (position.full and position.files == 0):
        there = min((number for number in one.main.snapshots.ids() if number >= last), default=last)
        found = one.main.snapshots.find(there)
        if found is not None:
            begun = Position.after(found)
            return replace(begun, files=0, full=True) if found.total_record_count else begun
    raise NotFoundError(
        f"it had read '{one.table}' up to snapshot {position.snapshot}, and rows that came after that were taken away by "
        f"snapshot {last}, on a branch that is main now: what is left of them to be read cannot be told"
    )


def _in_kept(one: Corrected, offset: Offset) -> Position:
    """Return the same position in the kept part. Raises `NotFoundError`: something beyond it had been read.

    Commits without rows do not count: their readers have read nothing.
    """
    position = offset.position
    if position == BEGINNING and one.emptied is not None:
        return one.emptied  # what the branch had before it was emptied must not be read
    ends = [end for end in (parted_at(one.main, offset.branch_uuid), one.fork) if end is not None]
    end = min(ends, default=position.snapshot)
    if position.snapshot <= end:
        return position
    if not position.files and _has_read_nothing(one, offset, end):
        if end == 0:
            return one.emptied or BEGINNING
        last = one.main.snapshots.find(end)
        if last is not None:
            # A start with all rows of a later snapshot becomes one with all kept rows.
            return (
                replace(Position.after(last), files=0, full=True) if position.full else Position.after(last)
            )
    raise NotFoundError(
        f"it had read '{one.table}' up to snapshot {position.snapshot}, which was taken out: what is kept ends at {end}"
    )


def parted_at(main: TableContext, branch_uuid: str) -> int | None:
    """Return the newest common snapshot of a former main and the current one, across replacements; None if it is main.

    Raises `NotFoundError`: that branch never was main.
    """
    if branch_uuid == main.branch_uuid:
        return None
    last = succession(main, branch_uuid)
    if last is None:
        raise NotFoundError(f"it had read a branch of '{main.name}' that never was main")
    since = [one for one in replacements(main) if one.generation >= last.generation]
    return min(one.replaced.fork.id for one in since if one.replaced is not None)


def _has_read_nothing(one: Corrected, offset: Offset, end: int) -> bool:
    """Whether there are no rows between the end of the kept part and the position."""
    position = offset.position
    if position.full:
        return position.files == 0
    old = main_by_uuid(one.main, offset.branch_uuid)
    last = position.snapshot if position.files is None else position.snapshot - 1
    beyond = [] if old is None else [old.snapshots.find(number) for number in range(end + 1, last + 1)]
    return old is not None and all(snapshot is not None and snapshot.brings_nothing for snapshot in beyond)


def _title(name: str, job: Job, sources: Mapping[str, Corrected]) -> str:
    source, one = job.sources[name], sources.get(name)
    return source.name if one is None or one.branch is None else f"{one.table}$branch_{one.branch}"


def _as_declared(name: str, job: Job, sources: Mapping[str, Corrected]) -> SourceStart:
    kind = "as it is" if job.sources[name].kind == "static" else "as declared"
    return SourceStart(name, _title(name, job, sources), kind)


def _begun(name: str, job: Job, sources: Mapping[str, Corrected], options: Mapping[str, str]) -> SourceStart:
    text = options.get(SCAN_START_OFFSET.key)
    if FILES_READ in options:
        return SourceStart(name, _title(name, job, sources), "after the files that it had read")
    if text is None:
        return SourceStart(name, _title(name, job, sources), "at " + ", ".join(options.values()))
    value: Any = json.loads(text)
    files = value.get("files")
    part = "" if files is None else f", {files} files into it"
    if value["snapshot"] == 0:
        return SourceStart(name, _title(name, job, sources), "from the beginning")
    if value.get("full"):
        part = f" of snapshot {value['snapshot']}{part if files else ''}"
        return SourceStart(name, _title(name, job, sources), f"with all rows{part}")
    return SourceStart(name, _title(name, job, sources), f"after snapshot {value['snapshot']}{part}")
