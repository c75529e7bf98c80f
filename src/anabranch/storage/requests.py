"""Accounts of what a process asks of its stores: requests by kind, bytes, and how many waited for each other.

    with requests() as asked:
        table.append(rows)
    print(asked)

An account counts all that this process asks while it is open, in whatever thread, also for other tables. It does not
see what other processes ask, such as the tasks of Spark, nor the files on a local disk that Arrow reads by itself.
Without an open account a request costs as good as nothing more.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any, Final, Literal, ParamSpec, TypeVar

from anabranch.runtime import SYSTEM
from anabranch.tabular import size_text

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["read", "look", "list", "write", "decide", "remove", "move"]
"""``look`` asks whether an object is there, ``decide`` puts it unless its name is taken."""

_READS: Final = frozenset({"read"})
_WRITES: Final = frozenset({"write", "decide"})
_BYTES_A_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class Requests:
    """An account. What it has counted can be asked for at any time, also while it is open."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._read = 0
        self._written = 0
        self._begun = array("d")
        self._ended = array("d")

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of requests by kind."""
        return dict(self._counts)

    @property
    def total(self) -> int:
        """Number of requests."""
        return sum(self._counts.values())

    @property
    def bytes_read(self) -> int:
        return self._read

    @property
    def bytes_written(self) -> int:
        return self._written

    @property
    def depth(self) -> int:
        """The most requests of which each began after the one before had ended: rounds, on a store that is far away."""
        with self._lock:
            spans = sorted(zip(self._ended, self._begun, strict=True))
        rounds, until = 0, float("-inf")
        for ended, begun in spans:
            if begun >= until:
                rounds, until = rounds + 1, ended
        return rounds

    @property
    def seconds(self) -> float:
        """Time spent waiting for requests, those side by side added up."""
        with self._lock:
            return sum(self._ended) - sum(self._begun)

    @property
    def peak_memory(self) -> int | None:
        """The most memory that this process has had so far, in bytes; None where the system does not tell."""
        if sys.platform == "win32":
            return None
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_A_UNIT

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {
            "requests": self.total,
            "by_kind": dict(sorted(self._counts.items())),
            "depth": self.depth,
            "seconds": round(self.seconds, 3),
            "bytes_read": self._read,
            "bytes_written": self._written,
            "peak_memory": self.peak_memory,
        }

    def __str__(self) -> str:
        peak = self.peak_memory
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._counts.most_common())
        return (
            f"{self.total:,} requests{f' ({kinds})' if kinds else ''}, {self.depth:,} after each other, {self.seconds:.3f} s; "
            f"{size_text(self._read)} read, {size_text(self._written)} written"
            + ("" if peak is None else f"; at most {size_text(peak)} of memory")
        )

    def note(self, kind: str, begun: float, *, count: int = 1, size: int = 0) -> None:
        """Count requests of a kind that began at a monotonic time and ended now."""
        ended = SYSTEM.clock.monotonic()
        with self._lock:
            self._counts[kind] += count
            self._begun.append(begun)
            self._ended.append(ended)
            if kind in _READS:
                self._read += size
            elif kind in _WRITES:
                self._written += size


_OPEN: Final[list[Requests]] = []


@contextmanager
def requests() -> Iterator[Requests]:
    """Count what this process asks of its stores inside of the block.

    >>> with anabranch.requests() as asked:
    ...     table.scan().to_arrow().num_rows
    4
    >>> asked.total > 0
    True
    """
    account = Requests()
    _OPEN.append(account)
    try:
        yield account
    finally:
        _OPEN.remove(account)


def request(kind: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Count the calls of a method that asks a store: as many requests as a mapping has objects that it is given, else one.

    Bytes are those that it returns, or is given.
    """

    def counting(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def asked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not _OPEN:
                return method(*args, **kwargs)
            begun = SYSTEM.clock.monotonic()
            size = 0
            try:
                result = method(*args, **kwargs)
                size = len(result) if isinstance(result, bytes) else 0
                return result
            finally:
                count, given = _given(args[1:])
                size = size or given
                for account in [*_OPEN]:
                    account.note(kind, begun, count=count, size=size)

        return asked

    return counting


@contextmanager
def written() -> Iterator[Callable[[int], None]]:
    """Count an object that is written piece by piece; call what this gives with its size."""
    begun, size = SYSTEM.clock.monotonic(), 0

    def tell(bytes_written: int) -> None:
        nonlocal size
        size = bytes_written

    try:
        yield tell
    finally:
        for account in [*_OPEN]:
            account.note("write", begun, size=size)


def _given(arguments: tuple[Any, ...]) -> tuple[int, int]:
    """Return the number and the size of the objects that a method is given."""
    for given in arguments:
        if isinstance(given, Mapping):
            return len(given), sum(len(data) for data in given.values() if isinstance(data, bytes))
        if isinstance(given, bytes):
            return 1, len(given)
    return 1, 0
