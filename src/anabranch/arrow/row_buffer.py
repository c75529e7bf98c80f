"""Gathering rows until there are enough for a row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from anabranch.arrow.spill import Spill, SpilledRows

MAX_ROWS: Final = 1 << 19
"""Most rows of a row group."""

MAX_BYTES: Final = 64 << 20
"""Most bytes of a row group, in Arrow's form. Two of these keep two cores busy; readers want no more."""


class RowBuffer:
    """Rows in the order they came, given back in tables of the size of a row group.

    Args:
        max_bytes: a lower limit than `MAX_BYTES`, for tables with small files.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int = MAX_BYTES) -> None:
        self._schema = schema
        self._max_bytes = max(1, min(max_bytes, MAX_BYTES))
        self._parts: list[pa.Table | SpilledRows] = []
        self._rows = 0
        self._bytes = 0
        self.bytes_in_memory = 0

    def add(self, rows: pa.Table) -> None:
        if len(rows):
            size = rows.nbytes
            self._parts.append(rows)
            self._rows += len(rows)
            self._bytes += size
            self.bytes_in_memory += size

    def take_full(self) -> Iterator[pa.Table]:
        """Full tables; what is left is not enough for one."""
        while self._rows >= MAX_ROWS or self._bytes >= self._max_bytes:
            rows = self._take()
            size = max(1, min(MAX_ROWS, len(rows) * self._max_bytes // max(1, rows.nbytes)))
            whole = len(rows) - len(rows) % size
            for start in range(0, whole, size):
                yield rows.slice(start, size)
            self.add(rows.slice(whole))

    def take_rest(self) -> Iterator[pa.Table]:
        """Everything there is: full tables and at last, if rows are left, one that is not."""
        yield from self.take_full()
        if self._rows:
            yield self._take()

    def put_aside(self, spill: Spill) -> None:
        """Have the rows that are in memory wait on disk."""
        tables = [part for part in self._parts if isinstance(part, pa.Table)]
        if tables:
            aside = [part for part in self._parts if isinstance(part, SpilledRows)]
            self._parts = [*aside, spill.write(pa.concat_tables(tables))]
            self.bytes_in_memory = 0

    def _take(self) -> pa.Table:
        parts, self._parts = self._parts, []
        self._rows = self._bytes = self.bytes_in_memory = 0
        return pa.concat_tables([part if isinstance(part, pa.Table) else part.load() for part in parts])


def split_evenly(rows: pa.Table, pieces: int, *, least_bytes: int) -> list[pa.Table]:
    """The table cut into at most `pieces` tables of about equal length, unless they got too small."""
    count = max(1, min(pieces, rows.nbytes // least_bytes))
    size = max(1, -(-len(rows) // count))
    return [rows.slice(start, size) for start in range(0, len(rows), size)]
