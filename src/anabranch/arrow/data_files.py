"""Interface of data files for reading, whatever their format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from anabranch.errors import CorruptTableError
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import SplitFile


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
