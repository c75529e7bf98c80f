"""Buffering of rows of many buckets until a row group is full."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.arrow.row_buffer import GroupSize, Measured, measured, size_of
from anabranch.arrow.spill import Spill, SpilledRows

K = TypeVar("K", bound=Hashable)


class WaitingRows(Generic[K]):
    """Queues of rows per key, returned in tables of the size of a row group.

    Rows that come together share memory, and all of it is held until the last of them is gone. So there are two
    sizes: of the rows that wait in memory (`live`), and of the memory that they hold (`held`), which is the one to
    bound.

    Args:
        group_size: when a key has enough rows.
        spill: where rows may wait beside; None if only in memory.
    """

    def __init__(self, group_size: GroupSize, spill: Spill | None = None) -> None:
        self._group_size = group_size
        self._spill = spill
        self._queues: dict[K, _Queue] = {}
        self.held = 0
        """Bytes of memory that waiting rows keep from being freed."""
        self.live = 0
        """Bytes of the waiting rows in memory themselves."""

    @property
    def keys(self) -> list[K]:
        """Return the keys seen and not emptied by `take_rest`, in the order of their first rows."""
        return list(self._queues)

    def add(self, added: Measured, counts: Iterable[tuple[K, int]]) -> list[K]:
        """Add rows grouped by key; return the keys that now have enough for a row group.

        Args:
            added: rows, whose memory must not change afterwards.
            counts: each key that there are rows of, and how many.
        """
        block, start, full = _Block(added), 0, []
        for key, count in counts:
            queue = self._queues.setdefault(key, _Queue())
            self._hold(queue, block, start, count)
            start += count
            if self._group_size.is_reached(queue.rows, queue.size):
                full.append(key)
        return full

    def take_full(self, key: K) -> list[Measured]:
        """Return the full tables of a key; what stays is not enough for one."""
        queue = self._queues[key]
        taken: list[Measured] = []
        while self._group_size.is_reached(queue.rows, queue.size):
            last = queue.memory[-1] if queue.memory else None
            groups, rest = self._group_size.cut(self._take(queue))
            taken += groups
            if last is not None and len(rest) <= last.rows:
                self._hold(queue, last.block, last.start + last.rows - len(rest), len(rest))
            elif len(rest):
                self._hold(queue, _Block(measured(rest.combine_chunks())), 0, len(rest))
        return taken

    def take_rest(self, key: K) -> list[Measured]:
        """Return all tables of a key: full ones, and at last, if rows are left, a smaller one."""
        taken = self.take_full(key)
        queue = self._queues.pop(key)
        return [*taken, self._take(queue)] if queue.rows else taken

    def in_memory(self) -> list[K]:
        """Return the keys with rows in memory, those with the most waiting bytes anywhere first."""
        keys = [key for key, queue in self._queues.items() if queue.memory]
        return sorted(keys, key=lambda key: self._queues[key].size, reverse=True)

    def put_aside(self) -> None:
        """Spill the rows in memory: those of the first keys, if there is not enough room for all.

        Raises:
            StorageError: the disk is full, or cannot be written.
        """
        if self._spill is None:
            return
        queues = [queue for queue in self._queues.values() if queue.memory]
        placed = self._spill.put(pa.concat_tables(queue.tables()) for queue in queues)
        for queue, spilled in zip(queues, placed, strict=False):
            self._release(queue)
            queue.spilled.append(spilled)

    def pack(self) -> None:
        """Copy the rows in memory, block by block, so that they hold no other memory."""
        parts: dict[_Block, list[_Part]] = {}
        for queue in self._queues.values():
            for part in queue.memory:
                parts.setdefault(part.block, []).append(part)
        for block, of_block in parts.items():
            self.held -= block.size
            block.pack(of_block)
            self.held += block.size

    def _take(self, queue: _Queue) -> Measured:
        tables, size = queue.tables(), queue.size
        if queue.spilled and self._spill is not None:
            tables = [self._spill.take(queue.spilled), *tables]
        self._release(queue)
        queue.spilled, queue.rows, queue.size = [], 0, 0
        return Measured(pa.concat_tables(tables), size)

    def _hold(self, queue: _Queue, block: _Block, start: int, rows: int) -> None:
        """Append rows of a block to a queue."""
        if not rows:
            return
        size = block.size if rows == len(block.table) else block.table.slice(start, rows).nbytes
        part = _Part(block, start, rows, size)
        if not block.parts:
            self.held += block.size
        block.parts += 1
        self.live += part.size
        queue.memory.append(part)
        queue.rows += rows
        queue.size += part.size

    def _release(self, queue: _Queue) -> None:
        """Free the queue's memory."""
        for part in queue.memory:
            self.live -= part.size
            part.block.parts -= 1
            if not part.block.parts:
                self.held -= part.block.size
        queue.memory = []


class _Block:
    """A table that is freed as a whole, when no part of it waits any more."""

    __slots__ = ("parts", "size", "table")

    def __init__(self, added: Measured) -> None:
        self.table, self.size = added
        self.parts = 0
        """Number of its waiting parts."""

    def pack(self, parts: Sequence[_Part]) -> None:
        """Replace the table by one of only these parts, which are all that wait."""
        ranges = [np.arange(part.start, part.start + part.rows) for part in parts]
        self.table = self.table.take(pa.array(np.concatenate(ranges)))
        self.size = size_of(self.table)
        start = 0
        for part in parts:
            part.start = start
            start += part.rows


@dataclass(eq=False, slots=True)
class _Part:
    """Rows of one key that came together. Kept small: there may be very many."""

    block: _Block
    start: int
    rows: int
    size: int


@dataclass(eq=False, slots=True)
class _Queue:
    """Waiting rows of one key: first those on disk, then those in memory."""

    spilled: list[SpilledRows] = field(default_factory=list)
    memory: list[_Part] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    """Bytes of all its rows in Arrow's form."""

    def tables(self) -> list[pa.Table]:
        """Return its rows in memory."""
        return [part.block.table.slice(part.start, part.rows) for part in self.memory]
