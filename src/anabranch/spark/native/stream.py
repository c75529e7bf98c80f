"""Streaming read of a table by DataSource V2: batches use Spark's own Parquet reader where possible.

Offsets and batches are those of the portable door, found by the same code, here in the process of the driver; so a
query can change doors at any restart. Each batch chooses its door by the files it has: where these need more than to
be read under the names of the table, or the stream filters rows or tells which were taken away, Python's tasks read them.

Spark neither leaves out columns of a stream nor puts them in another order. So partition columns come out of the
files, which hold them as well, and not from behind all others as in a batch read. The column `_watermark`, which is last,
comes from there: to Spark the files of a batch lie in partitions by it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from py4j.protocol import Py4JError

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.rows.binary_row import NANOS_PER_MILLI, encode_row, with_arity
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field, LocalZonedTimestampType
from anabranch.kernel.scan.split import SplitFile
from anabranch.options import FILE_CHECKSUM
from anabranch.scan.feed import watermark_millis
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.callbacks import start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native.door import foreign, impossible, not_as_expected, tell, unreachable
from anabranch.spark.native.generations import Obstacle, generations
from anabranch.spark.native.parquet_scan import parquet_scan
from anabranch.spark.native.planned_files import Folder, folders_of
from anabranch.streaming.offsets import WATERMARK_COLUMN, FeedSplit

if TYPE_CHECKING:
    from anabranch.spark.streams.stream_reader import StreamReader

_STREAMING = "org.apache.spark.sql.connector.read.streaming"
_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_WATERMARK = Field(-1, WATERMARK_COLUMN, LocalZonedTimestampType(3, nullable=False))
_MOST_ORDERED = 1_000
"""Number of files in a queue table's batch above which ordering them costs more than it saves."""


def native_stream(
    jvm: Jvm, reader: StreamReader, columns: Any, portable: Callable[[], Any]
) -> NativeStream | None:
    """Return a ``MicroBatchStream`` of a table; None, with a warning, if this version of Spark takes none.

    Args:
        reader: what follows the table.
        columns: those of the stream, as a ``StructType`` of the JVM.
        portable: makes the same stream through the portable door, of which only batches are asked.
    """
    start_callbacks(jvm.spark)
    made = NativeStream(jvm, reader, columns, portable)
    try:
        made.deserializeOffset("{}")
    except Py4JError as error:
        made.tell(Obstacle(not_as_expected(error)))
        return None
    return made


class NativeStream(JavaProxy):
    """A stream of a table, as Spark runs it: see `native_stream`."""

    class Java:
        implements: ClassVar = [
            f"{_STREAMING}.MicroBatchStream",
            f"{_STREAMING}.SupportsTriggerAvailableNow",
        ]

    def __init__(self, jvm: Jvm, reader: StreamReader, columns: Any, portable: Callable[[], Any]) -> None:
        self.jvm = jvm
        self._reader = reader
        self._columns = columns
        self._portable = portable
        self._made: Any = None
        """The portable stream, created when first needed."""
        self._factory: Callable[[], Any] | None = None
        """Creates the reader factory of the batch that was planned last."""
        self._unreachable: str | None = None
        """Why Hadoop does not reach the files, empty if it does; None before the first check."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        return f"anabranch {self._reader.feed.context.title} ({super().toString()})"

    # Position of the stream

    def initialOffset(self) -> Any:  # noqa: N802
        return self._offset(self._reader.initialOffset())

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802
        return self._offset(json.loads(text))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        # Spark asks for one limit. It comes back to `latestOffset`, where all of them are applied.
        kinds = self.jvm.of(f"{_STREAMING}.ReadLimit")
        limits, pace = self._reader.limits, self._reader.pace
        if limits.files is not None:
            return kinds.maxFiles(limits.files)
        if limits.bytes is not None:
            return kinds.maxBytes(limits.bytes)
        if limits.rows is not None:
            return kinds.maxRows(limits.rows)
        return kinds.allAvailable() if pace is None else kinds.minRows(pace.rows, 0)

    def latestOffset(self, *asked: Any) -> Any:  # noqa: N802
        if not asked:  # a trigger of an older kind
            return self._offset(self._reader.step(self._reader.initialOffset(), everything=True))
        start, limit = asked
        everything = limit.getClass().getSimpleName() == "ReadAllAvailable"
        return self._offset(self._reader.step(_value(start), everything=everything))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._reader.take_what_is_there()

    def reportLatestOffset(self) -> Any:  # noqa: N802
        found = self._reader.newest()
        return None if found is None else self._offset(found)

    def commit(self, end: Any) -> None:
        self._reader.commit(_value(end))

    def stop(self) -> None:
        self._reader.stop()
        if self._made is not None:
            self._made.stop()

    # Reading of batches

    def planInputPartitions(self, start: Any, end: Any) -> Any:  # noqa: N802
        first, last = _value(start), _value(end)
        splits = self._reader.splits(first, last)
        found = self._natively(splits)
        if isinstance(found, Obstacle):
            self.tell(found)
            if self._made is None:
                self._made = self._portable()
            self._factory = self._made.createReaderFactory
            return self._made.planInputPartitions(start, end)
        batch, partitions = found
        # Spark asks more than once, and each one made sends Hadoop's settings to all executors.
        self._factory = functools.cache(batch.createReaderFactory)
        return partitions

    def createReaderFactory(self) -> Any:  # noqa: N802
        assert self._factory is not None, "Spark plans a batch before it asks how to read it"
        return self._factory()

    def _natively(self, splits: Sequence[FeedSplit]) -> tuple[Any, Any] | Obstacle:
        """Return a ``Batch`` of Spark's Parquet source and its partitions."""
        if not self._reader.gives_whole_files:
            return Obstacle("the stream filters rows, or says of each whether it was taken away")
        feed = self._reader.feed
        # All columns are in the files, those of partitions too.
        schema = replace(feed.schema, partition_keys=())
        names = list(self._columns.fieldNames())
        has_watermark = self._reader.adds_watermark
        if has_watermark and names[-1] != WATERMARK_COLUMN:
            return Obstacle(f"{WATERMARK_COLUMN} is not the last column")
        if has_watermark and any(f.name.lower() == WATERMARK_COLUMN for f in schema.fields):
            return Obstacle(f"the table has a column {WATERMARK_COLUMN} of its own, which is left out")
        is_ordered = feed.schema.bucket > 0
        files = [f.file for split in splits for f in split.files]
        if is_ordered and len(files) > _MOST_ORDERED:
            return Obstacle(
                f"there are more than {_MOST_ORDERED} files, and rows of a bucket keep their order"
            )
        reason = self._reason(files)
        if reason is not None:
            return Obstacle(reason)
        asked = set(names)
        wanted = [f for f in schema.fields if f.name in asked]
        made = generations(
            schema,
            wanted,
            {f.schema_id for f in files},
            lambda schema_id: replace(feed.context.schemas.get(schema_id), partition_keys=()),
            case_sensitive=self.jvm.spark.conf.get("spark.sql.caseSensitive", "false") == "true",
        )
        if isinstance(made, Obstacle):
            return made
        if len(made) > 1 or not made[0].is_plain:
            return Obstacle("there are files from before columns were renamed or given other types")
        try:
            folders = folders_of(feed.context, splits)
            if has_watermark:
                schema, wanted, folders = _with_watermark(schema, wanted, folders, splits)
            scan = Scan(feed.context, None, schema, options={FILE_CHECKSUM.key: str(feed.verify).lower()})
            batch = parquet_scan(self.jvm, scan, folders, wanted, columns=self._columns).toBatch()
            partitions = batch.planInputPartitions()
            return batch, self._in_order(partitions, splits) if is_ordered else partitions
        except (Py4JError, UnsupportedFeatureError) as error:
            return Obstacle(not_as_expected(error))

    def _reason(self, files: Sequence[SplitFile]) -> str | None:
        spark = self.jvm.spark
        if self._unreachable is None and files:
            context = self._reader.feed.context
            self._unreachable = unreachable(spark, context, files[0].path, files[0].size) or ""
        return impossible(spark) or foreign({f.format for f in files}) or self._unreachable or None

    def _in_order(self, partitions: Any, splits: Sequence[FeedSplit]) -> Any:
        """Return the same pieces of files, with those of a split in one partition and in its order."""
        pieces: dict[str, list[tuple[int, Any]]] = {}
        for partition in partitions:
            for piece in partition.files():
                name = unquote(piece.urlEncodedPath(), errors="surrogateescape").rpartition("/")[2]
                pieces.setdefault(name, []).append((piece.start(), piece))
        made = []
        for number, split in enumerate(splits):
            found = [
                piece
                for file in split.files
                for _, piece in sorted(pieces[file.file.path.rpartition("/")[2]], key=lambda at: at[0])
            ]
            listed = self.jvm.array(f"{_DATASOURCES}.PartitionedFile", found)
            made.append(self.jvm.of(f"{_DATASOURCES}.FilePartition")(number, listed))
        return self.jvm.array("org.apache.spark.sql.connector.read.InputPartition", made)

    def tell(self, obstacle: Obstacle) -> None:
        """Log that batches go through the portable door, and why; each reason once."""
        tell(self._reader.feed.context, obstacle, stream=True)

    def _offset(self, value: Any) -> Any:
        """Return an offset exactly as the portable door formats it: Spark compares offsets as text."""
        kind = "org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset"
        return self.jvm.of(kind)(json.dumps(value))


def _with_watermark(
    schema: TableSchema, wanted: Sequence[Field], folders: Sequence[Folder], splits: Sequence[FeedSplit]
) -> tuple[TableSchema, list[Field], list[Folder]]:
    """Return the same with a partition column: the watermark after the step, which is that of all its files."""
    marked = replace(schema, fields=(*schema.fields, _WATERMARK), partition_keys=(WATERMARK_COLUMN,))
    recorded = splits[0].files[0].watermark if splits else None
    value = watermark_millis(recorded) * NANOS_PER_MILLI
    partition = with_arity(1, encode_row([_WATERMARK.type], [value]))
    return marked, [*wanted, _WATERMARK], [replace(folder, partition=partition) for folder in folders]


def _value(offset: Any) -> Any:
    return json.loads(offset.json())
