"""Streaming reads of a table through the data source.

The reader keeps nothing that a restart would need: the offsets of Spark's checkpoint say everything. On
restart Spark repeats the last batch with a new object, by its two offsets alone.

Spark 4.2 and later tell the source where a batch begins and how much it may take. Spark 4.1 does not: there
the source remembers where it is from what Spark asked before, and a batch always takes everything. Limits of our
own would not do: after a restart Spark 4.1 asks for the newest offset before it says where the query is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from anabranch.errors import NotFoundError, OptionError
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.format.schema.support import check_readable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.main_branch import begun_with
from anabranch.options import (
    CONSUMER_ID,
    SCAN_FILTER,
    SCAN_MODE,
    SCAN_ON_OVERWRITE,
    SCAN_START_OFFSET,
    SCAN_WATERMARK_COLUMN,
)
from anabranch.spark.context.options import MOMENT_KEYS
from anabranch.spark.rows.row_reader import RowReader, partitions_of, spread, stream_rows
from anabranch.spark.streams.alignment import LiveAlignment, alignment_of
from anabranch.spark.streams.bounded import End
from anabranch.streaming.consumers import FollowingConsumer
from anabranch.streaming.course import Course, Place
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import UNLIMITED, Limits
from anabranch.streaming.offsets import CHANGE_COLUMN, FeedSplit, Offset, Position, check_same_history
from anabranch.streaming.pace import Pace, limits_of
from anabranch.streaming.scan_modes import first_position, scan_mode
from anabranch.streaming.start_offset import start_offset
from anabranch.table import Table

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    HAS_READ_LIMITS = False
else:
    HAS_READ_LIMITS = True

_LOG = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader):
    """Streaming reader of one branch, with the methods that every supported version of Spark calls."""

    def __init__(
        self,
        feed: Feed,
        rows: RowReader,
        options: Mapping[str, str],
        *,
        alignment: LiveAlignment | None,
        notices: Path | None,
    ) -> None:
        """Raise `OptionError`, `InvalidNameError`. Has no side effects: Spark makes readers also just to read."""
        scan_mode(options)
        self._start = start_offset(options)
        name = CONSUMER_ID.of(options)
        self._course = Course(feed, options)
        self._feed = feed
        self._rows = rows
        self._options = options
        self._alignment = alignment
        self._limits = limits_of(options)
        self._pace = Pace.of(feed, options)
        self._end = End(notices)
        self._consumer = None if name is None else FollowingConsumer(feed.context, name, options)
        self._begin: Offset | None = None
        self._reached: Offset | None = None
        """Newest offset that Spark is known to have."""
        self._until: dict[str, int] | None = None
        """Per branch, the last snapshot of a query with the available-now trigger."""

    slots: int | None = None
    """Number of tasks that the session runs in parallel, if known."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._begin is None:
            self._begin = self._offset(self._first_place())
        return self._begin.to_dict()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        if self._reached is not None:
            return self._next(self._reached, UNLIMITED)
        try:
            return self._next(self._known(self.initialOffset()), UNLIMITED)
        except NotFoundError:
            # A restarted query need not find what it began with, but that it is one Spark 4.1 does not say. It asks
            # a new one for the initial offset next, and a restarted one for what is between its own and this. Where
            # a bounded stream ends is only known from where it is.
            head = self._feed.context.snapshots.head()
            if head is None or self._feed.bounded_watermark is not None:
                raise
            return self._offset(Place(self._feed, Position.after(head))).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = self.splits(start, end)
        is_ordered = self._feed.schema.bucket > 0
        return partitions_of(splits if is_ordered or self.slots is None else spread(splits, self.slots))

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[FeedSplit]:
        """Return the splits between two offsets."""
        first, last = self._known(start), self._known(end)
        self._reached = last
        begin, reached = self._place(first), self._place(last)
        if first.origin is None and last.origin is not None:
            # See Offset.origin: Spark asked for the start again, so the one in the end offset is right.
            begin = Place(self._feed_of(last.origin_branch or last.branch_uuid), last.origin)
        self._is_committed(begin)
        return self._course.splits(begin, reached)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._is_committed(self._place(self._known(end)))

    def stop(self) -> None:
        if self._alignment is not None:
            self._alignment.leave()

    # Version-independent interface that Spark's sources with batch limits need.

    @property
    def feed(self) -> Feed:
        """Feed of the branch that the stream has reached."""
        return self._feed if self._reached is None else self._feed_of(self._reached.branch_uuid)

    @property
    def limits(self) -> Limits:
        """Limits of one batch."""
        return self._limits

    @property
    def pace(self) -> Pace | None:
        """Pace by which a batch waits for more rows; None if it does not."""
        return self._pace

    @property
    def gives_whole_files(self) -> bool:
        """See `FeedReader.gives_whole_files`."""
        return self._rows.gives_whole_files

    @property
    def adds_watermark(self) -> bool:
        """See `RowReader.adds_watermark`."""
        return self._rows.adds_watermark

    def step(self, start: dict[str, Any], *, everything: bool = False) -> dict[str, Any]:
        """Return the end offset of the batch from `start`: `start` if there is nothing new.

        Args:
            everything: whether the batch takes all there is, whatever the limits say.
        """
        known = self._known(start)
        place = self._place(known)
        self._is_committed(place)
        if everything:
            return self._next(known, UNLIMITED)
        if self._pace is not None and self._until is None:
            self._pace.follow(place.feed)
            if not self._pace.is_due(place.position):
                return start
        found = self._next(known, self._limits)
        if self._pace is not None and found != start:
            self._pace.went()
        return found

    def take_what_is_there(self) -> None:
        """Fix the current end as the end of the query."""
        if self._alignment is not None:
            _LOG.warning(
                "scan.watermark.alignment.* have no effect on a query that takes what is available now, and ends: "
                "it would end where it has to wait"
            )
            self._alignment = None
        head = self._feed.context.snapshots.head()
        self._until = {self._feed.context.branch_uuid: 0 if head is None else head.id}

    def newest(self) -> dict[str, Any] | None:
        """Return the offset after everything available; None as long as there is nothing."""
        head = self.feed.context.snapshots.head()
        return None if head is None else self._offset(Place(self.feed, Position.after(head))).to_dict()

    def _first_place(self) -> Place:
        if self._start is not None:
            return self._place(self._known(self._start.to_dict()))
        if self._consumer is None:
            return Place(self._feed, first_position(self._feed.context, self._options))
        context, position = self._consumer.begin()
        return Place(self._feed_of(context.branch_uuid), position)

    def _next(self, start: Offset, limits: Limits) -> dict[str, Any]:
        begin = self._place(start)
        place = self._course.ahead(begin)
        if place is None:
            place = Place(begin.feed, self._advance(begin, limits))
            if place.position == begin.position and self._may_cross(begin.feed):
                place = self._course.next(begin) or place
        origin = start.origin or begin.position
        of_branch = start.origin_branch if start.origin is not None else None
        if of_branch is None and place.feed is not begin.feed:
            of_branch = start.branch_uuid
        found = replace(start, ended=0)
        if place.position != begin.position or place.feed is not begin.feed:
            found = replace(self._offset(place), origin=origin, origin_branch=of_branch)
        if place.feed.is_ended(place.position):
            if self._alignment is not None:
                self._alignment.leave()
            found = self._end.mark(replace(found, origin=origin, origin_branch=of_branch), start)
        return found.to_dict()

    def _advance(self, start: Place, limits: Limits) -> Position:
        if self._alignment is None:
            return start.feed.advance(start.position, limits, until=self._last_wanted(start.feed))
        last = self._alignment.until(start.position)
        reached = start.feed.advance(start.position, limits, until=last)
        return start.position if last is None else reached  # what has just been committed comes next time

    def _last_wanted(self, feed: Feed) -> int | None:
        """Return the last snapshot of a branch that the query takes; None if unlimited or ended otherwise."""
        return None if self._until is None else self._until.get(feed.context.branch_uuid)

    def _may_cross(self, feed: Feed) -> bool:
        """Whether the stream may go on to a newer main: not beyond the one at the available-now trigger."""
        return self._until is None or feed.context.branch_uuid not in self._until

    def _is_committed(self, place: Place) -> None:
        """Note that Spark has processed everything up to there, by `commit` or by the start of its next request."""
        if self._consumer is not None:
            self._consumer.reached(place.feed.context, place.position)

    def _known(self, value: dict[str, Any]) -> Offset:
        """Parse an offset from Spark, checked to be of this branch, or of a former main of the same table."""
        offset = Offset.from_dict(value)
        context = self._feed.context
        if offset.table_uuid != context.table_uuid or self._course.feed_of(offset.branch_uuid) is None:
            check_same_history(
                offset, table_uuid=context.table_uuid, branch_uuid=context.branch_uuid, name=context.title
            )
        return offset

    def _feed_of(self, branch_uuid: str) -> Feed:
        return self._course.feed_of(branch_uuid) or self._feed

    def _place(self, offset: Offset) -> Place:
        return Place(self._feed_of(offset.branch_uuid), offset.position)

    def _offset(self, place: Place) -> Offset:
        context = place.feed.context
        begun = begun_with(context)
        return Offset(context.table_uuid, context.branch_uuid, context.title, place.position, begun=begun)


if HAS_READ_LIMITS:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """Streaming reader with batches limited by the options ``read.stream.*`` and the trigger."""

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            return self.step(start, everything=isinstance(limit, ReadAllAvailable))

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # Spark asks for one limit. It comes back to `latestOffset`, where all of them are applied.
            limits = self.limits
            if limits.files is not None:
                return ReadMaxFiles(limits.files)
            if limits.bytes is not None:
                return ReadMaxBytes(limits.bytes)
            if limits.rows is not None:
                return ReadMaxRows(limits.rows)
            return ReadAllAvailable() if self.pace is None else ReadMinRows(self.pace.rows)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.take_what_is_there()

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            return self.newest()


def stream_reader(
    table: Table,
    target: pa.Schema,
    options: Mapping[str, str],
    *,
    notices: Path | None = None,
    schema: TableSchema | None = None,
) -> StreamReader:
    """Return the most capable reader of the columns of `target` that the running Spark version supports.

    Args:
        table: what to follow, with its options.
        target: the columns, in the types that Spark takes.
        options: those of this read; they lie over the table's.
        notices: where the session's process waits for word of streams that are at their end.
        schema: the one that the stream began with; today's if None.

    Raises `PredicateError`, `OptionError`, `InvalidNameError`, `UnsupportedFeatureError`.
    """
    if HAS_READ_LIMITS:
        return follower(table, target, options, notices=notices, schema=schema, kind=LimitedStreamReader)
    found = follower(table, target, options, notices=notices, schema=schema)
    if found.limits != UNLIMITED or found.pace is not None:
        _LOG.warning(
            "read.stream.* limits have no effect: they need Spark 4.2, this is %s", pyspark.__version__
        )
    return found


def follower(
    table: Table,
    target: pa.Schema,
    options: Mapping[str, str],
    *,
    notices: Path | None = None,
    schema: TableSchema | None = None,
    kind: type[StreamReader] = StreamReader,
) -> StreamReader:
    """Return a reader like `stream_reader`, with a version-independent interface: see `StreamReader.step`."""
    context, schema = table.context, schema or table.schema
    check_readable(schema, path=context.layout.schema_path(schema.id))
    together = _together(table.options, options)
    text = SCAN_FILTER.of(together)
    predicate = None if text is None else bind(parse(text), schema.fields)
    feed = Feed.of(context, schema, together, predicate)
    is_asked_for_changes = SCAN_ON_OVERWRITE.of(options) == "changes" and CHANGE_COLUMN in target.names
    if feed.on_overwrite == "changes" and not is_asked_for_changes:
        raise OptionError(
            f"{SCAN_ON_OVERWRITE.key} is 'changes', but the columns of the stream leave out {CHANGE_COLUMN}, which "
            "tells rows that were taken away from those that were added",
            hint=f"set {SCAN_ON_OVERWRITE.key}=changes at the stream itself, not at the table, and give it no schema.",
        )
    rows = stream_rows(feed, target, watermark_column=SCAN_WATERMARK_COLUMN.of(options))
    return kind(feed, rows, together, alignment=alignment_of(table, options), notices=notices)


def _together(stored: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Combine options of a table and of a read; a read that sets any start option replaces all of the table's."""
    starts = {SCAN_MODE.key, SCAN_START_OFFSET.key, *MOMENT_KEYS}
    if SCAN_START_OFFSET.key in given:
        starts.add(CONSUMER_ID.key)  # which would begin where it stands
    if not starts.isdisjoint(given):
        stored = {key: value for key, value in stored.items() if key not in starts}
    return {**stored, **given}
