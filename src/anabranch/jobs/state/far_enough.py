"""How far back the sources of a job have to be read to make its state again: as far as event times reach into it.

What a watermark and the time bounds of the operators have closed is in no state. So no row matters whose event time is
older than the watermark at the point, less all the bounds together; and the manifests say which files may have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import LocalZonedTimestampType, TimestampType
from anabranch.kernel.log.context import TableContext
from anabranch.streaming.feed import Feed
from anabranch.streaming.late_rows import on_time
from anabranch.streaming.offsets import Position


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
        context: the branch that is read.
        options: of the source.
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
