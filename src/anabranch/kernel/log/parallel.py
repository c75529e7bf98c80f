"""Asking a store for many small things at once: side by side, in order, and never more than a few ahead.

How many calls a work needs is one thing, how many must wait for each other another: on an object store each round
takes tens of milliseconds. `each` and `stream` ask `AT_ONCE` at a time, so `n` questions take `n / AT_ONCE` rounds.
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
"""Questions that are under way at the same time."""
_FEW: Final = 8
_AHEAD: Final = 4 * AT_ONCE
"""Answers, and questions still to be asked, that a stream holds."""


def each(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Ask for all; the answers in the order of the items. The first error ends it. A few are asked one after the other."""
    return [*stream(ask, items)]


def stream(ask: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the answers in the order of the items, a bounded number of them ahead of whoever takes them.

    The first error ends it, as closing the iterator does: what was not asked by then never is. A few items are asked
    one after the other, in the caller's thread.
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
