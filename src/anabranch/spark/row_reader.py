"""Rows of data files to a Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from anabranch.arrow.reader import ReadContext, read_batches
from anabranch.expr.bind import BoundPredicate
from anabranch.kernel.context import TableContext
from anabranch.kernel.scan.split import Split
from anabranch.spark.arrow_values import to_schema
from anabranch.spec.schema import TableSchema

_THREADS = 2
"""Pieces of files that a task decodes side by side: it has one core, but should not wait for its store."""

_MOST_ROWS = 1 << 16
_MOST_BYTES = 16 << 20


class SplitPartition(InputPartition):
    """One split, for one task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


@dataclass(frozen=True)
class RowReader:
    """Reads splits as Arrow batches in the types that Spark takes. Picklable."""

    context: TableContext
    schema: TableSchema
    """The columns the predicate is bound to."""
    target: pa.Schema
    """The columns to read, in their order, in the types that Spark takes."""
    predicate: BoundPredicate | None = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split; none for the partition that Spark makes up where there is nothing to read."""
        if not isinstance(partition, SplitPartition):
            return
        files = ReadContext(
            self.context.storage, self.schema.fields, self.context.schemas.get, threads=_THREADS
        )
        split: Split = partition.value
        for batch in read_batches([split], files, columns=self.target.names, predicate=self.predicate):
            yield from _pieces(to_schema(batch, self.target))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches that Spark can hold in memory several at a time, outside of its heap."""
    fitting = batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1)
    step = max(1, min(_MOST_ROWS, fitting))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def partitions_of(splits: Sequence[Split]) -> list[InputPartition]:
    """One Spark partition for each split."""
    return [SplitPartition(split) for split in splits]
