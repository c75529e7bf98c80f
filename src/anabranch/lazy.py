"""Values that are computed, and names that are imported, when first asked for.

`lazy` is as `functools.cached_property`, without its lock: up to Python 3.11 that is one for the whole process, so a slow
read for one table would hold up all others, and work that asks again from another thread would never end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
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


def lazy_names(
    package: str, homes: Mapping[str, str], packages: Collection[str] = ()
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose public names are imported when they are first asked for.

    So the command line answers ``--help`` without loading Arrow, and each of the many Python processes that Spark starts
    loads only what it needs.

    Args:
        package: its name.
        homes: the module of each public name. None may be called as a module of the package is: Python sets a module
            as an attribute of its package when it is imported, over what was there.
        packages: packages in it that are there without being imported by themselves.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - what it becomes
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in packages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return __getattr__
