"""Collection of rows until there are enough for a row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

MAX_ROWS: Final = 1 << 19
"""Maximum rows of a row group."""

MAX_BYTES: Final = 64 << 20
"""Maximum bytes of a row group, in Arrow's form. Two of these keep two cores busy; readers want no more."""

_FEW_ROWS: Final = 8
_SMALL_COLUMN: Final = 64
"""Bytes that the buffers of a column of few rows rarely exceed."""
_FRAME: Final = 128
"""Bytes that a stream takes for a column beside its values, with those that fill them up to 8."""
_VALUE: Final = 8
"""Bytes of a value that is as large as most."""


def size_of(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of the rows; of few and small ones about.

    To ask Arrow for them takes 2 microseconds for each column, which a row of thousands of columns feels. All buffers
    together are asked for in no time, but those that columns share count once, which may be a thousandth of what they
    come to. That is told by what they would take in a stream, where each column has its own: asked for in a tenth of the time.
    """
    size: int
    if rows.num_rows <= _FEW_ROWS:
        size = max(rows.get_total_buffer_size(), _VALUE * rows.num_rows * rows.num_columns)
        if size <= _SMALL_COLUMN * rows.num_columns and _in_stream(rows) <= size + _FRAME * rows.num_columns:
            return size
    size = rows.nbytes
    return size


def _in_stream(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes that the rows would take in a stream of Arrow."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    return sum(pa.ipc.get_record_batch_size(batch) for batch in batches)


class Measured(NamedTuple):
    """Rows with their size: it is handed on with them, as to ask for it of thousands of columns takes milliseconds."""

    rows: pa.Table
    size: int
    """See `size_of`."""


def measured(rows: pa.Table) -> Measured:
    """Return rows with their size."""
    return Measured(rows, size_of(rows))


class GroupSize:
    """Size at which rows form a row group.

    Args:
        max_bytes: a lower limit than `MAX_BYTES`, for tables with small files.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max(1, min(max_bytes, MAX_BYTES))

    def is_reached(self, rows: int, size: int) -> bool:
        """Whether so many rows of that many bytes are enough."""
        return rows >= MAX_ROWS or size >= self._max_bytes

    def cut(self, taken: Measured) -> tuple[list[Measured], pa.Table]:
        """Divide rows into full row groups and a rest, which may be empty; all share their memory."""
        rows = taken.rows
        size = max(1, min(MAX_ROWS, len(rows) * self._max_bytes // max(1, taken.size)))
        whole = len(rows) - len(rows) % size
        return [measured(rows.slice(start, size)) for start in range(0, whole, size)], rows.slice(whole)


class RowBuffer:
    """Buffer of rows in order, returned in tables of the size of a row group.

    Args:
        max_bytes: see `GroupSize`.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int = MAX_BYTES) -> None:
        self._schema = schema
        self._group_size = GroupSize(max_bytes)
        self._parts: list[pa.Table] = []
        self._rows = 0
        self.size = 0
        """Bytes of the waiting rows."""

    def add(self, rows: pa.Table) -> None:
        """Take in rows, whose memory must not change afterwards."""
        if len(rows):
            self._parts.append(rows)
            self._rows += len(rows)
            self.size += size_of(rows)

    def take_full(self) -> Iterator[Measured]:
        """Yield full tables; what is left is not enough for one."""
        while self._group_size.is_reached(self._rows, self.size):
            groups, rest = self._group_size.cut(self._take())
            yield from groups
            self.add(rest)

    def take_rest(self) -> Iterator[Measured]:
        """Yield all rows: full tables, and at last, if rows are left, a smaller one."""
        yield from self.take_full()
        if self._rows:
            yield self._take()

    def _take(self) -> Measured:
        taken = Measured(pa.concat_tables(self._parts), self.size)
        self._parts, self._rows, self.size = [], 0, 0
        return taken


def split_evenly(taken: Measured, pieces: int, *, least_bytes: int) -> list[Measured]:
    """Divide the rows into at most `pieces` tables of about equal length, but not too small ones."""
    count = max(1, min(pieces, taken.size // least_bytes))
    if count == 1:
        return [taken]
    size = -(-len(taken.rows) // count)
    return [measured(taken.rows.slice(start, size)) for start in range(0, len(taken.rows), size)]
