"""Dead letters: unreadable records on their way from the reading tasks to a table.

A task that reads a range of a topic puts what it cannot read into one file below the warehouse::

    _dead_letters/<query>/<batch>/<run>/<table>/<topic>-<partition>-<start>-<end>.arrow

A repeated or doubled task replaces the file by the same rows. When the sink commits the batch it first commits the rows of
these files to the table of dead letters, under the same commit user and batch, and then its own. Both commits are
recognised if the batch is repeated after a kill between them (`anabranch.kernel.log.ledger`), so each record is in one of the two
tables exactly once, and no row is published before the dead letters of its batch. Files of a run that died are not
looked at: what its batch read is read again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark import TaskContext

from anabranch.arrow.convert import convert
from anabranch.arrow.writer import WriteContext, abort, write
from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import Identifier
from anabranch.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.format.schema.ddl import parse_columns
from anabranch.kafka.columns import COLUMNS
from anabranch.kernel.actions.append import Append
from anabranch.lineage.model import LINEAGE_PROPERTY, LineageEntry
from anabranch.storage.open import open_storage
from anabranch.storage.protocol import Storage
from anabranch.table import Table

if TYPE_CHECKING:
    from anabranch.kafka.offsets import OffsetRange

_LOG = logging.getLogger(__name__)
_FOLDER = "_dead_letters"


@dataclass(frozen=True)
class Rejecting:
    """Handler that stores the records that a task cannot read. Picklable."""

    warehouse: str
    table: str
    options: tuple[tuple[str, str], ...] = ()
    """Options of the store."""

    def __call__(self, wanted: OffsetRange, rows: pa.Table) -> None:
        """Store the unreadable records of a range. Raises `InvalidInputError` outside of a streaming batch."""
        task = TaskContext.get()
        names = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")
        found = [None if task is None else task.getLocalProperty(name) for name in names]
        if None in found:
            raise InvalidInputError(
                f"{rows['error'][0].as_py()}; and dead letters are kept for streams that write to a table only",
                hint="set 'value.on-error' to fail or skip for a batch read.",
            )
        query, batch, run = map(str, found)
        where = wanted.where
        name = quote(f"{where.topic}-{where.partition}-{wanted.start}-{wanted.end}", safe="")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        open_storage(self.warehouse, dict(self.options)).put(
            f"{_FOLDER}/{query}/{batch}/{run}/{quote(self.table, safe='')}/{name}.arrow",
            sink.getvalue().to_pybytes(),
        )


@dataclass(frozen=True)
class DeadLetters:
    """Dead letters stored by the tasks of one batch, for the sink that commits the batch."""

    warehouse: Storage
    query: str
    batch: int

    @property
    def _folder(self) -> str:
        return f"{_FOLDER}/{self.query}/{self.batch}"

    def commit(self, run: str | None, user: str, sink: str, entry: LineageEntry) -> None:
        """Commit the dead letters, once per user and batch. Raises what a commit does.

        Args:
            run: of the query; what others put down is left out.
        """
        storage = self.warehouse
        for folder in sorted(storage.list_folders(f"{self._folder}/{run}")):
            rows = [
                _rows(storage, info.path) for info in sorted(storage.list(folder), key=lambda info: info.path)
            ]
            name = unquote(folder.rpartition("/")[2])
            if name == sink.partition("$")[0]:
                raise InvalidInputError(
                    f"'{name}' is to take the dead letters of a job that writes to it",
                    hint="name another table in 'dead-letter.table'.",
                )
            _commit(
                _table(storage, name), pa.concat_tables(rows), CommitIdentity(user, self.batch), sink, entry
            )

    def forget(self) -> None:
        """Remove the dead letters stored for the batch, by any run of the query."""
        self.warehouse.delete_folder(self._folder)


def _rows(storage: Storage, path: str) -> pa.Table:
    with pa.ipc.open_stream(storage.get(path)) as stream:
        return stream.read_all()


def _table(storage: Storage, name: str) -> Table:
    catalog, identifier = FilesystemCatalog(storage), Identifier.parse(name)
    try:
        return Table(catalog.open(identifier))
    except NotFoundError:
        with suppress(AlreadyExistsError):
            catalog.create_table(
                identifier, parse_columns(COLUMNS), comment="Records that could not be read."
            )
        return Table(catalog.open(identifier))


def _commit(table: Table, rows: pa.Table, identity: CommitIdentity, sink: str, entry: LineageEntry) -> None:
    rows = rows.append_column("sink", pa.repeat(pa.scalar(sink), len(rows)))
    context = WriteContext(table.context.storage, table.schema, table.options, threads=1)
    messages = write(convert(rows, table.schema.fields), context)
    try:
        committed = table.commit(
            Append(messages), identity=identity, properties={LINEAGE_PROPERTY: entry.to_json()}
        )
    except InvalidInputError:
        abort(messages, context)
        raise
    snapshot = committed.snapshot
    if committed.repeated and snapshot is not None:
        own = {
            file.path.rpartition("/")[2]
            for split in table.plan_delta(snapshot).splits
            for file in split.files
        }
        if not any(file.file_name in own for message in messages for file in message.new_files):
            abort(messages, context)
    elif not committed.repeated:
        _LOG.warning("%d records of batch %d went to '%s'", len(rows), identity.identifier, table.name)
