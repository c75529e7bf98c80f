"""What reading asks of a data file, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from anabranch.errors import CorruptTableError
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import SplitFile


class Piece(Protocol):
    """Rows of a data file that lie together: a row group, a stripe, a whole small file."""

    @property
    def rows(self) -> int | None:
        """How many; None if only reading tells."""
        ...

    def size(self, columns: Sequence[Field]) -> int:
        """About how many bytes the columns take in memory."""
        ...

    def read(self, columns: Sequence[Field]) -> pa.Table:
        """Columns as the file has them, in any order, others among them; those it lacks are left out."""
        ...

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        """The same, some rows at a time, so that memory stays small."""
        ...


class DataFile(Protocol):
    """A data file whose footer was read. Its pieces may be read by several threads at a time."""

    @property
    def path(self) -> str:
        """Relative to the table's root."""
        ...

    def pieces(self) -> Sequence[Piece]:
        """All of the file, in order."""
        ...


def check_rows(found: int, file: SplitFile) -> None:
    """Refuse a file that has not the rows its manifest says. Raises `CorruptTableError`."""
    if found != file.row_count:
        raise CorruptTableError(
            f"the file has {found} rows, its manifest entry says {file.row_count}",
            path=file.path,
            hint="The file was replaced or damaged. If an older snapshot or tag does not use it, read that.",
        )


def without_columns(rows: int) -> pa.Table:
    """A table of no columns that knows how many rows it has."""
    return pa.table({"": pa.nulls(rows)}).select([])
