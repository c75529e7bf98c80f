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
"""What an entry takes beside its value: its key, and its place."""


class MetadataCache:
    """Least recently used values by key, together at most `capacity` bytes. Safe for threads.

    Args:
        capacity: bytes, or whatever the weights of the values are in.
        entry: what each entry weighs beside its value. Without it many small values would take far more memory than
            they weigh.
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
        """Keep `value`, which takes about `weight` bytes; a value too large for the cache is not kept."""
        weight += self._entry
        if weight > self._capacity // 2:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._used -= old[1]
            self._entries[key] = (value, weight)
            self._used += weight
            while self._used > self._capacity:
                _, (_, freed) = self._entries.popitem(last=False)
                self._used -= freed

    def drop(self, key: tuple[str, ...]) -> None:
        """Forget the value under `key`, if there is one."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._used -= old[1]

    @property
    def used(self) -> int:
        """What the values weigh together."""
        with self._lock:
            return self._used

    def __len__(self) -> int:
        """How many values there are."""
        with self._lock:
            return len(self._entries)

    def get_or(self, key: tuple[str, ...], load: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """The value under `key`, loaded and kept if it is not there."""
        found: T | None = self.get(key)
        if found is None:
            found = load()
            self.put(key, found, weigh(found))
        return found


SHARED = MetadataCache(entry=ENTRY_BYTES)
"""The cache of this process."""
