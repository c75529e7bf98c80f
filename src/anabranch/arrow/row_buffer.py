"""Collection of rows until there are enough for a row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

MAX_ROWS: Final = 1 << 19
"""Maximum rows of a row group."""

MAX_BYTES: Final = 64 << 20
"""Maximum bytes of a row group, in Arrow's form. Two of these keep two cores busy; readers want no more."""


_ALIGNMENT: Final = 64
"""Bytes that Arrow gives each buffer at least."""


def size_of(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of the rows.

    To ask Arrow for them takes 2 microseconds for each column, which a row of thousands of columns feels. Where there are
    few bytes in a column they are those of the buffers, although others may be in these too.
    """
    buffers: int = rows.get_total_buffer_size()
    size: int = buffers if buffers <= _ALIGNMENT * rows.num_columns else rows.nbytes
    return size


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

    def cut(self, rows: pa.Table) -> tuple[list[pa.Table], pa.Table]:
        """Divide rows into full row groups and a rest, which may be empty; all share their memory."""
        size = max(1, min(MAX_ROWS, len(rows) * self._max_bytes // max(1, size_of(rows))))
        whole = len(rows) - len(rows) % size
        return [rows.slice(start, size) for start in range(0, whole, size)], rows.slice(whole)


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

    def take_full(self) -> Iterator[pa.Table]:
        """Yield full tables; what is left is not enough for one."""
        while self._group_size.is_reached(self._rows, self.size):
            groups, rest = self._group_size.cut(self._take())
            yield from groups
            self.add(rest)

    def take_rest(self) -> Iterator[pa.Table]:
        """Yield all rows: full tables, and at last, if rows are left, a smaller one."""
        yield from self.take_full()
        if self._rows:
            yield self._take()

    def _take(self) -> pa.Table:
        parts, self._parts = self._parts, []
        self._rows = self.size = 0
        return pa.concat_tables(parts)


def split_evenly(rows: pa.Table, pieces: int, *, least_bytes: int) -> list[pa.Table]:
    """Divide the table into at most `pieces` tables of about equal length, but not too small ones."""
    count = max(1, min(pieces, size_of(rows) // least_bytes)) if pieces > 1 else 1
    size = max(1, -(-len(rows) // count))
    return [rows.slice(start, size) for start in range(0, len(rows), size)]
