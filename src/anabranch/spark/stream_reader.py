"""Streaming reads of a table through the data source.

The reader keeps nothing that a restart would need: the offsets of Spark's checkpoint say everything. On
restart Spark repeats the last batch with a new object, by its two offsets alone.

Spark 4.2 and later tell the source where a batch begins and how much it may take. Spark 4.1 does not: there
the source remembers where it is from what Spark asked before, and a batch always takes everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from anabranch.errors import OptionError
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.kernel.context import TableContext
from anabranch.options import (
    MAX_BYTES_PER_TRIGGER,
    MAX_FILES_PER_TRIGGER,
    MAX_ROWS_PER_TRIGGER,
    SCAN_FILTER,
    SCAN_MODE,
    SCAN_ON_OVERWRITE,
    SCAN_SNAPSHOT_ID,
)
from anabranch.spark.options import MOMENT_KEYS
from anabranch.spark.row_reader import RowReader, partitions_of
from anabranch.spec.schema import TableSchema
from anabranch.spec.support import check_readable
from anabranch.streaming.feed import UNLIMITED, Feed, Limits
from anabranch.streaming.offsets import Offset, Position, check_same_history
from anabranch.streaming.scan_modes import first_position

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    HAS_READ_LIMITS = False
else:
    HAS_READ_LIMITS = True

_LOG = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader):
    """Follows one branch of a table, with what every supported version of Spark asks for."""

    def __init__(self, rows: RowReader, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._feed = Feed(rows.context, rows.schema, SCAN_ON_OVERWRITE.of(options), rows.predicate)
        self._rows = rows
        self._reached: Offset | None = None
        """The newest offset that Spark has shown to know."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._reached is None:
            self._reached = self._offset(first_position(self._feed.context, self._options))
        return self._reached.to_dict()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        start = self._reached or Offset.from_dict(self.initialOffset())
        return self._next(start, UNLIMITED)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = self._known(start), self._known(end)
        self._reached = last
        begin = first.position
        if first.origin is None and last.origin is not None:
            begin = last.origin  # see Offset.origin: the start was asked for anew, the end knows better
        return partitions_of(self._feed.splits(begin, last.position))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def _next(self, start: Offset, limits: Limits, until: int | None = None) -> dict[str, Any]:
        position = self._feed.advance(start.position, limits, until=until)
        if position == start.position:
            return start.to_dict()
        return self._offset(position, start.origin or start.position).to_dict()

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

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            limits = UNLIMITED if isinstance(limit, ReadAllAvailable) else limits_of(self._options)
            return self._next(self._known(start), limits, self._until)

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # Spark asks for one limit. It comes back to `latestOffset`, where all of them are applied.
            limits = limits_of(self._options)
            if limits.files is not None:
                return ReadMaxFiles(limits.files)
            if limits.bytes is not None:
                return ReadMaxBytes(limits.bytes)
            if limits.rows is not None:
                return ReadMaxRows(limits.rows)
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            head = self._feed.context.snapshots.head()
            self._until = 0 if head is None else head.id

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
            head = self._feed.context.snapshots.head()
            return None if head is None else self._offset(Position(head.id, head.stamp)).to_dict()


def stream_reader(
    context: TableContext, schema: TableSchema, target: pa.Schema, options: Mapping[str, str]
) -> StreamReader:
    """A reader of the columns of `target`, as able as the running version of Spark allows.

    Raises `PredicateError`, `OptionError`, `UnsupportedFeatureError`.
    """
    check_readable(schema, path=context.layout.schema_path(schema.id))
    _check_options(options)
    text = SCAN_FILTER.of(options)
    predicate = None if text is None else bind(parse(text), schema.fields)
    rows = RowReader(context, schema, target, predicate)
    return LimitedStreamReader(rows, options) if HAS_READ_LIMITS else StreamReader(rows, options)


def _check_options(options: Mapping[str, str]) -> None:
    """Raises `OptionError` for options that would be passed over in silence."""
    moment = next((key for key in MOMENT_KEYS if key in options), None)
    if moment is not None and (moment != SCAN_SNAPSHOT_ID.key or SCAN_MODE.of(options) != "from-snapshot"):
        raise OptionError(
            f"{moment} says what a batch read sees, not where a stream begins",
            hint=f"a stream begins with scan.mode=from-snapshot and {SCAN_SNAPSHOT_ID.key}=<first snapshot>, "
            "or with scan.mode=latest-full or latest.",
        )
    if limits_of(options) != UNLIMITED and not HAS_READ_LIMITS:
        _LOG.warning(
            "read.stream.* limits have no effect: they need Spark 4.2, this is %s", pyspark.__version__
        )


def limits_of(options: Mapping[str, str]) -> Limits:
    """What the options ``read.stream.*`` say. Raises `OptionError`."""
    return Limits(
        MAX_FILES_PER_TRIGGER.of(options), MAX_BYTES_PER_TRIGGER.of(options), MAX_ROWS_PER_TRIGGER.of(options)
    )
