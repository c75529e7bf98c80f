"""Batch reads and writes of a table through the data source."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    SealedBranchError,
)
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.rows.partition_path import parse_partition
from anabranch.kernel.actions.append import Append
from anabranch.kernel.commit.base import Action
from anabranch.kernel.commit.commit_message import CommitMessage, WriteLoad, load_warning
from anabranch.kernel.commit.watermark import claim
from anabranch.maintenance.expire import expire_now_and_then
from anabranch.options import FILE_CHECKSUM, MERGE_SCHEMA, OVERWRITE_IF_UNCHANGED_SINCE, OVERWRITE_PARTITION
from anabranch.spark.context.options import refuse_moment
from anabranch.spark.context.tables import SnapshotView
from anabranch.spark.lineage.job_marks import PortableOrigin, Where, here
from anabranch.spark.rows.row_reader import snapshot_rows
from anabranch.spark.rows.row_writer import RowWriter
from anabranch.spark.source.clustering import last_load
from anabranch.spark.types.columns import fields_from_spark
from anabranch.table import Table
from anabranch.table.merging import SchemaMerge

_LOG = logging.getLogger(__name__)

NOT_PUBLISHED = (CommitConflictError, CommitRetriesExhaustedError, SealedBranchError, InvalidInputError)
"""Errors after which a commit can never become visible, so that its files may be removed."""


class BatchReader(DataSourceReader):
    """Reader of a view of a table. Pickled for the tasks without the plan."""

    def __init__(self, view: SnapshotView, target: pa.Schema, filter: str | None) -> None:
        self._view = view
        self._predicate = view.predicate(filter)
        self._rows = snapshot_rows(
            view.table.context,
            view.schema,
            target,
            self._predicate,
            snapshot=view.snapshot,
            verify=FILE_CHECKSUM.of(view.table.options),
        )

    def partitions(self) -> Sequence[InputPartition]:
        return self._rows.partitions(self._view.plan(self._predicate).splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """Files that one task wrote."""

    messages: tuple[CommitMessage, ...]


@dataclass(frozen=True)
class TaskFiles(WrittenFiles):
    """Files that one task wrote, with the job they belong to."""

    run: Where | None


class BatchWriter(DataSourceArrowWriter):
    """Writer that appends or overwrites in one commit when all tasks are done."""

    def __init__(
        self,
        table: Table,
        rows: RowWriter,
        *,
        overwrite: bool,
        partition: Mapping[str, str] | None,
        since: SnapshotRef | None,
        origin: PortableOrigin,
        merge: SchemaMerge | None = None,
    ) -> None:
        self._table = table
        self._rows = rows
        self._overwrite = overwrite
        self._partition = partition
        self._since = since
        self._origin = origin
        self._merge = merge
        self._warned = False

    @classmethod
    def of(
        cls,
        table: Table,
        schema: StructType,
        options: Mapping[str, str],
        *,
        overwrite: bool,
        slots: int | None = None,
        application: str | None = None,
    ) -> BatchWriter:
        """Check that rows of `schema` fit the table, and warn if the write will probably have too few tasks.

        What will be written is not known yet; it is expected to be as much as at the last append.

        Args:
            slots: tasks that run side by side, if known.

        Raises:
            SchemaError: the rows do not fit.
            InvalidInputError: the options contradict each other.
        """
        refuse_moment(table.name, options)
        text = OVERWRITE_PARTITION.of(options)
        for option in (OVERWRITE_PARTITION, OVERWRITE_IF_UNCHANGED_SINCE):
            if option.of(options) is not None and not overwrite:
                raise InvalidInputError(
                    f"{option.key} is '{option.of(options)}', but the rows are appended",
                    hint="use .mode('overwrite'), or leave the option out.",
                )
        unchanged_since = OVERWRITE_IF_UNCHANGED_SINCE.of(options)
        since = None if unchanged_since is None else table.reference(unchanged_since)
        partition = None if text is None else parse_partition(text)
        origin = PortableOrigin.of(options, application)
        merge = (
            SchemaMerge.of(table, fields_from_spark(schema), ignore_case=True)
            if MERGE_SCHEMA.of(options)
            else None
        )
        writer = cls(
            table,
            RowWriter.of(table, schema, None if merge is None else merge.schema),
            overwrite=overwrite,
            partition=partition,
            since=since,
            origin=origin,
            merge=merge,
        )
        if slots is not None and text is None:
            # Pickled for the commit, so that the warning is not repeated there.
            writer._warned = warn_of_load(last_load(table, tasks=slots), table)
        return writer

    @property
    def rows(self) -> RowWriter:
        """What writes the rows of a task."""
        return self._rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        return TaskFiles(tuple(self._rows.write(iterator)), here())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        # Tasks stand in the order of the rows, which queue tables keep.
        files = files_of(messages)
        try:
            if self._merge is not None:
                files = [*self._merge.stored(files)]
            rows = self._rows.context
            watermark = claim(rows.schema, rows.all_options, files)
            where = next((m.run for m in messages if isinstance(m, TaskFiles)), None)
            said = self._origin.properties(where)
            snapshot = self._table.commit(self._action(files), properties=said, watermark=watermark).snapshot
        except NOT_PUBLISHED:
            self._rows.abort(files)
            raise
        if snapshot is not None:
            expire_now_and_then(self._table.context, self._rows.context.options, snapshot)
        if not self._warned:
            warn_of_load(load_of(messages), self._table)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if may_remove(messages):
            self._rows.abort(files_of(messages))

    def _action(self, files: Sequence[CommitMessage]) -> Action:
        if not self._overwrite:
            return Append(files)
        return self._table.overwriting(files, self._partition, unchanged_since=self._since)


def files_of(messages: Sequence[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Return all files that the tasks reported, in the order of the tasks."""
    return [file for written in messages if isinstance(written, WrittenFiles) for file in written.messages]


def load_of(messages: Sequence[WriterCommitMessage | None]) -> WriteLoad:
    """Return the load of the tasks."""
    return WriteLoad.of_messages([m.messages for m in messages if isinstance(m, WrittenFiles)])


def warn_of_load(load: WriteLoad | None, table: Table) -> bool:
    """Log a warning if tasks have too many buckets to write; return whether it was logged."""
    warning = None if load is None else load_warning(load, table.name, table.options)
    if warning is not None:
        _LOG.warning(warning)
    return warning is not None


def may_remove(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether the files of an aborted write certainly belong to no snapshot.

    Spark also aborts after a commit that failed, and a commit whose answer was lost may have happened. Only
    if a task did not report was there no commit at all; `commit` removes files itself where it knows.
    """
    return any(message is None for message in messages)
