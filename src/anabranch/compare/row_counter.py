"""Counts how often each row occurs in two bags of rows, in bounded memory.

Rows come in any order and are buffered. Beyond `HELD_BYTES` they go to local disk, in parts by a hash of the row, so
that equal rows meet in one part. A part is then counted on its own, piece by piece: it takes the memory of its
distinct rows. So memory is bounded by `HELD_BYTES`, and by a part, whatever the number of rows.

Rows are equal as in SQL's set operations: null equals null, NaN equals NaN, 0.0 equals -0.0, and a map equals one with
the same entries in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow import nested
from anabranch.arrow.spill import Spill, SpilledRows

HELD_BYTES: Final = 64 << 20
"""Bytes of rows, in Arrow's form, buffered in memory."""
PART_BYTES: Final = 32 << 20
"""Approximate bytes of rows in a part."""
_MOST_PARTS: Final = 4096
_COUNTS: Final = {"left": "\0left", "right": "\0right"}
"""Names of the count columns, beside those of the rows; no column of a table has such a name."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CountedRows:
    """Distinct rows, and how often each occurs in either bag."""

    rows: pa.Table
    left: Counts
    right: Counts


class RowCounter:
    """Takes rows of two bags, and counts how often each distinct one occurs.

    Args:
        schema: of the rows; one column at least.
        row_count: approximate number of rows to come, of both bags.
        cancel: let a row of one bag cancel an equal one of the other: what is left is the difference of the bags.
        held_bytes, part_bytes: see `HELD_BYTES` and `PART_BYTES`.
        folder: for rows on disk; the system's folder for temporary files if None.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_count: int,
        *,
        cancel: bool = False,
        held_bytes: int = HELD_BYTES,
        part_bytes: int = PART_BYTES,
        folder: str | None = None,
    ) -> None:
        counts = [pa.field(name, pa.int64()) for name in _COUNTS.values()]
        self._schema = pa.schema([*schema, *counts])
        self._row_count = row_count
        self._cancel = cancel
        self._held_bytes = held_bytes
        self._part_bytes = part_bytes
        self._spill = Spill(self._schema, folder=folder)
        self._waiting: list[pa.Table] = []
        self._held = 0
        self._parts: list[_Part] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spill.close()

    @property
    def spilled(self) -> int:
        """Bytes written to local disk so far."""
        return self._spill.written

    def add(self, rows: pa.Table | pa.RecordBatch, bag: Literal["left", "right"]) -> None:
        """Add rows of a bag. Raises `StorageError` if the disk for buffered rows is full."""
        if not rows.num_rows:
            return
        ones, none = np.ones(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.int64)
        counts = (ones, none) if bag == "left" else (none, ones)
        columns = [*rows.columns, *map(pa.array, counts)]
        self._waiting.append(pa.Table.from_arrays(columns, schema=self._schema))
        self._held += self._waiting[-1].nbytes
        if self._held > self._held_bytes:
            self._put_aside()

    def counted(self) -> Iterator[CountedRows]:
        """Yield the distinct rows of both bags, in no particular order; nothing may be added afterwards."""
        if not self._parts:
            self._parts = [_Part()]
            self._parts[0].memory, self._waiting = self._waiting, []
        elif self._waiting:
            self._put_aside()
        while self._parts:
            table = self._fold(self._parts.pop())
            if table is not None and table.num_rows:
                left, right = (table.column(name).to_numpy() for name in _COUNTS.values())
                yield CountedRows(table.drop_columns([*_COUNTS.values()]), left, right)

    def _put_aside(self) -> None:
        """Move all buffered rows to their parts."""
        table = pa.concat_tables(self._waiting)
        if not self._parts:
            size = self._held // table.num_rows * self._row_count
            count = max(2, min(_MOST_PARTS, -(-max(size, self._held) // self._part_bytes)))
            self._parts = [_Part() for _ in range(count)]
        self._waiting, self._held = [], 0
        parts = (_keys(table).hash_rows(seed=0) % len(self._parts)).to_numpy()
        order = np.argsort(parts.astype(np.uint16), kind="stable")
        counts = np.bincount(parts, minlength=len(self._parts))
        numbers = np.flatnonzero(counts)
        sorted_rows = table.take(pa.array(order))
        starts = np.cumsum(counts) - counts
        slices = (sorted_rows.slice(int(starts[n]), int(counts[n])) for n in numbers)
        for number, place in zip(numbers.tolist(), self._spill.put(slices), strict=True):
            self._parts[number].disk.append(place)

    def _fold(self, part: _Part) -> pa.Table | None:
        """Return all rows of a part, counted."""
        counted, pending, size = None, list[pa.Table](), 0
        while part.disk or part.memory:
            pending.append(part.disk.pop().take() if part.disk else part.memory.pop())
            size += pending[-1].nbytes
            if size >= self._part_bytes or not (part.disk or part.memory):
                whole = pending if counted is None else [counted, *pending]
                counted = collapsed(pa.concat_tables(whole), cancel=self._cancel)
                pending, size = [], 0
        return counted


@dataclass(eq=False)
class _Part:
    """Rows of one part."""

    disk: list[SpilledRows] = field(default_factory=list)
    memory: list[pa.Table] = field(default_factory=list)


def collapsed(table: pa.Table, *, cancel: bool) -> pa.Table:
    """Return the distinct rows, their counts added up; with `cancel`, without those that both bags have as often."""
    keys = _keys(table)
    left, right = (pl.Series(side, table.column(name).to_numpy()) for side, name in _COUNTS.items())
    grouped = (
        keys.with_columns(left, right)
        .with_row_index("row")
        .group_by(keys.columns)
        .agg(pl.col("left").sum(), pl.col("right").sum(), pl.col("row").first())
        .sort("row")
    )
    if cancel:
        both = pl.min_horizontal("left", "right")
        grouped = grouped.with_columns(pl.col("left") - both, pl.col("right") - both)
        grouped = grouped.filter((pl.col("left") > 0) | (pl.col("right") > 0))
    rows = table.drop_columns([*_COUNTS.values()]).take(pa.array(grouped["row"].to_numpy()))
    for side, name in _COUNTS.items():
        rows = rows.append_column(pa.field(name, pa.int64()), pa.array(grouped[side].to_numpy()))
    return rows


def _keys(table: pa.Table) -> pl.DataFrame:
    """Return the columns so that equal rows are equal to Polars; named by number, as Polars needs unique names."""
    columns = [c for c in table.column_names if c not in _COUNTS.values()]
    arrays = [_with_sorted_maps(table.column(name).combine_chunks()) for name in columns]
    frame = pl.from_arrow(pa.Table.from_arrays(arrays, names=[str(i) for i in range(len(arrays))]))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _with_sorted_maps(array: Any) -> Any:
    """Return the array with the entries of its maps, at any depth, sorted by key."""
    kinds = pa.types
    if not has_map(array.type):
        return array
    if kinds.is_struct(array.type):
        children = [_with_sorted_maps(array.field(i)) for i in range(array.type.num_fields)]
        return nested.with_children(array, children, array.type)
    array = nested.without_hidden(array)
    if kinds.is_list(array.type):
        return nested.with_values(array, _with_sorted_maps(nested.list_values(array)), array.type)
    keys, items = nested.map_entries(array)
    items = _with_sorted_maps(items)
    if not kinds.is_nested(array.type.key_type):
        parents = np.repeat(np.arange(len(array)), np.diff(array.offsets.to_numpy()))
        entries = pa.table({"row": parents, "key": keys})
        order = pc.sort_indices(entries, [("row", "ascending"), ("key", "ascending")])
        keys, items = keys.take(order), items.take(order)
    return nested.with_entries(array, keys, items, array.type)


def has_map(data_type: pa.DataType) -> bool:
    """Whether values of a type contain maps, at any depth."""
    if pa.types.is_map(data_type):
        return True
    if not pa.types.is_nested(data_type):
        return False
    return any(has_map(data_type.field(i).type) for i in range(data_type.num_fields))
