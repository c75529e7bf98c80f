"""Requests of a store side by side, for whoever stands on the verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from anabranch.kernel.log.parallel import each

if TYPE_CHECKING:
    from anabranch.lake import Lake

__all__ = ["each", "each_in"]

T = TypeVar("T")
R = TypeVar("R")


def each_in(lake: Lake, ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Ask a lake about each item, as `each` does: few items too are asked about side by side where its store is far away."""
    return each(ask, items, at=lake.catalog.storage)
