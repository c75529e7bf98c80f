"""Where work on many files is done: in this process, or on a cluster.

The kernel decides what is to be done; an engine does it. Work is a plain function with one picklable
argument and a picklable result, so that it may run anywhere, and may be run again if a machine fails: it
writes under fresh names only, and what counts is the result that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Carries out work that is independent item by item."""

    def map(self, work: Callable[[T], R], items: Sequence[T], *, name: str) -> Iterator[R]:
        """The results of `work` for each item, in any order; an error of one ends the iteration.

        Args:
            work: a function of a module (it is pickled by name where it travels).
            items: what to work on; each is one unit.
            name: what is being done, for progress displays.
        """
        ...


class LocalEngine:
    """Does everything in this process, one item after the other; the work itself uses all cores."""

    def map(self, work: Callable[[T], R], items: Sequence[T], *, name: str) -> Iterator[R]:
        return map(work, items)
