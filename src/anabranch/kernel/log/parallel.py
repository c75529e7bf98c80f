"""Parallel requests to a store: ordered results, bounded concurrency and read-ahead.

What counts is not how many calls are needed, but how many must wait for each other: on an object store each round
trip takes tens of milliseconds. `each` and `stream` run `AT_ONCE` calls at a time: `n` calls take `n / AT_ONCE` rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 16
"""Number of concurrent requests."""
_FEW: Final = 8
_AHEAD: Final = 4 * AT_ONCE
"""Number of answers, and of requests to come, that a stream holds."""


def each(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Call `ask` for all items in parallel; results in order. The first error ends it. Few items run serially."""
    return [*stream(ask, items)]


def stream(ask: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield results in the order of the items, a bounded number of them ahead of the consumer.

    The first error ends it, as closing the iterator does: requests not started by then never are. A few items are
    processed serially, in the caller's thread.
    """
    rest = iter(items)
    first = [*islice(rest, _FEW)]
    if len(first) < _FEW:
        for item in first:
            yield ask(item)
        return
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        asked: deque[Future[R]] = deque()
        for item in chain(first, rest):
            asked.append(pool.submit(ask, item))
            if len(asked) >= _AHEAD:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
