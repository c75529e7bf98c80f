"""Sorted rewriting of a partition's files, in bounded memory.

The files are read twice. First only the columns to sort by, to take a sample: it gives the ranks that keys are made
of, and where to cut the keys into ranges of about as many rows. Then everything: each row goes to its range, which
waits in memory or on local disk. At last one range after the other is sorted and written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.arrow.ordered_values import shortened
from anabranch.arrow.reader import ReadContext, read_batches
from anabranch.arrow.rewrite import ReplacementWriter, split_of
from anabranch.arrow.row_buffer import MAX_BYTES, Measured, RowBuffer
from anabranch.arrow.sort_key import KeyMaker, Keys, SortOrder
from anabranch.arrow.spill import Spill, SpilledRows
from anabranch.arrow.writer import WriteContext
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import no_rows, to_arrow_schema
from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
from anabranch.kernel.scan.split import Split
from anabranch.options import WRITE_BUFFER_SIZE

SAMPLE_ROWS: Final = 1 << 17
"""Approximate number of rows sampled from a partition; all of a smaller one."""
_SAMPLE_LENGTH: Final = 256
"""Bytes of a text that a sample keeps. Rows sort by all of their bytes; only range bounds are cut."""
_MOST_RANGES: Final = 4096
_KEY: Final = "\0key"
"""Name of the additional column of keys; no column of the table can have it."""

Range = npt.NDArray[np.intp]


def sort(
    task: CompactionTask, context: WriteContext, schemas: Callable[[int], TableSchema], order: SortOrder
) -> Rewrite:
    """Write the rows of the task's files to new files, globally sorted; durable when this returns.

    Memory is bounded by the option ``write-buffer-size`` as it is when rows are written, whatever their number. If
    more rows than fit have values that the sample cannot tell apart, they are sorted piece by piece: their files are
    no wider for it, but rows of `order` are not in their exact order among these.

    Arguments and errors are those of `rewrite`, with:
        order: what to sort by, existing columns of atomic types.
    """
    reading = ReadContext(context.storage, context.schema.fields, schemas, context.threads)
    split = split_of(task, context)
    plan = SortPlan.of(order, sample(split, reading, order, share=sample_share(task.row_count)))
    with ReplacementWriter(task, context) as writer, RangeSorter(plan, context, task.row_count) as sorter:
        for batch in read_batches([split], reading):
            sorter.add(pa.Table.from_batches([batch]))
        for rows in sorter.sorted():
            writer.write(rows)
        return writer.finish()


def sample_share(row_count: int) -> float:
    """Return the fraction of so many rows to sample."""
    return min(1.0, SAMPLE_ROWS / max(1, row_count))


def sample(
    split: Split, reading: ReadContext, order: SortOrder, *, share: float, first_row: int = 0
) -> pa.Table:
    """Return the columns to sort by, as `SortOrder.columns` has them, of some rows of a split.

    Args:
        split: where the rows are.
        reading: the table.
        order: what they will be sorted by.
        share: of the rows, to be chosen without regard to where they are.
        first_row: number of the first row among all that are sorted, which decides on those that are chosen.
    """
    schema = to_arrow_schema([f for name in order.by for f in reading.fields if f.name == name])
    parts = [_sample_of(no_rows(schema), order)]
    for batch in read_batches([split], reading, columns=order.by):
        chosen = _scattered(first_row, batch.num_rows) < share
        first_row += batch.num_rows
        parts.append(_sample_of(pa.Table.from_batches([batch.filter(pa.array(chosen))]), order))
    return pa.concat_tables(parts)


@dataclass(frozen=True, slots=True)
class SortPlan:
    """Plan for sorting the rows of one partition, made from a sample. Picklable."""

    order: SortOrder
    keys: KeyMaker
    sampled: Keys
    """Sorted keys of the sampled rows."""

    @classmethod
    def of(cls, order: SortOrder, sample: pa.Table) -> SortPlan:
        columns = [column.combine_chunks() for column in sample.columns]
        keys = order.keys_by(columns)
        return cls(order, keys, np.sort(keys.of(columns)))

    def keys_of(self, rows: pa.Table) -> Keys:
        """Return the key of each row."""
        return self.keys.of(self.order.columns(rows))

    def cuts(self, ranges: int) -> Keys:
        """Return the cuts between ranges of about as many rows each; range i has the keys from cut i-1 up to cut i.

        There are fewer ranges than asked for if too many rows have the same key.
        """
        if not len(self.sampled):
            return self.sampled
        places = np.arange(1, ranges) * len(self.sampled) // ranges
        found: Keys = np.unique(self.sampled[places])
        cuts: Keys = found[found > self.sampled[0]]
        return cuts

    def part(self, cuts: Keys, number: int) -> SortPlan:
        """Return the plan for the rows of one range alone."""
        kept = self.sampled[range_of(self.sampled, cuts) == number]
        return replace(self, sampled=kept)


def range_of(keys: Keys, cuts: Keys) -> Range:
    """Return the number of each key's range."""
    return np.searchsorted(cuts, keys, side="right")


def split_by_range(rows: pa.Table, ranges: Range) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each non-empty range, in the order of ranges; within, in their given order."""
    places = np.argsort(ranges.astype(np.uint16), kind="stable")
    counts = np.bincount(ranges)
    taken = rows.take(pa.array(places)) if np.count_nonzero(counts) > 1 else rows
    start = 0
    for number in np.flatnonzero(counts).tolist():
        yield number, taken.slice(start, int(counts[number]))
        start += int(counts[number])


class RangeSorter:
    """Sorter that takes rows in any order and returns them sorted.

    Args:
        context: the table, whose ``write-buffer-size`` bounds the memory.
        row_count: about how many rows will come.
    """

    def __init__(self, plan: SortPlan, context: WriteContext, row_count: int) -> None:
        schema = to_arrow_schema(context.schema.fields)
        self._plan = plan
        self._row_count = row_count
        self._budget = WRITE_BUFFER_SIZE.of(context.all_options)
        self._incoming = RowBuffer(schema, self._range_size)
        self._cuts: Keys | None = None
        self._ranges: list[_Range] = []
        self._held = 0
        self._spill = Spill(schema.append(pa.field(_KEY, pa.uint64())), folder=context.spill_folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spill.close()

    @property
    def spilled(self) -> int:
        """Bytes written to local disk so far."""
        return self._spill.written

    def add(self, rows: pa.Table) -> None:
        """Take in rows in the types of the table, whose memory must not change afterwards.

        Raises `StorageError` if the disk for rows that wait is full.
        """
        self._incoming.add(rows)
        for full in self._incoming.take_full():
            self._distribute(full)

    def sorted(self) -> Iterator[pa.Table]:
        """Yield all rows as tables in sorted order. Nothing may be added afterwards."""
        for rest in self._incoming.take_rest():
            self._distribute(rest)
        for waiting in self._ranges:
            for rows in waiting.pieces(self._budget // 2):
                yield self._arranged(rows)

    @property
    def _range_size(self) -> int:
        """Bytes of a range, small enough to sort in memory beside the waiting rows."""
        return max(1, min(MAX_BYTES, self._budget // 4))

    def _distribute(self, taken: Measured) -> None:
        rows = taken.rows
        if self._cuts is None:
            total = self._row_count * taken.size // len(rows)
            ranges = max(1, -(-total // self._range_size))
            self._cuts = self._plan.cuts(min(_MOST_RANGES, ranges))
            self._ranges = [_Range() for _ in range(len(self._cuts) + 1)]
        keys = self._plan.keys_of(rows)
        keyed = rows.append_column(_KEY, pa.array(keys))
        if self._held + keyed.nbytes > self._budget:
            self._put_aside()
        self._held += keyed.nbytes
        for number, part in split_by_range(keyed, range_of(keys, self._cuts)):
            self._ranges[number].memory.append(part)

    def _put_aside(self) -> None:
        """Spill everything, because rows that came together share memory."""
        waiting = [one for one in self._ranges if one.memory]
        tables = [pa.concat_tables(one.memory) for one in waiting]
        for one, spilled in zip(waiting, self._spill.put(tables), strict=True):
            one.memory.clear()
            one.aside.append(spilled)
        self._held = 0

    def _arranged(self, keyed: pa.Table) -> pa.Table:
        rows = keyed.drop_columns([_KEY])
        order = self._plan.order
        columns = order.columns(rows) if order.strategy == "order" else []
        return rows.take(pa.array(order.arrange(columns, keyed.column(_KEY).to_numpy())))


class _Range:
    """Rows of one range in order of arrival: first those on disk."""

    def __init__(self) -> None:
        self.aside: deque[SpilledRows] = deque()
        self.memory: deque[pa.Table] = deque()

    def pieces(self, size: int) -> Iterator[pa.Table]:
        """Yield all rows once: together, unless they exceed `size` bytes."""
        tables, taken = list[pa.Table](), 0
        while self.aside or self.memory:
            tables.append(self.aside.popleft().take() if self.aside else self.memory.popleft())
            taken += tables[-1].nbytes
            if taken >= size or not (self.aside or self.memory):
                yield pa.concat_tables(tables)
                tables, taken = [], 0


def _sample_of(rows: pa.Table, order: SortOrder) -> pa.Table:
    columns = [shortened(column, _SAMPLE_LENGTH) for column in order.columns(rows)]
    return pa.Table.from_arrays(columns, names=[*order.by])


def _scattered(first: int, count: int) -> npt.NDArray[np.float64]:
    """Return a deterministic pseudo-random number from 0 to 1 for each of these row numbers."""
    mixed = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed / 2.0**64
