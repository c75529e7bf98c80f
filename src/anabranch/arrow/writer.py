"""Writing of rows to new data files, which a later commit adds to the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

import pyarrow as pa

from anabranch.arrow.bucket_writer import BucketWriters, FileSettings
from anabranch.arrow.event_times import EventTimeTracker
from anabranch.arrow.files import native_path
from anabranch.arrow.parquet_encode import PageSettings
from anabranch.arrow.pipeline import Pipeline
from anabranch.arrow.row_buffer import GroupSize, Measured, RowBuffer, split_evenly
from anabranch.arrow.spill import Spill
from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.arrow.waiting import WaitingRows
from anabranch.errors import AnabranchError, SchemaError
from anabranch.expr.row_rules import RowRules
from anabranch.format.records.data_file import FileSource
from anabranch.format.records.stats import StatsCollector, stats_modes
from anabranch.format.schema.rules import check_format
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.long_work import step
from anabranch.options import (
    TARGET_FILE_SIZE,
    WRITE_BUFFER_FOR_APPEND,
    WRITE_BUFFER_SIZE,
    WRITE_BUFFER_SPILL_SIZE,
    WRITE_BUFFER_SPILLABLE,
)
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

_INLINE_SIZE: Final = 1 << 20
"""Row bytes of one bucket up to which threads cost more than they save."""
_LEAST_PIECE: Final = 16 << 20
"""Row bytes below which a row group is not divided between cores."""
_MOST_UNDER_WAY: Final = 128 << 20
"""Row bytes that may be encoded at once even if the buffer is full of others."""
_GIVEN_BACK: Final = 64 << 20
"""Row bytes written between two requests to Arrow to release memory."""
_MOST_OPEN_HERE: Final = 256
"""Maximum open files where each costs a descriptor."""
_MOST_OPEN_THERE: Final = 16
"""Maximum open files in an object store, where each may hold a part of its upload in memory."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Table properties that a writer needs. Picklable where the storage is."""

    storage: Storage
    """Storage rooted at the table's folder."""
    schema: TableSchema
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of this write, which override the table's."""
    source: FileSource = FileSource.APPEND
    runtime: Runtime = SYSTEM
    threads: int | None = None
    """Number of cores to encode on; None for all."""
    spill_folder: str | None = None
    """Folder for spilled rows; None for the system's folder for temporary files."""

    @property
    def all_options(self) -> dict[str, str]:
        return {**self.schema.options, **self.options}


def write(batches: Iterable[pa.RecordBatch | pa.Table], context: WriteContext) -> list[CommitMessage]:
    """Write all rows to new files, durable when this returns; one message for each bucket that got rows.

    Rows of one bucket keep their order. If anything fails, no file is left and the error propagates.

    Args:
        batches: rows exactly in the Arrow types of the table's schema, as `convert` makes them; after its columns
            the one that `sink.watermark.source-column` names, if that is none of them.

    Raises:
        SchemaError: the rows are of another schema.
        UnsupportedFeatureError: the table's files are of a format that is only read.
        StorageError: a file could not be written.
    """
    tracker = EventTimeTracker(context.schema, context.all_options, context.runtime.clock)
    with TableWriter(context) as writer, step("write", "rows") as advance:
        for batch in batches:
            writer.write(tracker.taken(batch))
            advance(batch.num_rows)
        return tracker.noted(writer.finish())


def abort(messages: Iterable[CommitMessage], context: WriteContext) -> None:
    """Delete the files of messages that will not be committed, as far as the store allows."""
    for message in messages:
        with suppress(AnabranchError):
            context.storage.delete_many(file_paths(message, context))


def file_paths(message: CommitMessage, context: WriteContext) -> list[str]:
    """Return the paths of a message's new files, relative to the table's root."""
    folder = Splitter(context.schema, context.all_options).folder(
        BucketKey(message.partition, message.bucket)
    )
    return [f"{folder}/{file.file_name}" for file in message.new_files]


class TableWriter:
    """Writer of the rows of one task, batch by batch. Leaving its block without `finish` leaves no files.

    Rows wait in memory until their bucket has enough for a row group. How much of it they may take, and where they
    go when it is full, say the options ``write-buffer-*``.
    """

    def __init__(self, context: WriteContext) -> None:
        options = context.all_options
        self._context = context
        self._schema = to_arrow_schema(context.schema.fields)
        self._rules = RowRules.of(context.schema)
        self._splitter = Splitter(context.schema, options)
        settings = file_settings(context, options)
        self._budget = WRITE_BUFFER_SIZE.of(options) if WRITE_BUFFER_FOR_APPEND.of(options) else None
        most_at_once = settings.target_size if self._budget is None else self._budget // 4
        self._incoming = RowBuffer(self._schema, min(settings.target_size, most_at_once))
        self._spill = _spill(context, self._schema, options) if WRITE_BUFFER_SPILLABLE.of(options) else None
        self._waiting = WaitingRows[BucketKey](GroupSize(settings.target_size), self._spill)
        self._pipeline = Pipeline(context.threads)
        is_here = native_path(context.storage, "data") is not None
        self._buckets = BucketWriters(
            settings,
            self._splitter.folder,
            self._pipeline,
            most_open=_MOST_OPEN_HERE if is_here else _MOST_OPEN_THERE,
        )
        self._appended = 0
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            self.abort()

    @property
    def held(self) -> int:
        """Bytes of memory held by rows that wait for their row group."""
        return self._waiting.held

    @property
    def spilled(self) -> int:
        """Bytes written to local disk so far."""
        return 0 if self._spill is None else self._spill.written

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows, whose memory must not change afterwards. Raises `SchemaError` if a row violates a check."""
        if not rows.schema.equals(self._schema):
            raise SchemaError(
                f"rows of the schema\n{rows.schema.to_string()}\ncannot be written to a table of the schema\n"
                f"{self._schema.to_string()}",
                hint="anabranch.arrow.convert fits rows to a table.",
            )
        taken = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._incoming.add(self._rules.applied(taken))
        for full in self._incoming.take_full():
            self._distribute(full)

    def finish(self) -> list[CommitMessage]:
        """Write what is left and close all files; they are durable when this returns."""
        is_small = not self._buckets and self._incoming.size <= _INLINE_SIZE
        for rest in self._incoming.take_rest():
            self._distribute(rest)
        self._pipeline.is_inline = is_small and len(self._buckets) <= 1
        pieces = 1 if self._pipeline.is_inline or len(self._buckets) > 1 else self._pipeline.threads
        for key in self._waiting.keys:
            # One bucket after the other, to bound the rows and files in progress.
            for taken in self._waiting.take_rest(key):
                self._append(key, split_evenly(taken, pieces, least_bytes=_LEAST_PIECE))
            self._buckets.end(key)
            self._give_back(at_least=_GIVEN_BACK)
        messages = [
            CommitMessage(key.partition, key.bucket, self._context.schema.bucket, files)
            for key, files in self._buckets.files()
        ]
        self._close()
        return messages

    def abort(self) -> None:
        """Stop, and remove every file written so far, as far as the store allows."""
        self._close(cancel=True)
        self._buckets.abort()

    def _close(self, *, cancel: bool = False) -> None:
        self._finished = True
        self._pipeline.close(cancel=cancel)
        if self._spill is not None:
            self._spill.close()

    def _distribute(self, taken: Measured) -> None:
        if self._budget is not None:
            self._make_room(self._budget, 2 * taken.size)  # sorting them copies them
        rows, counts = self._splitter.split(taken.rows)
        for key, _ in counts:
            self._buckets.add(key)
        for key in self._waiting.add(Measured(rows, taken.size), counts):
            self._append(key, self._waiting.take_full(key))

    def _append(self, key: BucketKey, groups: Iterable[Measured]) -> None:
        """Submit row groups for encoding, within the memory that the waiting rows leave."""
        if self._budget is not None:
            least = min(self._budget // 2, _MOST_UNDER_WAY)
            self._pipeline.most_bytes = max(self._budget - self._waiting.held, least)
        for group in groups:
            self._buckets.append(key, group)
            self._appended += group.size

    def _make_room(self, budget: int, size: int) -> None:
        """Free memory if `size` more bytes would be too many: by spilling, else by small row groups."""
        if self._waiting.held + size <= budget:
            return
        few = budget // 4
        if self._waiting.live > few:
            self._waiting.put_aside()
        for key in self._waiting.in_memory():
            if self._waiting.live <= few:
                break
            self._append(key, self._waiting.take_rest(key))
        if self._waiting.held > self._waiting.live:
            self._waiting.pack()
            self._pipeline.wait()  # what is under way is small, but holds all that was not packed
        self._give_back()

    def _give_back(self, *, at_least: int = 0) -> None:
        """Make Arrow release cached memory, if enough was written since the last time."""
        if self._appended >= at_least:
            self._appended = 0
            pa.default_memory_pool().release_unused()


def _spill(context: WriteContext, schema: pa.Schema, options: Mapping[str, str]) -> Spill:
    return Spill(
        schema,
        max_size=WRITE_BUFFER_SPILL_SIZE.of(options),
        folder=context.spill_folder,
    )


def file_settings(context: WriteContext, options: Mapping[str, str]) -> FileSettings:
    """Return the settings that all files of a write share. Raises `UnsupportedFeatureError`, `OptionError`."""
    check_format(options)
    modes = stats_modes(context.schema)
    return FileSettings(
        storage=context.storage,
        schema=context.schema,
        target_size=TARGET_FILE_SIZE.of(options),
        pages=PageSettings.of(options),
        new_stats=lambda: StatsCollector(context.schema.fields, modes),
        source=context.source,
        continue_sequence=context.schema.bucket > 0,
        runtime=context.runtime,
    )
