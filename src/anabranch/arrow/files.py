"""Opening data files for reading."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import SplitFile
from anabranch.storage.protocol import Storage

T = TypeVar("T")

Range = tuple[int, int]
"""Offset of the first byte and number of bytes."""

_FOOTER_SIZE: Final = 64 << 10
"""Bytes at the end of a file that are fetched in one request: most footers are smaller."""

_SMALL_GAP: Final = 256 << 10
"""Bytes of a gap up to which fetching it is cheaper than one more request."""


def native_path(storage: Storage, path: str) -> str | None:
    """Return the object's path on this machine, if the store is local; readers then need no Python."""
    locate = getattr(storage, "native_path", None)
    found = locate(path) if callable(locate) else None
    return found if isinstance(found, str) else None


def open_file(storage: Storage, file: SplitFile, wanted: Iterable[Range] | None = None) -> pa.NativeFile:
    """Open a data file for one reader.

    Args:
        wanted: what will be read, which is fetched at once from a distant store; None for the footer.

    Raises:
        NotFoundError: there is no such file.
        StorageError: it cannot be read.
    """
    here = open_here(storage, file.path, pa.OSFile)
    if here is not None:
        return here
    if wanted is None:
        start = max(0, file.size - _FOOTER_SIZE)
        wanted = [(start, file.size - start)]
    return pa.PythonFile(_FetchedFile(storage, file, wanted), mode="r")


def open_whole(storage: Storage, file: SplitFile) -> pa.NativeFile:
    """Open like `open_file`, for formats with scattered reads: a distant file is fetched as a whole."""
    here = open_here(storage, file.path, pa.OSFile)
    return pa.BufferReader(storage.get(file.path)) if here is None else here


def open_here(storage: Storage, path: str, opened_by: Callable[[bytes], T]) -> T | None:
    """Open a file of a local store by its name; None if the store is another one. Raises `UnreadableFileError`, `OSError`."""
    opened = getattr(storage, "native_input", None)
    if not callable(opened):
        return None
    try:
        with opened(path) as name:
            return opened_by(os.fsencode(name))  # a name need not be UTF-8
    except IsADirectoryError as error:
        raise NotFoundError(f"{path} is not a regular file") from error


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate errors of opening and decoding a data file to ours."""
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise NotFoundError(
            f"the data file {path} does not exist",
            hint="If the snapshot that is read has expired since the read was planned, plan the read again. If it is "
            "still there, the file was removed although it is needed: `restore-orphan-files` brings back what a cleaning "
            "moved away; an older snapshot, tag or savepoint may do without the file.",
        ) from error
    except AnabranchError:
        raise
    except MemoryError as error:  # Arrow's is one of its exceptions too
        raise StorageError(
            f"there is not enough memory to read the data file {path}: {error}",
            hint="give the process more memory, or read fewer columns; batches of a scan take less than all of its rows.",
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise StorageError(f"cannot read the data file {path}: {error}", retryable=True) from error
        raise damaged(path, error) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise damaged(path, error) from error


def damaged(path: str, what: object) -> CorruptTableError:
    """Return the error for a damaged data file."""
    return CorruptTableError(
        f"the data file cannot be decoded: {what}",
        path=path,
        hint="The file is damaged. If an older snapshot or tag does not use it, read that.",
    )


class _FetchedFile(io.RawIOBase):
    """File of a distant store: some ranges are prefetched, others fetched on demand."""

    def __init__(self, storage: Storage, file: SplitFile, wanted: Iterable[Range]) -> None:
        super().__init__()
        self._storage = storage
        self._path = file.path
        self._size = file.size
        self._position = 0
        self._parts = [(start, self._fetch(start, size)) for start, size in _joined(wanted)]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, self._size - self._position)
        size = rest if size is None or size < 0 else min(size, rest)
        data = self._look_up(self._position, size)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _look_up(self, start: int, size: int) -> bytes:
        for begin, data in self._parts:
            if begin <= start and start + size <= begin + len(data):
                return data[start - begin : start - begin + size]
        return self._fetch(start, size)

    def _fetch(self, start: int, size: int) -> bytes:
        return self._storage.get_range(self._path, start, size)


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, merged across small gaps."""
    joined: list[Range] = []
    for start, size in sorted(ranges):
        if joined and start - sum(joined[-1]) <= _SMALL_GAP:
            first, before = joined[-1]
            joined[-1] = (first, max(before, start + size - first))
        else:
            joined.append((start, size))
    return joined


class Piece(Protocol):
    """Contiguous rows of a data file: a row group, a stripe, a whole small file."""

    @property
    def rows(self) -> int | None:
        """Number of rows; None if only reading tells."""
        ...

    def size(self, columns: Sequence[Field]) -> int:
        """Estimate the bytes that the columns take in memory."""
        ...

    def read(self, columns: Sequence[Field]) -> pa.Table:
        """Return columns as the file has them, in any order, perhaps with others; those it lacks are left out."""
        ...

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        """Yield the same some rows at a time, so that memory stays small."""
        ...


class DataFile(Protocol):
    """A data file whose footer was read. Several threads may read its pieces."""

    @property
    def path(self) -> str:
        """Path relative to the table's root."""
        ...

    def pieces(self) -> Sequence[Piece]:
        """Return all pieces of the file, in order."""
        ...


def check_rows(found: int, file: SplitFile) -> None:
    """Check a file's number of rows against its manifest. Raises `CorruptTableError`."""
    if found != file.row_count:
        raise CorruptTableError(
            f"the file has {found} rows, its manifest entry says {file.row_count}",
            path=file.path,
            hint="The file was replaced or damaged. If an older snapshot or tag does not use it, read that.",
        )


def without_columns(rows: int) -> pa.Table:
    """Return a table without columns that keeps its number of rows."""
    return pa.table({"": pa.nulls(rows)}).select([])
