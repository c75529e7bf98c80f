"""Rewriting of live files as fewer ones with the same rows, for compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Self

import pyarrow as pa

from anabranch.arrow.bucket_writer import BucketWriter
from anabranch.arrow.pipeline import Pipeline
from anabranch.arrow.reader import ReadContext, read_batches
from anabranch.arrow.row_buffer import RowBuffer, split_evenly
from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.arrow.writer import WriteContext, file_settings
from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import DataFileMeta, FileSource
from anabranch.format.records.layout import file_format_of
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
from anabranch.kernel.scan.split import Split, SplitFile

INLINE_SIZE: Final = 1 << 20
"""Row bytes up to which threads cost more than they save."""
_LEAST_PIECE: Final = 16 << 20
"""Row bytes below which the last row group is not divided between cores."""


def rewrite(task: CompactionTask, context: WriteContext, schemas: Callable[[int], TableSchema]) -> Rewrite:
    """Write the rows of the task's files, in their order, to new files; durable when this returns.

    The new files have the schema of the context, whatever the old ones were written with. Rows are not sorted
    out again: they stay in the partition and bucket of the task. If anything fails, no file is left.

    Args:
        task: what to rewrite.
        context: the table, in its newest schema.
        schemas: the schema of an id; may be called by several threads at a time.

    Raises:
        NotFoundError: a file is gone, because its snapshot expired.
        CorruptTableError: a file cannot be decoded, or does not have the rows that the task says.
        UnsupportedFeatureError: the table's files are of a format that is only read.
        StorageError: a file could not be read or written.
    """
    reading = ReadContext(context.storage, context.schema.fields, schemas, context.threads)
    with ReplacementWriter(task, context) as writer:
        for batch in read_batches([split_of(task, context)], reading):
            writer.write(pa.Table.from_batches([batch]))
        return writer.finish()


def split_of(task: CompactionTask, context: WriteContext) -> Split:
    """Return the task's files as a split to read."""
    folder = _folder(task, context)
    return Split(
        task.partition,
        task.bucket,
        tuple(
            SplitFile(
                f"{folder}/{file.file_name}",
                file.file_size,
                file.row_count,
                file.schema_id,
                file_format_of(file.file_name),
            )
            for file in task.files
        ),
    )


class ReplacementWriter:
    """Writer of the rows that replace a task's files, in the order they are handed in.

    Leaving its block without `finish` leaves no files.
    """

    def __init__(self, task: CompactionTask, context: WriteContext) -> None:
        settings = replace(
            file_settings(context, context.all_options),
            source=FileSource.COMPACT,
            continue_sequence=task.total_buckets > 0,
        )
        self._task = task
        self._pipeline = Pipeline(context.threads)
        self._pipeline.is_inline = task.size <= INLINE_SIZE
        self._waiting = RowBuffer(to_arrow_schema(context.schema.fields), settings.target_size)
        self._writer = BucketWriter(settings, _folder(task, context), self._pipeline)
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            self._finished = True
            self._pipeline.close(cancel=True)
            self._writer.abort()

    def write(self, rows: pa.Table) -> None:
        """Take in rows in the types of the table, whose memory must not change afterwards."""
        self._waiting.add(rows)
        for group in self._waiting.take_full():
            self._writer.append(group)

    def finish(self) -> Rewrite:
        """Write what is left and close all files; they are durable when this returns.

        Raises `CorruptTableError` if these are not as many rows as the task has.
        """
        return Rewrite(self._task, self._finish(check=True))

    def finish_part(self) -> tuple[DataFileMeta, ...]:
        """Finish when several writers share the rows of a task; return the files of this one."""
        return self._finish(check=False)

    def _finish(self, *, check: bool) -> tuple[DataFileMeta, ...]:
        for rest in self._waiting.take_rest():
            for group in split_evenly(rest, self._pipeline.threads, least_bytes=_LEAST_PIECE):
                self._writer.append(group)
        self._writer.end()
        files = self._writer.files()
        if check:
            check_row_count(files, self._task)
        self._pipeline.close()
        self._finished = True
        return files


def check_row_count(files: Sequence[DataFileMeta], task: CompactionTask) -> None:
    """Raise `CorruptTableError` if these files do not have as many rows as those of the task."""
    found = sum(file.row_count for file in files)
    if found != task.row_count:
        raise CorruptTableError(
            f"the {len(task.files)} files to rewrite have {found} rows where the manifests say {task.row_count}",
            hint="read the files of this bucket one by one to find which of them is not what was written.",
        )


def _folder(task: CompactionTask, context: WriteContext) -> str:
    return Splitter(context.schema, context.all_options).folder(BucketKey(task.partition, task.bucket))
