"""Schema evolution for rows with more, or wider, columns than the table has.

Files are written for the schema that will be, which is stored when they are complete: rows that turn out to be bad
leave the table as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.arrow.merging import merging_changes
from anabranch.errors import CommitConflictError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.merge.declare import declared, declared_as
from anabranch.table.alter import Alter
from anabranch.table.view import TableView


@dataclass(frozen=True)
class SchemaMerge:
    """A planned version of the schema. Picklable where the table is."""

    schema: TableSchema
    """Schema in which rows are written."""
    alter: Alter | None
    """Changes that make it; None if the table has it already."""

    @classmethod
    def of(cls, table: TableView, columns: Sequence[Field], *, ignore_case: bool = False) -> SchemaMerge:
        """Plan the schema of the table merged with the columns of rows.

        Args:
            table: what the rows are for.
            columns: of the rows.
            ignore_case: whether a column may be spelt in other case than the table's, as in Spark.

        Raises:
            SchemaError: a column has another kind of type than the table's.
            CommitConflictError: others changed the schema meanwhile.
        """
        schema = table.schema
        if ignore_case:
            columns = [_spelt(column, schema) for column in columns]
        changes = merging_changes(schema, columns)
        if not changes:
            return cls(schema, None)
        alter = Alter(table.context, schema, tuple(changes))
        return cls(alter.preview(), alter)

    def stored(self, messages: Sequence[CommitMessage]) -> Sequence[CommitMessage]:
        """Store the schema; return the messages with its id in their files.

        Raises:
            CommitConflictError: others changed the schema, or replaced main, so that the files do not fit any more.
            CommitError, NotFoundError: what `Alter.apply` raises besides.
        """
        if self.alter is None:
            return messages
        context = self.alter.context
        version: TableSchema | None = None
        cause: CommitConflictError | None = None
        try:
            applied = self.alter.apply()
            is_main = context.main_generation is not None
            if not is_main or main_of(context) is context:
                version = declared_as(self.schema, applied)
        except CommitConflictError as error:
            cause = error
        if version is None:
            raise CommitConflictError(
                f"SCHEMA_CHANGED: others changed the schema of '{context.title}' while rows with new columns were "
                "written; no row was appended",
                conflicts=() if cause is None else cause.conflicts,
                hint="append the rows again.",
            ) from cause
        return [
            replace(
                message,
                new_files=tuple(declared(file, self.schema, version) for file in message.new_files),
            )
            for message in messages
        ]


def _spelt(column: Field, schema: TableSchema) -> Field:
    """Return the column under the name of the table's only column that matches it ignoring case."""
    alike = [f.name for f in schema.fields if f.name.lower() == column.name.lower()]
    return replace(column, name=alike[0]) if len(alike) == 1 else column
