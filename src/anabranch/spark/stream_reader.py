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
from anabranch.options import (
    CONSUMER_ID,
    SCAN_FILTER,
    SCAN_MODE,
    SCAN_ON_OVERWRITE,
    SCAN_WATERMARK_COLUMN,
)
from anabranch.spark.aligned import LiveAlignment, alignment_of
from anabranch.spark.bounded import End
from anabranch.spark.options import MOMENT_KEYS
from anabranch.spark.row_reader import RowReader, partitions_of, stream_rows
from anabranch.spec.support import check_readable
from anabranch.streaming.consumers import FollowingConsumer
from anabranch.streaming.delivery import CHANGE_COLUMN
from anabranch.streaming.feed import UNLIMITED, Feed, Limits
from anabranch.streaming.offsets import Offset, Position, check_same_history
from anabranch.streaming.pace import Pace, limits_of
from anabranch.streaming.scan_modes import first_position, scan_mode
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
    """Follows one branch of a table, with what every supported version of Spark asks for."""

    def __init__(
        self,
        feed: Feed,
        rows: RowReader,
        options: Mapping[str, str],
        *,
        alignment: LiveAlignment | None,
        notices: Path | None,
    ) -> None:
        """Raises `OptionError`, `InvalidNameError`. Spark makes readers also to read only: nothing happens here."""
        scan_mode(options)
        name = CONSUMER_ID.of(options)
        self._feed = feed
        self._rows = rows
        self._options = options
        self._alignment = alignment
        self._end = End(notices)
        self._consumer = None if name is None else FollowingConsumer(feed.context, name, options)
        self._begin: Offset | None = None
        self._reached: Offset | None = None
        """The newest offset that Spark has shown to know."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._begin is None:
            consumer = self._consumer
            begin = (
                first_position(self._feed.context, self._options) if consumer is None else consumer.begin()
            )
            self._begin = self._offset(begin)
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
            return self._offset(Position.after(head)).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = self._known(start), self._known(end)
        self._reached = last
        begin = first.position
        if first.origin is None and last.origin is not None:
            begin = last.origin  # see Offset.origin: the start was asked for anew, the end knows better
        self._is_committed(begin)
        return partitions_of(self._feed.splits(begin, last.position))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._is_committed(self._known(end).position)

    def stop(self) -> None:
        if self._alignment is not None:
            self._alignment.leave()

    def _next(self, start: Offset, limits: Limits, until: int | None = None) -> dict[str, Any]:
        position = self._advance(start.position, limits, until)
        found = replace(start, ended=0)
        if position != start.position:
            found = self._offset(position, start.origin or start.position)
        if self._feed.is_ended(position):
            if self._alignment is not None:
                self._alignment.leave()
            found = self._end.mark(replace(found, origin=start.origin or start.position), start)
        return found.to_dict()

    def _advance(self, start: Position, limits: Limits, until: int | None) -> Position:
        if self._alignment is None:
            return self._feed.advance(start, limits, until=until)
        last = self._alignment.until(start)
        reached = self._feed.advance(start, limits, until=last)
        return start if last is None else reached  # what has just been committed comes next time

    def _is_committed(self, position: Position) -> None:
        """Spark has done with all up to there: it says so in `commit`, and with the start of what it asks for."""
        if self._consumer is not None:
            self._consumer.reached(position)

    def _known(self, value: dict[str, Any]) -> Offset:
        """An offset from Spark, checked to be one of this branch."""
        offset = Offset.from_dict(value)
        context = self._feed.context
        check_same_history(
            offset, table_uuid=context.table_uuid, branch_uuid=context.branch_uuid, name=context.title
        )
        return offset

    def _offset(self, position: Position, origin: Position | None = None) -> Offset:
        context = self._feed.context
        return Offset(context.table_uuid, context.branch_uuid, context.title, position, origin)


if HAS_READ_LIMITS:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """Takes as much in a batch as the options ``read.stream.*`` and the trigger allow."""

        _until: int | None = None
        """Last snapshot of a query that takes what is available now, and ends."""

        def __init__(
            self,
            feed: Feed,
            rows: RowReader,
            options: Mapping[str, str],
            *,
            alignment: LiveAlignment | None,
            notices: Path | None,
        ) -> None:
            super().__init__(feed, rows, options, alignment=alignment, notices=notices)
            self._limits = limits_of(options)
            self._pace = Pace.of(feed, options)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            known = self._known(start)
            self._is_committed(known.position)
            if isinstance(limit, ReadAllAvailable):
                return self._next(known, UNLIMITED, self._until)
            if self._pace is not None and self._until is None and not self._pace.is_due(known.position):
                return start
            found = self._next(known, self._limits, self._until)
            if self._pace is not None and found != start:
                self._pace.went()
            return found

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # Spark asks for one limit. It comes back to `latestOffset`, where all of them are applied.
            limits = self._limits
            if limits.files is not None:
                return ReadMaxFiles(limits.files)
            if limits.bytes is not None:
                return ReadMaxBytes(limits.bytes)
            if limits.rows is not None:
                return ReadMaxRows(limits.rows)
            return ReadAllAvailable() if self._pace is None else ReadMinRows(self._pace.rows)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            if self._alignment is not None:
                _LOG.warning(
                    "scan.watermark.alignment.* have no effect on a query that takes what is available now, and ends: "
                    "it would end where it has to wait"
                )
                self._alignment = None
            head = self._feed.context.snapshots.head()
            self._until = 0 if head is None else head.id

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            head = self._feed.context.snapshots.head()
            return None if head is None else self._offset(Position.after(head)).to_dict()


def stream_reader(
    table: Table, target: pa.Schema, options: Mapping[str, str], *, notices: Path | None = None
) -> StreamReader:
    """A reader of the columns of `target`, as able as the running version of Spark allows.

    Args:
        table: what to follow, with its options.
        target: the columns, in the types that Spark takes.
        options: those of this read; they lie over the table's.
        notices: where the session's process waits for word of streams that are at their end.

    Raises `PredicateError`, `OptionError`, `InvalidNameError`, `UnsupportedFeatureError`.
    """
    context, schema = table.context, table.schema
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
    parts = feed, rows, together
    alignment = alignment_of(table, options)
    if HAS_READ_LIMITS:
        return LimitedStreamReader(*parts, alignment=alignment, notices=notices)
    if limits_of(together) != UNLIMITED or Pace.of(feed, together) is not None:
        _LOG.warning(
            "read.stream.* limits have no effect: they need Spark 4.2, this is %s", pyspark.__version__
        )
    return StreamReader(*parts, alignment=alignment, notices=notices)


def _together(stored: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Options of a table and of a read of it. A read that says where it begins says all of that itself."""
    starts = {SCAN_MODE.key, *MOMENT_KEYS}
    if not starts.isdisjoint(given):
        stored = {key: value for key, value in stored.items() if key not in starts}
    return {**stored, **given}
