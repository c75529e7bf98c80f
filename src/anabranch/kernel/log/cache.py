"""A cache of immutable metadata, bounded in bytes.

Manifests and manifest lists never change under their name, so what was read or written once need not be
read again. Snapshots are not cached: their numbers are reused after a rollback.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEFAULT_CAPACITY = 256 << 20


ENTRY_BYTES = 512
"""Overhead of a cache entry beside its value: key and bookkeeping."""


class MetadataCache:
    """A thread-safe LRU cache, bounded by the total weight of its values (at most `capacity`).

    Args:
        capacity: bytes, or whatever unit the weights are in.
        entry: overhead per entry. Without it many small values would take far more memory than
            their weights add up to.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY, *, entry: int = 0) -> None:
        self._capacity = capacity
        self._entry = entry
        self._used = 0
        self._entries: OrderedDict[tuple[str, ...], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, ...]) -> Any | None:
        """The value under `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: tuple[str, ...], value: Any, weight: int) -> None:
        """Cache `value`, which takes about `weight` bytes; values too large for the cache are skipped."""
        weight += self._entry
        if weight > self._capacity // 2:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._used -= old[1]
            self._entries[key] = (value, weight)
            self._used += weight
            self._shrink()

    def _shrink(self) -> None:
        while self._used > self._capacity:
            _, (_, freed) = self._entries.popitem(last=False)
            self._used -= freed

    def drop(self, key: tuple[str, ...]) -> None:
        """Forget the value under `key`, if there is one."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._used -= old[1]

    def limit_to(self, capacity: int) -> None:
        """Change the capacity, dropping what is over it."""
        with self._lock:
            self._capacity = capacity
            self._shrink()

    @property
    def used(self) -> int:
        """Total weight of the cached values."""
        with self._lock:
            return self._used

    def __len__(self) -> int:
        """Return the number of cached values."""
        with self._lock:
            return len(self._entries)

    def get_or(self, key: tuple[str, ...], load: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """Return the value under `key`, loading and caching it on a miss."""
        found: T | None = self.get(key)
        if found is None:
            found = load()
            self.put(key, found, weigh(found))
        return found


SHARED = MetadataCache(entry=ENTRY_BYTES)
"""The cache of this process."""
