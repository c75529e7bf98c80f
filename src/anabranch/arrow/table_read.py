"""Reading of planned splits, here or in another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.arrow.reader import ReadContext, read_batches, read_schema, read_table
from anabranch.expr.bind import BoundPredicate
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.split import Split


@dataclass(frozen=True)
class Reader:
    """Reader of splits as rows of the table in one schema. Picklable where the table's storage is."""

    context: TableContext
    fields: tuple[Field, ...]
    """Columns of the table as it is read."""
    columns: tuple[str, ...] | None = None
    """Columns to return, in this order; None for all."""
    predicate: BoundPredicate | None = None
    """Filter: only rows for which it is TRUE are returned."""
    threads: int | None = None
    """Number of file pieces decoded in parallel; None for what suits the machine and the store."""
    verify: bool = True
    """Whether to check the checksums of pages."""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the result."""
        return read_schema(self._read_context, self.columns)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in bounded memory."""
        return self.read_batches([split])

    def read_batches(self, splits: Iterable[Split], *, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of splits, in order, in bounded memory."""
        return read_batches(
            splits, self._read_context, columns=self.columns, predicate=self.predicate, limit=limit
        )

    def read_table(self, splits: Iterable[Split], *, limit: int | None = None) -> pa.Table:
        """Return all rows of splits, in order."""
        return read_table(
            splits, self._read_context, columns=self.columns, predicate=self.predicate, limit=limit
        )

    @property
    def _read_context(self) -> ReadContext:
        return ReadContext(
            self.context.storage, self.fields, self.context.schemas.get, self.threads, self.verify
        )
