"""Where the sources of a job begin so that it goes on from what its table's branch begins with, on corrected tables.

The positions that a job recorded are on the mains that there were. Up to the snapshot where the old and the corrected main
of a source parted, both have the same history: so the same position on the corrected one is followed by the corrected rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.job import Job
from anabranch.jobs.positions import recorded_positions, starts_at
from anabranch.kernel.context import TableContext
from anabranch.kernel.replacement.main import main_by_uuid
from anabranch.lineage.model import lineage_of
from anabranch.options import SCAN_START_OFFSET
from anabranch.spec.snapshot import CommitKind, Snapshot
from anabranch.streaming.offsets import BEGINNING, Offset, Position


@dataclass(frozen=True, slots=True)
class Corrected:
    """A table that is read as it is corrected."""

    table: str
    main: TableContext
    """Its main, as it is now."""
    branch: str | None
    """The branch to read, by its name; None for main."""
    fork: int
    """Up to this snapshot its history is that of the old main."""
    branch_uuid: str | None
    """None while the branch is not there yet."""
    emptied: Position | None = None
    """Where a branch that begins empty has been emptied."""


@dataclass(frozen=True, slots=True)
class SourceStart:
    """Where a source of a job begins."""

    source: str
    """Its name in the job."""
    name: str
    """The table, with its branch; the topics, or what else it is."""
    begins: str
    """For people: ``after snapshot 5``, ``with all rows of snapshot 5``, ``as declared``, ``as it is``."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where the sources of a job begin."""

    sources: tuple[SourceStart, ...]
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source."""
    notices: tuple[str, ...] = ()
    problem: str | None = None
    """Why the job cannot go on from there by itself."""


def start_of(
    job: Job,
    main: TableContext,
    moment: Snapshot | None,
    corrected: Mapping[str, Corrected],
    tables: Mapping[str, str],
) -> JobStart:
    """Where a job begins so that it makes what its table has after a moment.

    Args:
        job: the job.
        main: the table that it writes.
        moment: what its branch begins with; None if it begins with nothing.
        corrected: the tables that are corrected, by name.
        tables: identity of the table of each source that is one, by the name of the source.
    """
    declared = JobStart(tuple(_as_declared(name, job, corrected) for name in job.sources))
    if moment is None or not _has_written(main, moment, job.name):
        return declared
    try:
        found = starts_at(recorded_positions(main, moment, job.name), job.sources, tables)
        options = {
            name: _on_corrected(dict(given), job.sources[name].table, corrected)
            for name, given in found.options.items()
        }
    except AnabranchError as error:
        return replace(declared, problem=error.message)
    sources = [
        _begun(name, job, corrected, options[name]) if name in options else _as_declared(name, job, corrected)
        for name in job.sources
    ]
    return JobStart(tuple(sources), options, found.notices)


def _has_written(main: TableContext, moment: Snapshot, job: str) -> bool:
    for snapshot in (moment, *_before(main, moment)):
        try:
            entry = lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
        except AnabranchError:
            continue
        if entry is not None and entry.job == job:
            return True
    return False


def _before(main: TableContext, moment: Snapshot) -> Sequence[Snapshot]:
    found = main.snapshots.find(moment.id)
    return () if found is None else [*main.snapshots.backwards(found)][1:]


def _on_corrected(
    options: dict[str, str], table: str | None, corrected: Mapping[str, Corrected]
) -> dict[str, str]:
    """The same position on the corrected table."""
    one = corrected.get(table or "")
    text = options.get(SCAN_START_OFFSET.key)
    if one is None or text is None:
        return options
    offset = Offset.from_dict(json.loads(text))
    position = _kept(one, offset)
    moved = Offset(offset.table_uuid, one.branch_uuid or offset.branch_uuid, offset.name, position)
    return {**options, SCAN_START_OFFSET.key: json.dumps(moved.to_dict(), separators=(",", ":"))}


def _kept(one: Corrected, offset: Offset) -> Position:
    """The same position in what is kept. Raises `NotFoundError`: something beyond that had been read.

    Commits without rows do not count: who has read these has read nothing.
    """
    position = offset.position
    if position.snapshot <= one.fork:
        return position
    if not position.files and _has_read_nothing(one, offset):
        if one.fork == 0:
            return one.emptied or BEGINNING
        fork = one.main.snapshots.find(one.fork)
        if fork is not None:
            # Who was to begin with all rows of a later snapshot begins with all that is kept.
            return (
                replace(Position.after(fork), files=0, full=True) if position.full else Position.after(fork)
            )
    raise NotFoundError(
        f"it had read '{one.table}' up to snapshot {position.snapshot}, which was taken out: what is kept ends at {one.fork}"
    )


def _has_read_nothing(one: Corrected, offset: Offset) -> bool:
    """Whether no rows are between what is kept and the position."""
    position = offset.position
    if position.full:
        return position.files == 0
    old = main_by_uuid(one.main, offset.branch_uuid)
    last = position.snapshot if position.files is None else position.snapshot - 1
    beyond = [] if old is None else [old.snapshots.find(number) for number in range(one.fork + 1, last + 1)]
    return old is not None and all(snapshot is not None and _brings_nothing(snapshot) for snapshot in beyond)


def _brings_nothing(snapshot: Snapshot) -> bool:
    if snapshot.commit_kind is CommitKind.APPEND:
        return snapshot.delta_record_count == 0
    return snapshot.commit_kind is not CommitKind.OVERWRITE


def _title(name: str, job: Job, corrected: Mapping[str, Corrected]) -> str:
    source = job.sources[name]
    one = corrected.get(source.table or "")
    return source.name if one is None or one.branch is None else f"{one.table}$branch_{one.branch}"


def _as_declared(name: str, job: Job, corrected: Mapping[str, Corrected]) -> SourceStart:
    kind = "as it is" if job.sources[name].kind == "static" else "as declared"
    return SourceStart(name, _title(name, job, corrected), kind)


def _begun(
    name: str, job: Job, corrected: Mapping[str, Corrected], options: Mapping[str, str]
) -> SourceStart:
    text = options.get(SCAN_START_OFFSET.key)
    if text is None:
        return SourceStart(name, _title(name, job, corrected), "at " + ", ".join(options.values()))
    value: Any = json.loads(text)
    files = value.get("files")
    part = "" if files is None else f", {files} files into it"
    if value["snapshot"] == 0:
        return SourceStart(name, _title(name, job, corrected), "from the beginning")
    if value.get("full"):
        part = f" of snapshot {value['snapshot']}{part if files else ''}"
        return SourceStart(name, _title(name, job, corrected), f"with all rows{part}")
    return SourceStart(name, _title(name, job, corrected), f"after snapshot {value['snapshot']}{part}")
