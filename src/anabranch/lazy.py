"""Values that are computed when first asked for.

As `functools.cached_property`, without its lock: up to Python 3.11 that is one for the whole process, so a slow
read for one table would hold up all others, and work that asks again from another thread would never end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used like property
    """Turns a method into an attribute that keeps its first value. Two threads may both compute it."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> T | lazy[T]:
        if instance is None:
            return self
        value = self._compute(instance)
        # Beside the attributes, so that this works on frozen dataclasses; from now on it is found there first.
        kept: T = instance.__dict__.setdefault(self._name, value)
        return kept
