"""Creation of tables from their first rows.

The rows are written first, to where the table will be, and its schema is put when they are complete: nobody sees a
table without its rows for longer than two writes take, and bad rows leave nothing behind. A cluster can only write to a
table that is there, so for its frames the table is made first, and taken back if that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anabranch.arrow.convert import convert
from anabranch.arrow.incoming import incoming
from anabranch.arrow.table_read import Writer
from anabranch.arrow.writer import WriteContext
from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.engine import Engine, WritesFrames
from anabranch.errors import AlreadyExistsError, AnabranchError, SchemaError
from anabranch.format.schema.ddl import ColumnList
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.log.context import TableContext
from anabranch.runtime import Runtime
from anabranch.table.table import Table


@dataclass(frozen=True)
class Creation:
    """Creation of a table from rows."""

    catalog: FilesystemCatalog
    engine: Engine
    runtime: Runtime
    opened: Callable[[TableContext], Table]
    """Function that opens the table once it exists."""
    identifier: Identifier
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] | None = None
    comment: str | None = None
    if_not_exists: bool = False

    def create(self, data: Any, columns: ColumnList | None) -> Table:
        """Create the table and append the rows; columns come from the data if `columns` is None.

        Raises what `Lake.create_table` does; nothing is left then.
        """
        if self.if_not_exists and self.catalog.exists(self.identifier):
            return self._existing()
        frame = self.engine.columns(data) if isinstance(self.engine, WritesFrames) else None
        rows = data
        if columns is None and frame is not None:
            columns = ColumnList(tuple(frame))
        elif columns is None:
            found = incoming(data)
            columns, rows = ColumnList(found.fields), found.batches
        if not columns.fields:
            raise SchemaError(
                f"the data for '{self.identifier.full_name}' has no columns to make a table of",
                hint="say what they are: create_table(name, 'id BIGINT NOT NULL, v STRING', data=...).",
            )
        planned = self.catalog.planned(
            self.identifier,
            columns.fields,
            partition_by=self.partition_by,
            options=columns.options(self.options),
            comment=self.comment,
        )
        self.catalog.check_free(self.identifier)
        return self._of_rows(planned, data, rows) if frame is None else self._of_frame(planned, data)

    def _of_rows(self, planned: TableSchema, data: Any, rows: Any) -> Table:
        is_new_database = self.identifier.database not in self.catalog.databases()
        storage = self.catalog.storage.scoped(self.identifier.path)
        writer = Writer(WriteContext(storage, planned, runtime=self.runtime))
        messages: Sequence[CommitMessage] = ()
        try:
            messages = writer.write(convert(rows, writer.fields))
            context = self.catalog.add(self.identifier, planned)
        except BaseException as error:
            writer.abort(messages)
            self.catalog.clear_unmade(self.identifier, with_database=is_new_database)
            is_overtaken = isinstance(error, AlreadyExistsError) and self.if_not_exists
            if is_overtaken and self.catalog.exists(self.identifier):
                return self._existing()
            raise
        table = self.opened(context)
        try:
            table.publish_first(data, writer, messages)
        except AnabranchError as error:
            if not getattr(error, "outcome_unknown", False):  # else the rows may be in
                self._take_back(table, with_database=is_new_database)
            raise
        return table

    def _of_frame(self, planned: TableSchema, frame: Any) -> Table:
        table = self.opened(self.catalog.add(self.identifier, planned))
        try:
            table.append(frame)
        except BaseException:
            self._take_back(table, with_database=False)
            raise
        return table

    def _take_back(self, table: Table, *, with_database: bool) -> None:
        with suppress(AnabranchError):  # the error that led here says more
            if table.snapshot is None:  # nobody else has written to it meanwhile
                self.catalog.drop_table(self.identifier, if_exists=True)
                self.catalog.clear_unmade(self.identifier, with_database=with_database)

    def _existing(self) -> Table:
        return self.opened(self.catalog.open(self.identifier))
