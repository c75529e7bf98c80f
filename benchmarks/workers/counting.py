"""A store whose calls are counted: what a piece of work costs in an object store, whatever the machine."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any


class CountingStorage:
    """A store that counts how often it is asked for what, and notes for which paths."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.paths: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **how: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
                self.paths.update(path for path in given if isinstance(path, str))
            return found(*given, **how)

        return call
