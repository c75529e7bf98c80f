"""Writing of data files for a later commit, here or in another process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from anabranch.arrow.event_times import source_field
from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.log.context import TableContext


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
