"""Reading of data files in a Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from anabranch.arrow.table_read import Reader
from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.split import Split
from anabranch.scan.feed import FeedReader
from anabranch.scan.metadata import LocatedSplit, MetadataReader, metadata_columns
from anabranch.spark.types.arrow_values import to_schema
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import CHANGE_COLUMN, WATERMARK_COLUMN, FeedFile, FeedSplit

_THREADS = 2
"""Pieces of files that a task decodes in parallel: it has one core, but should not wait for its store."""

_WORTH_A_TASK_BYTES, _WORTH_A_TASK_ROWS = 8 << 20, 500_000
"""Amount of data that justifies one more task, and one more output file."""
_ABOUT = 1.05
"""Tolerance by which files of nearly equal size are counted as equal."""

_MOST_ROWS = 1 << 16
_MOST_BYTES = 16 << 20


class SplitPartition(InputPartition):
    """One split, for one task."""

    def __init__(self, split: Split | LocatedSplit | FeedSplit) -> None:
        super().__init__(split)


@dataclass(frozen=True)
class RowReader:
    """Reads splits as Arrow batches in the types that Spark takes. Picklable."""

    reader: Reader | MetadataReader | FeedReader
    """Reader of the partitions' splits."""
    target: pa.Schema
    """The columns to read, in their order, in the types that Spark takes."""

    @property
    def gives_whole_files(self) -> bool:
        """See `FeedReader.gives_whole_files`; False for what reads no stream."""
        return isinstance(self.reader, FeedReader) and self.reader.gives_whole_files

    @property
    def adds_watermark(self) -> bool:
        """Whether ``_watermark`` is added, and not a column of the table."""
        return (
            isinstance(self.reader, FeedReader)
            and self.reader.watermark_column
            and WATERMARK_COLUMN in self.target.names
        )

    def partitions(self, splits: Sequence[Split]) -> list[InputPartition]:
        """Return one Spark partition per split of a plan, for `read`."""
        if isinstance(self.reader, MetadataReader):
            return [SplitPartition(located) for located in self.reader.located(splits)]
        return partitions_of(splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split; none for the dummy partition that Spark adds if there is nothing to read."""
        if not isinstance(partition, SplitPartition):
            return
        for batch in self.reader.read(partition.value):
            yield from _pieces(to_schema(batch.select(self.target.names), self.target))


def snapshot_rows(
    context: TableContext,
    schema: TableSchema,
    target: pa.Schema,
    predicate: BoundPredicate | None = None,
    *,
    snapshot: Snapshot | None,
    verify: bool = True,
) -> RowReader:
    """Return a reader of a plan's splits.

    Args:
        schema: the columns that it is read in.
        target: the columns of the rows, also those of its metadata.
        predicate: bound to the columns of `schema`.
        snapshot: that is read.
        verify: whether to check the checksums of pages.
    """
    names = tuple(target.names)
    told = metadata_columns(names, schema)
    own = tuple(name for name in names if name not in told)
    reader = Reader(context, schema.fields, own, predicate, _THREADS, verify)
    return RowReader(MetadataReader(reader, names, schema, snapshot) if told else reader, target)


def stream_rows(feed: Feed, target: pa.Schema, *, watermark_column: bool = False) -> RowReader:
    """Return a reader of a feed's splits, with ``_change`` if it outputs changes, and ``_watermark`` if asked for.

    What is added is never a column of the table, also where that has one of the same name.
    """
    is_added = {CHANGE_COLUMN: feed.on_overwrite == "changes", WATERMARK_COLUMN: watermark_column}
    names = tuple(name for name in target.names if not is_added.get(name))
    return RowReader(FeedReader.of(feed, names, watermark_column=watermark_column, threads=_THREADS), target)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide rows into batches small enough for Spark to hold several in memory, outside of its heap."""
    fitting = batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1)
    step = max(1, min(_MOST_ROWS, fitting))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def spread(splits: Sequence[FeedSplit], slots: int) -> list[FeedSplit]:
    """Divide files, in the same order, into enough splits for all parallel tasks, if each has enough work.

    Splits of a step are few where its files are small; then one task would do everything while others wait. For
    tables whose rows have no order between files.

    Args:
        splits: of one step of a stream.
        slots: tasks that run side by side.
    """
    total = sum(_work(file) for split in splits for file in split.files)
    wanted = min(slots, int(total))
    if len(splits) >= wanted:
        return list(splits)
    return [part for split in splits for part in _cut(split, total / wanted)]


def _cut(split: FeedSplit, most: float) -> Iterator[FeedSplit]:
    """Divide a split into runs of files with at most `most` work each, or of a single file."""
    run: list[FeedFile] = []
    work = 0.0
    for file in split.files:
        if run and work + _work(file) > most * _ABOUT:
            yield replace(split, files=tuple(run))
            run, work = [], 0.0
        run.append(file)
        work += _work(file)
    yield replace(split, files=tuple(run))


def _work(file: FeedFile) -> float:
    """Return the work of reading a file, as a fraction of what justifies one more task."""
    return max(file.file.size / _WORTH_A_TASK_BYTES, file.file.row_count / _WORTH_A_TASK_ROWS)


def partitions_of(splits: Sequence[Split] | Sequence[FeedSplit]) -> list[InputPartition]:
    """Return one Spark partition per split."""
    return [SplitPartition(split) for split in splits]
