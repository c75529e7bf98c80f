"""Where the sources of a job begin, so that they go on at recorded positions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.jobs.job import Job
from anabranch.jobs.positions import KnownPositions, RecordedPosition, content_of, known_positions
from anabranch.jobs.source import FILES_READ, STARTING_OFFSETS, Source
from anabranch.jobs.state.held import files_unknown, former_of
from anabranch.jobs.state.point import Point
from anabranch.lineage.model import entry_or_none
from anabranch.options import SCAN_START_OFFSET
from anabranch.table import Table

if TYPE_CHECKING:
    from anabranch.jobs.checkpoint import Places
    from anabranch.lake import Lake


_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://([^/]*))?")
_GLOB: Final = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class Starts:
    """Positions where the sources of a job begin."""

    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: options that replace those for its start."""
    notices: tuple[str, ...] = ()
    """Notes for people."""
    point: Point | None = None
    """The batch after which the sources begin there, which determines the state to use."""


def starts_at(known: KnownPositions, sources: Mapping[str, Source], tables: Mapping[str, str]) -> Starts:
    """Return options with which the sources of a job begin at recorded positions.

    Args:
        known: the positions.
        sources: those of the job, by name.
        tables: identity of the table of each source that is one, by the name of the source.

    Raises `InvalidInputError`: the owner of a position is uncertain, or a source cannot begin at one.
    """
    of_files = [name for name, source in sources.items() if source.kind == "files"]
    if len(of_files) > 1 and any(one.kind == "files" for one in known.positions):
        raise InvalidInputError(
            f"which of the sources {', '.join(of_files)} had read which files cannot be told: Spark only numbers them",
            hint="write what arrives in all folders but one into tables first.",
        )
    options: dict[str, dict[str, str]] = {}
    missing: list[str] = []
    taken: set[RecordedPosition] = set()
    for name, source in sources.items():
        if source.kind == "static":
            continue
        matching = [one for one in known.positions if _is_of(one, source, tables.get(name))]
        if len(matching) > 1:
            raise InvalidInputError(
                f"source '{name}' ({source}) was read twice, up to different positions: {_listed(matching)}",
                hint="it is not certain which one is meant: begin without --from-tag, with positions in the options "
                "of the sources.",
            )
        if not matching:
            missing.append(name)
            continue
        taken.add(matching[0])
        options[name] = _options(matching[0])
    looked_up = {tables.get(name) for name, source in sources.items() if source.kind == "static"}
    left = [
        one
        for one in known.positions
        if one not in taken and not (one.kind == "table" and one.identity in looked_up)
    ]
    for name in missing:
        _check_is_new(name, sources[name], left)
        if not known.is_complete:
            raise InvalidInputError(
                f"it is not known how far source '{name}' ({sources[name]}) was read: the commits that would tell have "
                "expired",
                hint="choose a later tag, or begin without --from-tag, with positions in the options of the sources.",
            )
    notices = [f"source '{name}' was not read by then: it begins as it is declared" for name in missing]
    notices += [f"what was read of {one} is not a source of the job any more" for one in left]
    return Starts(options, tuple(notices), known.point)


def _is_of(recorded: RecordedPosition, source: Source, table_uuid: str | None) -> bool:
    match recorded.kind, source.kind:
        case "table", "table":
            return recorded.identity == table_uuid
        case "kafka", "kafka":
            return _reads_topics(source, recorded)
        case "files", "files":
            return _reads_folder(source, recorded)
        case _:
            return False


def _reads_topics(source: Source, recorded: RecordedPosition) -> bool:
    options = {key.lower(): value for key, value in source.options.items()}
    position: Mapping[str, Mapping[str, int]] = json.loads(recorded.position)
    if "subscribepattern" in options:
        return all(re.fullmatch(options["subscribepattern"], topic) for topic in position)
    if "assign" in options:
        wanted = json.loads(options["assign"])
        return {t: {str(n) for n in numbers} for t, numbers in wanted.items()} == {
            t: {n for n in partitions if n.isdigit()} for t, partitions in position.items()
        }
    return set(position) <= {topic.strip() for topic in options.get("subscribe", "").split(",")}


def _reads_folder(source: Source, recorded: RecordedPosition) -> bool:
    """Whether the files that were read first lie in a source's folder; where that is not known they may."""
    store, folder = _store_and_path(recorded.name)
    wanted_store, wanted = _store_and_path(source.name)
    pattern = _GLOB.search(wanted)
    plain = wanted if pattern is None else wanted[: pattern.start()].rpartition("/")[0]
    whole = os.path.abspath(plain).rstrip("/")  # noqa: PTH100 - as Spark, which follows no links
    is_inside = f"{folder}/".startswith(f"{whole}/") and (not wanted_store or store == wanted_store)
    return not folder.startswith("/") or is_inside


def _store_and_path(place: str) -> tuple[str, str]:
    """Split a path or URL as Spark and lineage write it, in which nothing is encoded: the host is that of a store."""
    match = _URL.match(place)
    return ("", place) if match is None else (match[1] or "", place[match.end() :])


def _options(recorded: RecordedPosition) -> dict[str, str]:
    key = {"table": SCAN_START_OFFSET.key, "files": FILES_READ}.get(recorded.kind, STARTING_OFFSETS)
    return {key: recorded.position}


def reads_files_on(starts: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a source of files is to go on after those that a former query had read."""
    return any(FILES_READ in options for options in starts.values())


def _check_is_new(name: str, source: Source, left: Sequence[RecordedPosition]) -> None:
    """Raise `InvalidInputError` if a recorded position may belong to this source after all."""
    kinds = {"files": ("files", "unknown"), "function": ("files", "unknown", "kafka", "table")}
    similar = [one for one in left if one.kind in kinds.get(source.kind, (source.kind,))]
    if not similar:
        return
    if source.kind == "function":
        raise InvalidInputError(
            f"source '{name}' ({source}) cannot begin at a recorded position: what a function reads has no option for it",
            hint="declare it as anabranch.stream, topic or files; or write what arrives into a table first.",
        )
    raise InvalidInputError(
        f"no recorded position is certain to be that of source '{name}' ({source}); found were {_listed(similar)}",
        hint="name the source as it was, or begin without --from-tag.",
    )


def _listed(found: Iterable[RecordedPosition]) -> str:
    return "; ".join(f"{one} at {one.position}" for one in found)


# Resumes a job whose checkpoint is missing: after its last commit, which records how far it had read.
#
# Without this a job that lost its checkpoint would read its sources from the beginning, and write every row again.


def resumed(
    job: Job, lake: Lake, sink: Table, places: Places, place: str, *, since_fork: bool
) -> Starts | None:
    """Return where a job continues after its last commit to a table; None if it has made none, or its work was emptied.

    Args:
        sink: the branch that it writes to.
        places: where checkpoints are, beside those of the warehouse.
        place: where its checkpoint would be.
        since_fork: count only commits made on this branch, not those it begins with.

    Raises `InvalidInputError`: it has written to the table, but it is not certain how far it had read its sources.
    """
    head = sink.snapshot
    last = None if head is None else _last_commit(job.name, sink, head, since_fork=since_fork)
    if head is None or last is None:
        return None
    tables = {
        name: lake.table(source.name).table_uuid for name, source in job.sources.items() if source.is_table
    }
    try:
        known = known_positions(sink.context, head, job.name, lambda: sink.lineage.positions(head.id))
        starts = starts_at(known, job.sources, tables)
        if reads_files_on(starts.options):
            _check_files_known(lake, places, job, known.point)
    except AnabranchError as error:
        raise InvalidInputError(
            f"job '{job.name}' has written to '{sink.name}' before, up to snapshot {last}, but there is no checkpoint at "
            f"{place}, and it cannot go on after that commit: {error.message}",
            hint=lost_hint(job.name),
        ) from error
    notice = f"there is no checkpoint at {place}: the job goes on after its last commit, snapshot {last}"
    return replace(starts, notices=(*starts.notices, notice))


def lost_hint(job: str) -> str:
    """Return what to do about a job that cannot go on without the checkpoint that it had."""
    return (
        "restore the checkpoint, or name it with --checkpoint. To read the sources as they are declared all the "
        f"same, so that rows come a second time: --start-anew {job}."
    )


def _check_files_known(lake: Lake, places: Places, job: Job, point: Point | None) -> None:
    """Raise `InvalidInputError` if it cannot be told which files a job had read: its log, or a copy, may be older."""
    if point is None or former_of(lake.url, lake.storage_options, places, job, point) is None:
        raise InvalidInputError("which files it had read was in the checkpoint alone")
    unknown = files_unknown(lake.url, lake.storage_options, places, job, point)
    if unknown is not None:
        raise InvalidInputError(unknown)


def _last_commit(job: str, sink: Table, head: Snapshot, *, since_fork: bool) -> int | None:
    """Return the newest snapshot that the job made; None if it made none, or the table was emptied since."""
    fork = sink.context.fork
    first = fork.snapshot.id + 1 if since_fork and fork is not None else 1
    oldest = head.id + 1
    for snapshot in takewhile(lambda one: one.id >= first, content_of(sink.context, head)):
        entry = entry_or_none(snapshot)
        if entry is not None and entry.job == job and not entry.is_of_no_job:
            return snapshot.id
        if snapshot.commit_kind is CommitKind.OVERWRITE and snapshot.total_record_count == 0:
            return None
        oldest = snapshot.id
    if oldest <= first or since_fork:
        return None
    # Its commits may have expired: lineage remembers them.
    known = [one for one in sink.lineage.positions(head.id) if one.job == job]
    return oldest - 1 if known else None
