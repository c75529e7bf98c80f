"""Reading of planned splits, and writing of data files for a later commit, here or in another process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from anabranch.arrow.event_times import source_field
from anabranch.arrow.reader import ReadContext, read_batches, read_schema, read_table
from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.expr.bound import BoundPredicate
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.kernel.commit.commit_message import CommitMessage
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


@dataclass(frozen=True, slots=True)
class Writer:
    """Writer of rows of one table in one schema. Picklable where the table's storage is."""

    context: WriteContext

    @classmethod
    def of(cls, context: TableContext, schema: TableSchema, options: Mapping[str, str]) -> Writer:
        """Create a writer of the table's rows in that schema."""
        return cls(WriteContext(context.storage, schema, dict(options), runtime=context.runtime))

    @property
    def table_schema(self) -> TableSchema:
        return self.context.schema

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema that rows must have."""
        return to_arrow_schema(self.fields)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns that rows must have: the table's, and that of their source if an option names one."""
        source = source_field(self.context.schema, self.context.all_options)
        fields = self.context.schema.fields
        return fields if source is None else (*fields, source)

    def write(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> list[CommitMessage]:
        """Write rows to new files, durable on return. If anything fails no file is left behind."""
        return write(batches, self.context)

    def abort(self, messages: Iterable[CommitMessage]) -> None:
        """Remove the files of messages that were not, and never will be, committed."""
        abort(messages, self.context)
