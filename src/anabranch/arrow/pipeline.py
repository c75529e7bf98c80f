"""Shared threads of writing: for encoding and for file work, with bounded bytes in progress."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 8
_FILE_THREADS: Final = 8
_MOST_BYTES_PER_THREAD: Final = 64 << 20


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pipeline:
    """Thread pools: encoding on `threads` cores, and file work, which mostly waits, beside it."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(available_cores(), MAX_THREADS)
        self._encoders = ThreadPoolExecutor(self.threads, "anabranch-encode")
        self._writers = ThreadPoolExecutor(_FILE_THREADS, "anabranch-write")
        self._room = _Room((self.threads + 1) * _MOST_BYTES_PER_THREAD)
        self.most_bytes = self._room.size
        """Limit of row bytes in progress; at most the initial limit."""
        self.is_inline = False
        """Whether the calling thread does all work, for writes that threads would only slow down."""

    def encode(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit encoding of `size` bytes of rows; blocks while too much is in progress."""
        self._room.enter(size, self.most_bytes)
        return self._submit(self._encoders, work, *args, **kwargs)

    def write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit file work, which may wait for work that was submitted before it."""
        return self._submit(self._writers, work, *args, **kwargs)

    def release(self, size: int) -> None:
        """Free `size` bytes handed to `encode`, which were written or discarded."""
        self._room.leave(size)

    def wait(self) -> None:
        """Wait until no work is in progress."""
        self._room.wait_empty()

    def close(self, *, cancel: bool = False) -> None:
        """Stop the threads after their current work; with `cancel`, discard work that has not begun."""
        self._encoders.shutdown(cancel_futures=cancel)
        self._writers.shutdown(cancel_futures=cancel)

    def _submit(
        self, executor: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        if not self.is_inline:
            return executor.submit(work, *args, **kwargs)
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Room:
    """Byte semaphore; a request above the limit may enter alone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inside = 0
        self._changed = threading.Condition()

    def enter(self, size: int, most: int) -> None:
        """Enter once at most `most` bytes are inside afterwards."""
        most = min(most, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self._inside + size <= most or not self._inside)
            self._inside += size

    def leave(self, size: int) -> None:
        with self._changed:
            self._inside -= size
            self._changed.notify_all()

    def wait_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
