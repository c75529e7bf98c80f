"""Writing of the data files of buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch.arrow.parquet_encode import PageSettings, encode
from anabranch.arrow.parquet_footer import JoinedFile
from anabranch.arrow.pipeline import Pipeline
from anabranch.arrow.row_buffer import Measured
from anabranch.arrow.splitting import BucketKey
from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import DataFileMeta, FileSource
from anabranch.format.records.layout import data_file_name
from anabranch.format.records.stats import StatsCollector
from anabranch.format.schema.rules import WRITTEN_FORMAT
from anabranch.format.schema.table_schema import TableSchema
from anabranch.runtime import Runtime
from anabranch.storage.protocol import Sink, Storage

_LEAST_SIZE: Final = 1 << 20
"""Minimum bytes that a row group in progress counts for, since its rows are not all that it takes."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Settings that all files of one write share."""

    storage: Storage
    schema: TableSchema
    target_size: int
    """Approximate size in bytes at which a file is closed."""
    pages: PageSettings
    new_stats: Callable[[], StatsCollector]
    source: FileSource
    continue_sequence: bool
    """Whether sequence numbers run on from file to file, as in tables of fixed buckets."""
    runtime: Runtime


class BucketWriters:
    """Writers of all buckets of one task.

    Args:
        settings: of their files.
        folder_of: where files of a bucket lie, relative to the table's root.
        pipeline: what they share.
        most_open: how many files are open at once. Each may hold a part of an upload in memory, and is a
            descriptor of the process; before one more is opened that which waits the longest for rows is closed,
            however small it is.
    """

    def __init__(
        self,
        settings: FileSettings,
        folder_of: Callable[[BucketKey], str],
        pipeline: Pipeline,
        *,
        most_open: int,
    ) -> None:
        self._settings = settings
        self._folder_of = folder_of
        self._pipeline = pipeline
        self._most_open = most_open
        self._writers: dict[BucketKey, BucketWriter] = {}
        self._open: dict[BucketKey, None] = {}  # the last one that got rows at the end

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, key: BucketKey) -> None:
        """Create a writer for a bucket. `files` returns the buckets in the order of these calls."""
        if key not in self._writers:
            self._writers[key] = BucketWriter(self._settings, self._folder_of(key), self._pipeline)

    def append(self, key: BucketKey, group: Measured) -> None:
        """Write the rows as one row group of the bucket."""
        self._open.pop(key, None)
        if len(self._open) >= self._most_open:
            self.end(next(iter(self._open)))
        self._open[key] = None
        self._writers[key].append(group)

    def end(self, key: BucketKey) -> None:
        """Close the bucket's file, because no rows follow for now."""
        self._open.pop(key, None)
        self._writers[key].end()

    def files(self) -> Iterator[tuple[BucketKey, tuple[DataFileMeta, ...]]]:
        """Yield the files of each bucket, once they are durable."""
        for key in [*self._open]:
            self.end(key)
        for key, writer in self._writers.items():
            yield key, writer.files()

    def abort(self) -> None:
        """Remove every file, as far as the store allows, after the pipeline was closed."""
        for writer in self._writers.values():
            writer.abort()


class BucketWriter:
    """Writer of row groups, in the order they are appended, to files of about the target size.

    Encoding and writing happen in the threads of the pipeline; an error there is raised by the next call.
    """

    def __init__(self, settings: FileSettings, folder: str, pipeline: Pipeline) -> None:
        self._settings = settings
        self._folder = folder
        self._pipeline = pipeline
        self._writer_id = settings.runtime.ids.uuid()
        self._file: _OpenFile | None = None
        self._done: list[DataFileMeta] = []
        self._last: Future[None] | None = None

    def append(self, group: Measured) -> None:
        """Write the rows as one row group."""
        if self._last is not None and self._last.done():
            self._last.result()
        held = max(group.size, _LEAST_SIZE)
        encoded = self._pipeline.encode(held, encode, group, self._settings.pages)
        self._last = self._pipeline.write(self._write, group.rows, held, encoded, self._last)

    def end(self) -> None:
        """Close the last file; rows that follow go to a new one."""
        self._last = self._pipeline.write(self._close, self._last)

    def files(self) -> tuple[DataFileMeta, ...]:
        """Return all files, once they are durable."""
        if self._last is not None:
            self._last.result()
        return tuple(self._done)

    def abort(self) -> None:
        """Remove every file, as far as the store allows, after the pipeline was closed."""
        names = [file.file_name for file in self._done]
        if self._file is not None:
            self._file.abandon()
            names.append(self._file.name)  # an error at its very end may have left it complete
            self._file = None
        for name in names:
            with suppress(AnabranchError):
                self._settings.storage.delete(f"{self._folder}/{name}")

    def _write(
        self, rows: pa.Table, size: int, encoded: Future[pa.Buffer], before: Future[None] | None
    ) -> None:
        try:
            if before is not None:
                before.result()
            if self._file is None:
                number = len(self._done)
                self._file = _OpenFile(
                    self._settings, self._folder, data_file_name(self._writer_id, number, WRITTEN_FORMAT)
                )
            self._file.add(rows, encoded)
        finally:
            self._pipeline.release(size)
        if self._file.size >= self._settings.target_size:
            self._close(None)

    def _close(self, before: Future[None] | None) -> None:
        if before is not None:
            before.result()
        if self._file is None:
            return
        continues = self._settings.continue_sequence and self._done
        first = self._done[-1].max_sequence_number + 1 if continues else 0
        self._done.append(self._file.finish(first))
        self._file = None


class _OpenFile:
    """Data file that is being written."""

    def __init__(self, settings: FileSettings, folder: str, name: str) -> None:
        self._settings = settings
        self.name = name
        self._stats = settings.new_stats()
        self._rows = 0
        self._joined = JoinedFile()
        self._scope = ExitStack()
        self._sink: Sink = self._scope.enter_context(settings.storage.open_output(f"{folder}/{name}"))

    @property
    def size(self) -> int:
        return self._joined.size

    def add(self, rows: pa.Table, encoded: Future[pa.Buffer]) -> None:
        self._stats.update(rows)  # while they are being encoded
        self._sink.write(self._joined.add(memoryview(encoded.result())))
        self._rows += len(rows)

    def finish(self, first_sequence_number: int) -> DataFileMeta:
        tail = self._joined.tail()
        self._sink.write(tail)
        now = self._settings.runtime.clock.now_millis()  # storing it may take long
        self._scope.close()
        return DataFileMeta(
            file_name=self.name,
            file_size=self._joined.size + len(tail),
            row_count=self._rows,
            value_stats=self._stats.finish(),
            min_sequence_number=first_sequence_number,
            max_sequence_number=first_sequence_number + self._rows - 1,
            schema_id=self._settings.schema.id,
            creation_time=now + self._settings.runtime.clock.local_offset_millis(now),
            file_source=self._settings.source,
            written_millis=now,
        )

    def abandon(self) -> None:
        """Discard the file, ignoring errors of the store."""
        abandoned = CancelledError()
        with suppress(CancelledError, AnabranchError):
            self._scope.__exit__(CancelledError, abandoned, None)
