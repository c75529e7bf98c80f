"""Parallel requests to a store: ordered results, bounded concurrency and read-ahead.

What counts is not how many calls are needed, but how many must wait for each other: on an object store each round
trip takes tens of milliseconds. `each` and `stream` run `AT_ONCE` calls at a time, and `AT_ONCE_FAR` where they know
that the store is far away, but never more than a stream holds ahead: `n` calls take `n / 64` to `n / 128` rounds.

`reading` is for requests that do not depend on each other's answers. On a store that is far away all of them are made
at once; on one that is near, each when its answer is asked for, in the order in which they are asked for. So whoever
uses it must be right in both orders, and says why.

`together` is the same for works that write.

`afterwards` is for what nobody has to wait for: it must be as harmless to do it late as not to do it at all.

`tried` reads on past what is damaged: who shows all there is is told what could not be read. Whoever acts on what is
read gets the error: what is left out might be just what stands against it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from threading import Thread, local
from typing import Final, Protocol, TypeVar

from anabranch.errors import AnabranchError, CorruptTableError, StorageError
from anabranch.storage.protocol import Storage

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 16
"""Number of concurrent requests."""
AT_ONCE_FAR: Final = (128, 4, 1)
"""The same of a store that is far away; then of requests made within others, and within those."""
_FEW: Final = 8
_AHEAD: Final = 64
"""Number of answers, and of requests to come, that a stream holds."""
AHEAD_OF_SMALL: Final = 256
"""The same where answers are small and all are wanted: so requests go on while somebody works on those that came together."""
_WITHIN: Final = local()
"""Of a thread that makes requests for others: how many pools are around it, as `depth`."""


class Reading(Protocol):
    """Begins a request; calling what it returns waits for the answer, or raises its error."""

    def __call__(self, ask: Callable[[], T], /) -> Callable[[], T]: ...


def each(ask: Callable[[T], R], items: Sequence[T], *, at: Storage | None = None) -> list[R]:
    """Call `ask` for all items in parallel; results in order. The first error ends it. Few items run serially.

    Args:
        items: what to ask for.
        at: the store that is asked, if known: where it is far away, few items run in parallel too, and more of many.
    """
    return [*stream(ask, items, at=at)]


def stream(
    ask: Callable[[T], R], items: Iterable[T], *, at: Storage | None = None, ahead: int = _AHEAD
) -> Iterator[R]:
    """Yield results in the order of the items, a bounded number of them ahead of the consumer.

    The first error ends it, as closing the iterator does: requests not started by then never are. A few items are
    processed serially, in the caller's thread. Args as `each`, and:

    Args:
        ahead: number of answers, and of requests to come, that it holds.
    """
    is_far = at is not None and at.is_far
    few = 2 if is_far else _FEW
    rest = iter(items)
    first = [*islice(rest, few)]
    if len(first) < few:
        for item in first:
            yield ask(item)
        return
    pool = _pool(is_far=is_far)
    try:
        asked: deque[Future[R]] = deque()
        for item in chain(first, rest):
            asked.append(pool.submit(ask, item))
            if len(asked) >= ahead:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def reading(storage: Storage) -> Iterator[Reading]:
    """Make requests of a store that do not wait for each other: at once if it is far, else when they are needed.

    An answer that nobody asks for is not waited for, and its error is nobody's. They are few, and each may itself be many
    side by side: so these are as many at a time as they would be by themselves.
    """
    if not storage.is_far:
        yield _when_needed
        return
    pool = _pool(is_far=True, is_of_few=True)
    try:
        yield lambda ask: pool.submit(ask).result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def together(*works: Callable[[], object], at: Storage) -> None:
    """Do works that do not depend on each other: side by side if the store is far, else in order.

    All that were begun have ended when this returns or raises the first error in that order: nothing is written later.
    The first one is done by the caller, so that Ctrl-C ends it; the others should be short.
    """
    if not at.is_far:
        for work in works:
            work()
        return
    pool, is_done = _pool(is_far=True, is_of_few=True), False
    try:
        first, *others = works
        begun = [pool.submit(work) for work in others]
        first()
        is_done = True
    finally:
        pool.shutdown(wait=True, cancel_futures=not is_done)
    for done in begun:
        done.result()


def afterwards(work: Callable[[], None], *, at: Storage) -> None:
    """Do work of a few requests that may as well not be done: beside the caller if the store is far, else now.

    The process does not end before it is done.
    """
    if at.is_far:
        with suppress(RuntimeError):  # no more threads, or the process is ending: then it is done here
            Thread(target=work, name="afterwards").start()
            return
    work()


def _pool(*, is_far: bool, is_of_few: bool = False) -> ThreadPoolExecutor:
    """Make a pool for requests; its threads remember that they are of one, so that pools in pools stay small.

    Args:
        is_far: whether the store is far away.
        is_of_few: whether few requests are made in it, so that it need not be remembered.
    """
    depth = getattr(_WITHIN, "depth", 0)
    at_once = AT_ONCE_FAR[min(depth, len(AT_ONCE_FAR) - 1)] if is_far else AT_ONCE
    within = depth if is_of_few else depth + 1
    return ThreadPoolExecutor(at_once, initializer=partial(setattr, _WITHIN, "depth", within))


def _when_needed(ask: Callable[[], T], /) -> Callable[[], T]:
    return ask


N = TypeVar("N")

OnUnread = Callable[[str, AnabranchError], None]
"""Called with what cannot be read, as people name it, and why. It may be called from several threads."""


def tried(what: N, read: Callable[[], T], unread: Callable[[N, AnabranchError], object] | None) -> T | None:
    """Return what `read` returns, or None once `unread` was called with its error; without `unread` that is raised.

    So is what may succeed later: a store that does not answer has damaged nothing.
    """
    try:
        return read()
    except AnabranchError as error:
        if unread is None or error.retryable:
            raise
        unread(what, error)
        return None


def check_answered(error: AnabranchError) -> None:
    """Raise the error of a store that did not answer: it tells nothing of a file, as one of damage does."""
    if isinstance(error, StorageError) and not isinstance(error, CorruptTableError):
        raise error
