"""Writing rows to new data files, which a commit then makes part of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from anabranch.arrow.bucket_writer import FORMAT, BucketWriter, FileSettings
from anabranch.arrow.parquet_encode import Compression
from anabranch.arrow.pipeline import Pipeline
from anabranch.arrow.row_buffer import RowBuffer, split_evenly
from anabranch.arrow.spill import Spill
from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.errors import AnabranchError, SchemaError, UnsupportedFeatureError
from anabranch.kernel.commit_message import CommitMessage
from anabranch.options import FILE_FORMAT, TARGET_FILE_SIZE
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spec.arrow_types import to_arrow_schema
from anabranch.spec.data_file import FileSource
from anabranch.spec.schema import TableSchema
from anabranch.spec.stats import StatsCollector, stats_modes
from anabranch.storage.protocol import Storage

DEFAULT_BUFFER_SIZE: Final = 256 << 20
_INLINE_SIZE: Final = 1 << 20
"""Bytes of rows of one bucket up to which threads cost more than they save."""
_LEAST_PIECE: Final = 16 << 20
"""Bytes of rows below which a row group is not divided between cores."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What a writer must know of its table. Picklable where the storage is."""

    storage: Storage
    """Rooted at the table's folder."""
    schema: TableSchema
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of this write, over the table's."""
    source: FileSource = FileSource.APPEND
    runtime: Runtime = SYSTEM
    buffer_size: int = DEFAULT_BUFFER_SIZE
    """Bytes of rows that wait in memory for their row group to fill; more of them wait on disk."""
    threads: int | None = None
    """Cores to encode on; None for all there are."""

    @property
    def all_options(self) -> dict[str, str]:
        return {**self.schema.options, **self.options}


def write(batches: Iterable[pa.RecordBatch | pa.Table], context: WriteContext) -> list[CommitMessage]:
    """Write all rows to new files, durable when this returns; one message for each bucket that got rows.

    Rows of one bucket keep their order. If anything fails, no file is left and the error propagates.

    Args:
        batches: rows exactly in the Arrow types of the table's schema, as `convert` makes them.
        context: the table.

    Raises:
        SchemaError: the rows are of another schema.
        UnsupportedFeatureError: the table's files are of a format that is only read.
        StorageError: a file could not be written.
    """
    with TableWriter(context) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def abort(messages: Iterable[CommitMessage], context: WriteContext) -> None:
    """Delete the files of messages that will not be committed, as far as the store allows."""
    for message in messages:
        with suppress(AnabranchError):
            context.storage.delete_many(file_paths(message, context))


def file_paths(message: CommitMessage, context: WriteContext) -> list[str]:
    """Where the new files of a message are, relative to the table's root."""
    folder = Splitter(context.schema, context.all_options).folder(
        BucketKey(message.partition, message.bucket)
    )
    return [f"{folder}/{file.file_name}" for file in message.new_files]


class TableWriter:
    """Writes the rows of one task, batch by batch. Leaving its block without `finish` leaves no files."""

    def __init__(self, context: WriteContext) -> None:
        options = context.all_options
        self._context = context
        self._schema = to_arrow_schema(context.schema.fields)
        self._splitter = Splitter(context.schema, options)
        self._settings = file_settings(context, options)
        self._incoming = RowBuffer(self._schema, self._settings.target_size)
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._pipeline = Pipeline(context.threads)
        self._spill = Spill()
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self.abort()

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take in rows, whose memory must not change afterwards."""
        if not rows.schema.equals(self._schema):
            raise SchemaError(
                f"rows of the schema\n{rows.schema.to_string()}\ncannot be written to a table of the schema\n"
                f"{self._schema.to_string()}",
                hint="anabranch.arrow.convert fits rows to a table.",
            )
        self._incoming.add(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        for full in self._incoming.take_full():
            self._distribute(full)

    def finish(self) -> list[CommitMessage]:
        """Write what is left and close all files; they are durable when this returns."""
        is_small = not self._buckets and self._incoming.bytes_in_memory <= _INLINE_SIZE
        for rows in self._incoming.take_rest():
            self._distribute(rows)
        self._pipeline.is_inline = is_small and len(self._buckets) <= 1
        pieces = self._pipeline.threads if len(self._buckets) == 1 else 1
        for bucket in self._buckets.values():
            for rows in bucket.waiting.take_rest():
                for group in split_evenly(rows, pieces, least_bytes=_LEAST_PIECE):
                    bucket.writer.append(group)
            bucket.writer.end()
        messages = [
            CommitMessage(key.partition, key.bucket, self._context.schema.bucket, bucket.writer.files())
            for key, bucket in self._buckets.items()
        ]
        self._pipeline.close()
        self._spill.close()
        self._finished = True
        return messages

    def abort(self) -> None:
        """Stop, and remove every file written so far, as far as the store allows."""
        self._finished = True
        self._pipeline.close(cancel=True)
        self._spill.close()
        for bucket in self._buckets.values():
            bucket.writer.abort()

    def _distribute(self, rows: pa.Table) -> None:
        for key, part in self._splitter.split(rows):
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = self._new_bucket(key)
            bucket.waiting.add(part)
            for group in bucket.waiting.take_full():
                bucket.writer.append(group)
        if (
            sum(bucket.waiting.bytes_in_memory for bucket in self._buckets.values())
            > self._context.buffer_size
        ):
            # All of them, because rows of different buckets share memory.
            for bucket in self._buckets.values():
                bucket.waiting.put_aside(self._spill)

    def _new_bucket(self, key: BucketKey) -> _Bucket:
        writer = BucketWriter(self._settings, self._splitter.folder(key), self._pipeline)
        return _Bucket(RowBuffer(self._schema, self._settings.target_size), writer)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """One bucket: rows that wait for their row group to fill, and the writer it goes to."""

    waiting: RowBuffer
    writer: BucketWriter


def file_settings(context: WriteContext, options: Mapping[str, str]) -> FileSettings:
    """What all files of a write to this table have in common. Raises `UnsupportedFeatureError`, `OptionError`."""
    _check_format(FILE_FORMAT.of(options))
    modes = stats_modes(context.schema)
    return FileSettings(
        storage=context.storage,
        schema=context.schema,
        target_size=TARGET_FILE_SIZE.of(options),
        compression=Compression.of(options),
        new_stats=lambda: StatsCollector(context.schema.fields, modes),
        source=context.source,
        continue_sequence=context.schema.bucket > 0,
        runtime=context.runtime,
    )


def _check_format(file_format: str) -> None:
    if file_format != FORMAT:
        raise UnsupportedFeatureError(
            f"the table's option 'file.format' is '{file_format}'; Anabranch reads such files but writes {FORMAT}",
            feature="file-format",
            hint=f"Set the option 'file.format' to '{FORMAT}'; existing files stay readable.",
        )
