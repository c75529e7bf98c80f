"""From where a job is to begin so that its rows follow exactly on those that a snapshot of its sink holds.

The commits of a job say how far it had read each of its sources (`anabranch.lineage.model`). A batch names the sources
that it read something of, so the positions at a snapshot are gathered backwards, from commits of the same query. A
source that is first named after the snapshot was not read at all by then: where its first batch began is its position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.jobs.source import Source
from anabranch.jobs.state.point import Point
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.past import rolled_back_to
from anabranch.lineage.model import Input, LineageEntry, TableInput, lineage_of
from anabranch.lineage.trace import Positions, SourcePosition
from anabranch.streaming.offsets import Offset


@dataclass(frozen=True, slots=True)
class Recorded:
    """How far a job had read one of its sources."""

    kind: str
    """``table``, ``kafka``, ``files`` or ``unknown``."""
    name: str
    """The table, the topics, or what else is known."""
    identity: Hashable
    """Of a table, its own; of Kafka, the topics."""
    position: Any
    """As JSON: the offset of a table as streams have it, or what the source itself says."""

    def __str__(self) -> str:
        return f"{'table' if self.kind == 'table' else self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Known:
    """How far a job had read its sources, as far as that is known."""

    positions: tuple[Recorded, ...]
    is_complete: bool
    """Whether there is no other source: the commits that would tell have not expired."""
    point: Point | None = None
    """The batch that these positions are those after, if one of a stream made them."""

    def with_more(self, others: Iterable[Recorded]) -> Known:
        """With positions of sources that are not among these, from who knows all of them."""
        known = {(one.kind, one.identity) for one in self.positions}
        more = [one for one in others if (one.kind, one.identity) not in known]
        return replace(self, positions=(*self.positions, *more), is_complete=True)


@dataclass(frozen=True, slots=True)
class Starts:
    """Where the sources of a job begin."""

    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: options that take the place of those that say where it begins."""
    notices: tuple[str, ...] = ()
    """What a person should know."""
    point: Point | None = None
    """The batch after which the sources begin there, which tells the state that belongs to it."""


def recorded_positions(main: TableContext, moment: Snapshot, job: str) -> Known:
    """How far a job had read its sources when it had made what a snapshot of a table holds.

    Args:
        main: the branch that has the snapshot in its history.
        moment: the snapshot.
        job: its name.

    Raises:
        NotFoundError: no commit of the job is known up to there.
        CorruptTableError: a commit of it says that its sources could not be found out.
    """
    query: str | None = None
    found: dict[tuple[str, str], Input] = {}
    newest: Snapshot | None = None
    point: Point | None = None
    is_complete = False
    others: dict[str, None] = {}
    for snapshot in content_of(main, moment):
        is_complete = is_complete or snapshot.id == 1
        entry = _entry(snapshot)
        if entry is None or entry.is_of_no_job:
            continue
        if entry.job != job:
            others[entry.job] = None
            continue
        if newest is None:
            newest, query, point = snapshot, entry.engine.query, Point.of(entry)
        elif entry.engine.query != query:
            is_complete = True
            break
        is_complete = is_complete or entry.engine.batch == 0
        _check_complete(entry, snapshot, main)
        for read in _streams(entry):
            found.setdefault(_slot(read), read)
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
    return Known(tuple(dict.fromkeys(_recorded(*known) for known in at.values())), is_complete, point)


def known_positions(
    main: TableContext,
    moment: Snapshot,
    job: str,
    indexed: Callable[[], Iterable[Positions]],
    *,
    is_all: bool = True,
) -> Known:
    """How far a job had read its sources by a moment: as its commits say, and lineage where those have expired.

    Args:
        main: the branch that has the snapshot in its history.
        moment: the snapshot.
        job: its name.
        indexed: asks lineage for the positions at the snapshot.
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
        return Known(tuple(indexed_positions(positions, job)), is_all, Point.of(positions[0].entry))
    if known.is_complete:
        return known
    return replace(known.with_more(indexed_positions(indexed(), job)), is_complete=is_all)


def indexed_positions(positions: Iterable[Positions], job: str) -> list[Recorded]:
    """The positions of a job among those that the index of lineage knows.

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
        Recorded(one.kind, one.name, _identity(one), _json(one.position))
        for found in positions
        if found.job == job
        for one in found.sources
    ]


def _identity(one: SourcePosition) -> Hashable:
    if one.kind == "table":
        return Offset.from_dict(one.position).table_uuid
    return frozenset(one.position) if one.kind == "kafka" else one.source


def starts_at(known: Known, sources: Mapping[str, Source], tables: Mapping[str, str]) -> Starts:
    """Options with which the sources of a job begin at recorded positions.

    Args:
        known: the positions.
        sources: those of the job, by name.
        tables: identity of the table of each source that is one, by the name of the source.

    Raises `InvalidInputError`: it is not certain which position is whose, or a source cannot begin at one.
    """
    options: dict[str, dict[str, str]] = {}
    missing: list[str] = []
    taken: set[Recorded] = set()
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


def content_of(main: TableContext, moment: Snapshot) -> Iterator[Snapshot]:
    """The snapshots that what the moment holds was made by, newest first, as far as they are retained."""
    snapshot: Snapshot | None = moment
    while snapshot is not None:
        target = rolled_back_to(snapshot)
        if target is None:
            yield snapshot
        snapshot = (
            main.snapshots.find(snapshot.id - 1 if target is None else target.id) if snapshot.id > 1 else None
        )


def _read_later(main: TableContext, moment: Snapshot, job: str, query: str | None) -> Iterator[Input]:
    """What the query read after the moment, oldest first."""
    number = moment.id + 1
    while (snapshot := main.snapshots.find(number)) is not None:
        entry = _entry(snapshot)
        if entry is not None and entry.job == job and entry.engine.query == query:
            yield from _streams(entry)
        number += 1


def _begin_of(read: Input) -> Any:
    """Where a batch began to read a source; None if that is not known.

    A topic enters a query by a batch without records, which ends where it begins; so does a partition.
    """
    if isinstance(read, TableInput) or read.kind != "kafka":
        return read.start
    return _with_new_partitions(read.start, read.end)


def _with_new_partitions(offsets: Any, others: Any) -> Any:
    """Offsets by topic and partition, with those of partitions that are only among the others."""
    topics = {**(others or {}), **(offsets or {})}
    return {topic: {**(others or {}).get(topic, {}), **(offsets or {}).get(topic, {})} for topic in topics}


def _entry(snapshot: Snapshot) -> LineageEntry | None:
    try:
        return lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
    except CorruptTableError:
        return None


def _streams(entry: LineageEntry) -> list[Input]:
    """What was read as a stream; what was looked up in has no position."""
    return [read for read in entry.consumed if not (isinstance(read, TableInput) and read.is_state)]


def _check_complete(entry: LineageEntry, snapshot: Snapshot, main: TableContext) -> None:
    if not entry.knows_positions:
        raise CorruptTableError(
            f"snapshot {snapshot.id} of '{main.title}' does not say how far job '{entry.job}' had read: "
            f"{entry.problems[0]}",
            hint="choose another tag, or begin without --from-tag, with positions in the options of the sources.",
        )


def _slot(read: Input) -> tuple[str, str]:
    """What tells a source from the others of its query."""
    return ("table", read.table_uuid) if isinstance(read, TableInput) else (read.kind, read.source)


def _recorded(read: Input, at: Any) -> Recorded:
    if isinstance(read, TableInput):
        offset = Offset(read.table_uuid, read.branch_uuid, read.name, at)
        return Recorded("table", read.name, read.table_uuid, _json(offset.to_dict()))
    if read.kind == "kafka" and isinstance(at, dict):
        return Recorded("kafka", ", ".join(sorted(at)), frozenset(at), _json(at))
    return Recorded(read.kind, read.name or read.source, read.source, _json(at))


def _is_of(recorded: Recorded, source: Source, table_uuid: str | None) -> bool:
    match recorded.kind, source.kind:
        case "table", "table":
            return recorded.identity == table_uuid
        case "kafka", "kafka":
            return _reads_topics(source, recorded)
        case _:
            return False


def _reads_topics(source: Source, recorded: Recorded) -> bool:
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


def _options(recorded: Recorded) -> dict[str, str]:
    key = "scan.start-offset" if recorded.kind == "table" else "startingOffsets"
    return {key: recorded.position}


def _check_is_new(name: str, source: Source, left: Sequence[Recorded]) -> None:
    """Raise `InvalidInputError` if what was recorded may be the position of this source after all."""
    kinds = {"files": ("files", "unknown"), "function": ("files", "unknown", "kafka", "table")}
    similar = [one for one in left if one.kind in kinds.get(source.kind, (source.kind,))]
    if not similar:
        return
    if source.kind in kinds:
        raise InvalidInputError(
            f"source '{name}' ({source}) cannot begin at a recorded position: Spark's {source.kind} have no option for it",
            hint="only tables and topics can: write what arrives into a table first.",
        )
    raise InvalidInputError(
        f"no recorded position is certain to be that of source '{name}' ({source}); found were {_listed(similar)}",
        hint="name the source as it was, or begin without --from-tag.",
    )


def _listed(found: Iterable[Recorded]) -> str:
    return "; ".join(f"{one} at {one.position}" for one in found)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
