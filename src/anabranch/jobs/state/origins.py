"""Where a job's first query began to read its sources: its state may reach back to there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import LocalZonedTimestampType, TimestampType
from anabranch.jobs.source import STARTING_OFFSETS, Source, check_rereadable
from anabranch.jobs.state.carry import Moved
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.model import SourceInput, entry_or_none
from anabranch.lineage.spark_offsets import BatchOffsets
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.feed import Feed
from anabranch.streaming.late_rows import on_time
from anabranch.streaming.offsets import BEGINNING, Offset, Position, is_offset

if TYPE_CHECKING:
    from anabranch.jobs.prepare import Prepared


# How far back the sources of a job have to be read to make its state again: as far as event times reach into it.
#
# What a watermark and the time bounds of the operators have closed is in no state. So no row matters whose event time is
# older than the watermark at the point, less all the bounds together; and the manifests say which files may have others.


@dataclass(frozen=True, slots=True)
class Since:
    """The rows of a source that matter."""

    column: str
    """Its column of event times."""
    line: int
    """Those that are not older than this, in epoch milliseconds."""


def far_enough(
    context: TableContext, options: Mapping[str, str], since: Since, begin: Position, end: Position
) -> Position:
    """Return the latest position after which all rows come that matter.

    Args:
        since: which rows matter.
        begin: where reading is known to be early enough; returned where nothing better is known.
        end: where it ends.
    """
    schema = context.schemas.latest()
    field = None if schema is None else next((f for f in schema.fields if f.name == since.column), None)
    if schema is None or field is None or not isinstance(field.type, LocalZonedTimestampType | TimestampType):
        return begin
    last = begin
    try:
        feed = replace(_feed(context, schema, options), predicate=on_time(field, since.line))
        for snapshot, files in feed.steps(begin, end):
            if files or snapshot.id >= end.snapshot:
                break
            last = replace(Position.after(snapshot), watermark=None)
    except AnabranchError:
        return begin
    return last


def _feed(context: TableContext, schema: TableSchema, options: Mapping[str, str]) -> Feed:
    feed = Feed.of(context, schema, options)
    return replace(feed, late_rows="keep", bounded_watermark=None)


def origins(
    prepared: Prepared,
    read: Mapping[str, TableContext],
    offsets: BatchOffsets | None,
    moved: Moved,
    since: Mapping[str, Since],
) -> dict[str, dict[str, str]]:
    """Return, by source, the option to begin far enough back to make the state again.

    That is where the first query began, as far as its rows still exist; or later, if all rows before are too old to matter.

    Args:
        prepared: the job; its `starts` say where its sources are at the point.
        read: the branch that each table among the sources is read on, by source.
        offsets: an entry of the offset log of the query that made the point, if there is one.
        moved: the same position on the table that is read now.
        since: which rows matter, of the sources of which that is known.

    Raises `NotFoundError`: it is not known where a source began, or its first rows are not there any more.
    """
    found = {}
    for name, options in prepared.starts.items():
        source = prepared.job.sources[name]
        if SCAN_START_OFFSET.key in options:
            end = Offset.from_dict(json.loads(options[SCAN_START_OFFSET.key]))
            origin = _begin_of_table(end, source, offsets, moved)
            position = _begin(read[name], source, origin, end, since.get(name))
            begin = replace(end, position=position, origin=None)
            found[name] = {SCAN_START_OFFSET.key: json.dumps(begin.to_dict(), separators=(",", ":"))}
        else:
            first = _begin_of_topics(prepared, source)
            check_rereadable(source, first)
            found[name] = {STARTING_OFFSETS: first}
    return found


def _begin_of_table(end: Offset, source: Source, offsets: BatchOffsets | None, moved: Moved) -> Position:
    for value in () if offsets is None else offsets.ends.values():
        if value is None or not is_offset(value):
            continue
        known = Offset.from_dict(value)
        if known.table_uuid == end.table_uuid and known.origin is not None:
            begun = replace(
                known,
                position=known.origin,
                branch_uuid=known.origin_branch or known.branch_uuid,
                origin=None,
                origin_branch=None,
            )
            return moved(begun).position
    if source.begins_anywhere:
        raise NotFoundError(f"it is not known where the job began to read {source}")
    return moved(replace(end, position=BEGINNING, origin=None)).position


def _begin(
    context: TableContext, source: Source, origin: Position, end: Offset, since: Since | None
) -> Position:
    if since is None:
        return _readable(context, origin, end)
    try:
        begin = _readable(context, origin, end)
    except NotFoundError:
        left = _all_left(context, origin)
        later = left if left is None else far_enough(context, source.options, since, left, end.position)
        if later is None or later == left:
            raise
        return later
    return far_enough(context, source.options, since, begin, end.position)


def _all_left(context: TableContext, origin: Position) -> Position | None:
    """Return all rows of the oldest snapshot that is left, if no row before it was taken out; else None."""
    oldest = context.snapshots.earliest_id()
    if oldest is None or oldest <= origin.snapshot:
        return None
    snapshot = context.snapshots.get(oldest)
    try:
        _check_all_there(context, snapshot, origin)
    except NotFoundError:
        return None
    return Position(oldest, snapshot.stamp, files=0, full=True)


def _readable(context: TableContext, origin: Position, end: Offset) -> Position:
    """The origin; if its snapshots have expired, all rows of the oldest one that is left and not newer than the end."""
    oldest, at = context.snapshots.earliest_id(), end.position
    if oldest is None or at.snapshot == 0:
        return BEGINNING
    first = origin.snapshot if origin.full else origin.snapshot + 1
    if first >= oldest:
        return origin
    if not origin.full and origin.snapshot > 0:
        raise NotFoundError(f"snapshots {first} to {oldest - 1} of '{context.title}' have expired")
    if at.full or oldest > at.delivered_through:
        raise NotFoundError(
            f"the snapshots of '{context.title}' up to {at.snapshot}, where the job was at the point, have expired"
        )
    first_left = context.snapshots.get(oldest)
    _check_all_there(context, first_left, origin)
    return Position(oldest, first_left.stamp, files=0, full=True)


def _check_all_there(context: TableContext, oldest: Snapshot, origin: Position) -> None:
    """Raise `NotFoundError` if a snapshot may lack rows that the first query read before they were taken out."""
    following, above = oldest.id + 1, origin.snapshot if origin.full else origin.delivered_through
    for snapshot in back_from(context, oldest, above=above):
        if snapshot.id != following - 1:
            break
        following = snapshot.id
        before = (snapshot.total_record_count or 0) - (snapshot.delta_record_count or 0)
        if snapshot.commit_kind is CommitKind.OVERWRITE and before > 0:
            raise NotFoundError(
                f"the first snapshots of '{context.title}' have expired, and snapshot {snapshot.id} took rows out that the "
                "job had read"
            )
    if following > above + 1:
        raise NotFoundError(
            f"the first snapshots of '{context.title}' have expired, and it is not known whether rows were taken out before "
            f"snapshot {following}"
        )


def _begin_of_topics(prepared: Prepared, source: Source) -> str:
    """The offsets at which the first batch of the query began: it has no records, and ends where it begins."""
    point = prepared.point
    assert point is not None, "only a job that begins at a point has state to get"
    log = prepared.table.context.snapshots
    head = log.head()
    commits = [] if head is None else list(log.backwards(head))
    for snapshot in reversed(commits):
        entry = entry_or_none(snapshot)
        if entry is None or entry.engine.query != point.query:
            continue
        for one in entry.inputs:
            if isinstance(one, SourceInput) and one.kind == "kafka" and one.start is None:
                return json.dumps(one.end, separators=(",", ":"))
    given = {key.lower(): value for key, value in source.options.items()}
    if given.get("startingoffsets") == "earliest":
        return "earliest"
    raise NotFoundError(
        f"it is not known where the job began to read {source}: its first commits have expired"
    )
