"""Spilling of rows to local disk, so that memory is bounded however many partitions are written.

The disk is taken in segments: unnamed temporary files, which are gone when the process ends, however it ends.
(Where the system knows no unnamed files it is told to remove them when they are closed; it closes them for the
dead.) Many small tables are put aside together, as record batches of Arrow's IPC format one after the other, and
each is read back by its place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final, Self

import pyarrow as pa

from anabranch.errors import StorageError

SEGMENT_SIZE: Final = 1 << 30
"""Bytes after which a new segment is begun. A segment is freed when all of its rows were taken."""

_PIECE_SIZE: Final = 4 << 20
"""Row bytes that are encoded together, so that the cost of the schema and of a write is negligible."""


class Spill:
    """Tables of one schema on local disk; not thread-safe.

    Args:
        schema: of the tables. No column may be dictionary-encoded.
        max_size: most bytes of disk that may be taken; None for what there is.
        folder: where; the system's folder for temporary files if None.
    """

    def __init__(self, schema: pa.Schema, *, max_size: int | None = None, folder: str | None = None) -> None:
        self._schema = schema
        self._max_size = max_size
        most = SEGMENT_SIZE if max_size is None else max_size
        self._segment_size = min(SEGMENT_SIZE, most // 8)
        self._piece_size = min(_PIECE_SIZE, most // 16)
        self._folder = folder  # the system's is looked for when it is needed: it may be full
        self._segments: list[_Segment] = []
        self._header = schema.serialize()
        self.written = 0
        """Total bytes written to disk so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _place(self) -> str:
        return self._folder or "the folder for temporary files"

    @property
    def size(self) -> int:
        """Bytes of disk currently in use."""
        return sum(segment.size for segment in self._segments)

    def put(self, tables: Iterable[pa.Table]) -> list[SpilledRows]:
        """Spill as many of the first tables as the space limit allows.

        Raises:
            StorageError: the disk is full, or cannot be written.
        """
        placed: list[SpilledRows] = []
        for piece in _pieces(tables, self._piece_size):
            data, ends = self._encoded(piece)
            if self._max_size is not None and self.size + data.size > self._max_size:
                break
            placed += self._placed(data, ends)
        return placed

    def take(self, places: Iterable[SpilledRows]) -> pa.Table:
        """Return the tables at these places as one, in order. Each can be taken once, which frees its disk.

        Raises:
            StorageError: the disk cannot be read.
        """
        parts = [self._header, *(self._read(rows) for rows in places)]
        options = pa.ipc.IpcReadOptions(use_threads=False)
        return pa.ipc.open_stream(pa.py_buffer(b"".join(parts)), options=options).read_all()

    def close(self) -> None:
        """Free all disk; rows not read yet are lost."""
        for segment in self._segments:
            segment.file.close()
        self._segments.clear()

    def _encoded(self, tables: Sequence[pa.Table]) -> tuple[pa.Buffer, list[int]]:
        """Return the bytes of a stream without its header and its end, and the offsets of the tables' ends."""
        sink = pa.BufferOutputStream()
        # Threads would cost more than they save with small tables, and are busy encoding files.
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
        stream = pa.ipc.new_stream(sink, self._schema, options=options)
        ends = []
        for table in tables:
            for batch in table.combine_chunks().to_batches():
                stream.write_batch(batch)
            ends.append(max(0, sink.tell() - self._header.size))  # the header comes with the first batch
        return sink.getvalue().slice(self._header.size), ends

    def _placed(self, data: pa.Buffer, ends: Sequence[int]) -> list[SpilledRows]:
        try:
            segment = self._open_segment()
            segment.write(data)
        except OSError as error:
            raise StorageError(
                f"cannot put {data.size} bytes of rows aside in {self._place}: {error.strerror}",
                hint="point TMPDIR at a disk with room, write fewer partitions at a time, or limit the room with "
                "'write-buffer-spill.max-disk-size'.",
            ) from error
        begins = [0, *ends[:-1]]
        start = segment.size - data.size
        segment.waiting += len(ends)
        self.written += data.size
        return [
            SpilledRows(self, segment, start + begin, end - begin)
            for begin, end in zip(begins, ends, strict=True)
        ]

    def _read(self, rows: SpilledRows) -> bytes:
        segment = rows.segment
        try:
            data = segment.read(rows.offset, rows.length)
        except OSError as error:
            raise StorageError(
                f"cannot read rows that were put aside in {self._place}: {error.strerror}",
                hint="the disk may be failing; repeat the write.",
            ) from error
        segment.waiting -= 1
        if not segment.waiting:
            self._segments.remove(segment)
            segment.file.close()
        return data

    def _open_segment(self) -> _Segment:
        if not self._segments or self._segments[-1].size >= self._segment_size:
            file = tempfile.TemporaryFile(prefix="anabranch-", dir=self._folder, buffering=0)  # noqa: SIM115 see `close`
            self._segments.append(_Segment(file))
        return self._segments[-1]


@dataclass(eq=False, slots=True)
class _Segment:
    """A temporary file, unbuffered."""

    file: IO[bytes]
    size: int = 0
    waiting: int = 0
    """Number of its tables that were not taken yet."""

    def write(self, data: pa.Buffer) -> None:
        self.file.seek(self.size)
        rest = memoryview(data)
        while rest:
            rest = rest[self.file.write(rest) :]
        self.size += data.size

    def read(self, offset: int, length: int) -> bytes:
        self.file.seek(offset)
        return self.file.read(length)


@dataclass(frozen=True, eq=False, slots=True)
class SpilledRows:
    """Location of a table in a spill."""

    spill: Spill
    segment: _Segment
    offset: int
    length: int

    def take(self) -> pa.Table:
        """Return the table, once; see `Spill.take`."""
        return self.spill.take([self])


def _pieces(tables: Iterable[pa.Table], least_bytes: int) -> Iterator[Sequence[pa.Table]]:
    """Group tables to at least `least_bytes` each."""
    piece: list[pa.Table] = []
    size = 0
    for table in tables:
        piece.append(table)
        size += table.nbytes
        if size >= least_bytes:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
