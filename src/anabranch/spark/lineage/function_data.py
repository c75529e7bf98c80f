"""Whether a function of the program carries data along: what it refers to besides its own names, and what that refers to.

Constants that stand in the program's own text are none, nor is what libraries bring.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.types import DataType

from anabranch.lineage.program_text import (
    is_attribute,
    is_collection,
    is_constant,
    is_default,
    is_installed,
    shown,
)

_MOST_VALUES: Final = 100
_DEEPEST: Final = 20
_PLAIN: Final = (int, float, str)
_OF_COLLECTIONS: Final = (list, tuple, set, frozenset, dict)
_HARMLESS: Final = (
    types.ModuleType,
    DataType,
    re.Pattern,
    logging.Logger,
    property,
    types.GenericAlias,
)
_OF_CLASSES: Final = (
    *(
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__firstlineno__",
    ),
    *("__static_attributes__", "__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
)
"""What Python puts into a class."""


def has_data(function: Any) -> bool:
    """Whether a function carries along anything but code and values that stand in the program's text."""
    return _carries(function, set(), 0)


def _carries(item: Any, seen: set[int], depth: int) -> bool:
    """Whether an object is data, or has some, that does not stand in the text of the program."""
    if id(item) in seen or item is None or isinstance(item, (bool, *_HARMLESS)):
        return False
    if depth > _DEEPEST:
        return True
    seen.add(id(item))
    match item:
        case types.FunctionType():
            return any(not is_known and _carries(value, seen, depth + 1) for value, is_known in _parts(item))
        case types.BuiltinFunctionType():
            return _carries(item.__self__, seen, depth + 1)
        case type():
            return any(
                not is_known and _carries(value, seen, depth + 1) for value, is_known in _attributes(item)
            )
        case staticmethod() | classmethod():
            return _carries(item.__func__, seen, depth + 1)
        case types.MethodType():
            return any(_carries(part, seen, depth + 1) for part in (item.__self__, item.__func__))
        case functools.partial():
            return any(
                _carries(part, seen, depth + 1) for part in (item.func, *item.args, *item.keywords.values())
            )
        case _ if isinstance(item, _OF_COLLECTIONS):
            values = [*item.keys(), *item.values()] if isinstance(item, Mapping) else [*item]
            if all(isinstance(value, _PLAIN) for value in values):
                return bool(values) and not is_collection(map(shown, values))
            return len(values) > _MOST_VALUES or any(_carries(value, seen, depth + 1) for value in values)
        case _:
            return not (callable(item) and type(item).__module__ in ("builtins", "functools", "typing"))


def _parts(function: types.FunctionType) -> Iterator[tuple[Any, bool]]:
    """Yield what a function refers to besides its own names, and whether that is a constant of the program's text."""
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield value, isinstance(value, _PLAIN) and is_default(shown(value))
    named = dict(function.__globals__)
    names = set(_names(function.__code__))
    if is_installed(function.__code__.co_filename):
        names = set()  # the data of a library is not the program's
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not filled yet
            named[name] = cell.cell_contents
            names.add(name)
    for name in names & named.keys():
        value = named[name]
        yield value, isinstance(value, _PLAIN) and is_constant(name, shown(value))
        if isinstance(value, types.ModuleType) and not is_installed(getattr(value, "__file__", None) or ""):
            for attribute in names & vars(value).keys():
                part = vars(value)[attribute]
                yield part, isinstance(part, _PLAIN) and is_constant(attribute, shown(part))


def _attributes(item: type) -> Iterator[tuple[Any, bool]]:
    """Yield what a class of the program keeps and does, and whether that is a constant of the program's text."""
    module = sys.modules.get(item.__module__)
    file = getattr(module, "__file__", None)
    if module is None or item.__module__ == "builtins" or (file is not None and is_installed(file)):
        return
    for name, value in vars(item).items():
        if name not in _OF_CLASSES:
            yield value, isinstance(value, _PLAIN) and is_attribute(item.__name__, name, shown(value))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
