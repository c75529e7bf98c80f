"""Asking for several things at once: a store far away answers each after a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE: Final = 8


def side_by_side(ask: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Ask about each item, and return the answers in order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, items))
