"""Asking a store for many small things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16
_FEW = 8


def each(ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The answers in the order of the items; the first error ends it. A few are asked one after the other."""
    if len(items) < _FEW:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(ask, items)]
