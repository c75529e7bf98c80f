"""Rows that wait on disk for their turn, so that memory is bounded however many partitions are written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

import pyarrow as pa

from anabranch.errors import StorageError


class Spill:
    """An unnamed temporary file, made when first needed and gone when closed; for one thread."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0
        self._options = pa.ipc.IpcWriteOptions(compression="lz4")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, table: pa.Table) -> SpilledRows:
        """Put rows aside. Raises `StorageError` when the temporary folder is full."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=self._options) as stream:
            stream.write_table(table)
        data = sink.getvalue()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="anabranch-")  # noqa: SIM115 closed by `close`
            self._file.seek(self._end)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"cannot put {data.size} bytes aside in {tempfile.gettempdir()}: {error.strerror}",
                hint="Point TMPDIR at a disk with room, or write fewer partitions at a time.",
            ) from error
        spilled = SpilledRows(self._file, self._end, data.size)
        self._end += data.size
        return spilled

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Rows in a spill, while it is open."""

    _file: IO[bytes]
    _offset: int
    _length: int

    def load(self) -> pa.Table:
        self._file.seek(self._offset)
        return pa.ipc.open_stream(self._file.read(self._length)).read_all()
