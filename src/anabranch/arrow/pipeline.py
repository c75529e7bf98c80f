"""The threads that writing shares: some encode, others write files, and only so much is on its way at once."""

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
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pipeline:
    """Encoding on `threads` cores, and file work, which mostly waits, beside it."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(available_cores(), MAX_THREADS)
        self._encoders = ThreadPoolExecutor(self.threads, "anabranch-encode")
        self._writers = ThreadPoolExecutor(_FILE_THREADS, "anabranch-write")
        self._room = _Room((self.threads + 1) * _MOST_BYTES_PER_THREAD)
        self.most_bytes = self._room.size
        """Bytes of rows that may be on their way at once; never more than there are at first."""
        self.is_inline = False
        """Whether work is done by the thread that hands it in: for writes that threads would only slow down."""

    def encode(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have `size` bytes of rows encoded; waits while too much is on its way already."""
        self._room.enter(size, self.most_bytes)
        return self._submit(self._encoders, work, *args, **kwargs)

    def write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have file work done. Work may wait for work that was handed in before it."""
        return self._submit(self._writers, work, *args, **kwargs)

    def release(self, size: int) -> None:
        """`size` bytes handed to `encode` are in their file, or given up."""
        self._room.leave(size)

    def wait(self) -> None:
        """Wait until nothing is on its way any more."""
        self._room.wait_empty()

    def close(self, *, cancel: bool = False) -> None:
        """End the threads when what they do is done; with `cancel`, what has not begun never will be."""
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
    """A number of bytes that may be inside at the same time; one too large by itself may enter alone."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inside = 0
        self._changed = threading.Condition()

    def enter(self, size: int, most: int) -> None:
        """Go in when no more than `most` are inside then."""
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
