"""Rows of many buckets, each of which waits for its row group to fill."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

import pyarrow as pa

from anabranch.arrow.row_buffer import GroupSize
from anabranch.arrow.spill import Spill, SpilledRows

K = TypeVar("K", bound=Hashable)


class WaitingRows(Generic[K]):
    """For each key rows in the order they came, given back in tables of the size of a row group.

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
        """Bytes of the waiting rows themselves, of those in memory."""

    @property
    def keys(self) -> list[K]:
        """The keys that came so far and were not emptied by `take_rest`, in the order of their first rows."""
        return list(self._queues)

    def add(self, parts: Iterable[tuple[K, pa.Table]]) -> list[K]:
        """Take in rows that share memory; gives the keys that now have enough for a row group."""
        parts = [(key, rows) for key, rows in parts if len(rows)]
        full = []
        for (key, _), part in zip(parts, self._hold([rows for _, rows in parts]), strict=True):
            queue = self._queues.setdefault(key, _Queue())
            queue.memory.append(part)
            queue.rows += len(part.rows)
            queue.size += part.size
            if self._group_size.is_reached(queue.rows, queue.size):
                full.append(key)
        return full

    def take_full(self, key: K) -> list[pa.Table]:
        """Full tables of a key; what stays is not enough for one."""
        queue = self._queues[key]
        taken: list[pa.Table] = []
        while self._group_size.is_reached(queue.rows, queue.size):
            last = queue.memory[-1] if queue.memory else None
            groups, rest = self._group_size.cut(self._take(queue))
            taken += groups
            if len(rest):
                shared = last.block if last is not None and len(rest) <= len(last.rows) else None
                queue.memory = self._hold([rest], shared)
                queue.rows, queue.size = len(rest), rest.nbytes
        return taken

    def take_rest(self, key: K) -> list[pa.Table]:
        """All tables of a key: full ones and at last, if rows are left, one that is not."""
        taken = self.take_full(key)
        queue = self._queues.pop(key)
        return [*taken, self._take(queue)] if queue.rows else taken

    def in_memory(self) -> list[K]:
        """The keys with rows in memory, those first for which most bytes wait, wherever they are."""
        keys = [key for key, queue in self._queues.items() if queue.memory]
        return sorted(keys, key=lambda key: self._queues[key].size, reverse=True)

    def put_aside(self) -> None:
        """Have the rows that are in memory wait in the spill: those of the first keys, if it has no room for all.

        Raises:
            StorageError: the disk is full, or cannot be written.
        """
        if self._spill is None:
            return
        queues, tables = self._memory_by_queue()
        for queue, spilled in zip(queues, self._spill.put(tables), strict=False):
            self._release(queue)
            queue.spilled.append(spilled)

    def pack(self) -> None:
        """Copy the rows that are in memory, so that they hold no more than themselves."""
        queues, tables = self._memory_by_queue()
        if not queues:
            return
        together = pa.concat_tables(tables).combine_chunks()
        starts = accumulate((len(table) for table in tables), initial=0)
        copies = [together.slice(start, len(table)) for start, table in zip(starts, tables, strict=False)]
        for queue, part in zip(queues, self._hold(copies), strict=True):
            self._release(queue)
            queue.memory = [part]

    def _memory_by_queue(self) -> tuple[list[_Queue], list[pa.Table]]:
        """The queues with rows in memory, and these rows of each."""
        queues = [queue for queue in self._queues.values() if queue.memory]
        return queues, [pa.concat_tables([part.rows for part in queue.memory]) for queue in queues]

    def _take(self, queue: _Queue) -> pa.Table:
        tables = [part.rows for part in queue.memory]
        if queue.spilled and self._spill is not None:
            tables = [self._spill.take(queue.spilled), *tables]
        self._release(queue)
        queue.spilled, queue.rows, queue.size = [], 0, 0
        return pa.concat_tables(tables)

    def _hold(self, tables: Sequence[pa.Table], block: _Block | None = None) -> list[_Part]:
        """The tables as parts that live in one block of memory, a new one by default."""
        sizes = [table.nbytes for table in tables]
        block = block or _Block(sum(sizes))
        if not block.parts:
            self.held += block.size
        block.parts += len(tables)
        self.live += sum(sizes)
        return [_Part(rows, size, block) for rows, size in zip(tables, sizes, strict=True)]

    def _release(self, queue: _Queue) -> None:
        """Give up the queue's memory."""
        for part in queue.memory:
            self.live -= part.size
            part.block.parts -= 1
            if not part.block.parts:
                self.held -= part.block.size
        queue.memory = []


@dataclass(eq=False, slots=True)
class _Block:
    """Memory that is freed as a whole."""

    size: int
    parts: int = 0
    """How many parts in it are waiting."""


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """Rows of one key that came together."""

    rows: pa.Table
    size: int
    block: _Block


@dataclass(eq=False, slots=True)
class _Queue:
    """What waits of one key: first what is on disk, then what is in memory."""

    spilled: list[SpilledRows] = field(default_factory=list)
    memory: list[_Part] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    """Bytes of all its rows in Arrow's form."""
