"""A hash of what a job does, to tell whether two processes have loaded the same job although its file was changed elsewhere.

It covers the declaration, the statement or the code of the function, and whatever of modules that are no installed
libraries that code names: functions, classes, constants. Libraries count by the names that are used of them. Where something
cannot be told apart reliably there is no hash, and nobody takes two jobs for the same.
"""

from __future__ import annotations

import dis
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final

from anabranch.jobs.job import Job

_PLAIN: Final = (str, int, float, complex, bool, bytes, type(None), type(Ellipsis))
_LIBRARIES: Final = (
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")),
    Path(__file__).resolve().parents[1],
)
"""Folders of modules whose names alone count."""
_SESSIONS: Final = ("SparkSession", "SparkContext")
"""Objects of Spark that are others in each process and say nothing of the job."""
_MOST: Final = 10_000
"""Most parts examined; more than that is not a job's own code."""


class _UnknownError(Exception):
    """A value has no text that is the same in every process."""


def definition_of(job: Job) -> str | None:
    """Return the hash; None if the job cannot be told from one that does something else."""
    walk = _Walk()
    try:
        declared = [job.name, job.sink, job.mode, dict(job.options), dict(job.sources), job.transform]
        parts = [sys.version.split()[0], *(part for one in declared for part in walk.of(one))]
    except (_UnknownError, RecursionError):
        return None
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


class _Walk:
    """Visits everything a function is made of."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}
        """Values visited, kept alive so that no other object gets their id."""

    def of(self, value: Any) -> Iterator[str]:
        """Yield texts that change when the behaviour of the value changes."""
        if isinstance(value, _PLAIN):
            yield f"{type(value).__name__} {value!r}"
            return
        if id(value) in self._seen:
            yield f"again {type(value).__name__}"
            return
        self._seen[id(value)] = value
        if len(self._seen) > _MOST:
            raise _UnknownError
        match value:
            case list() | tuple():
                yield f"{type(value).__name__} {len(value)}"
                for one in value:
                    yield from self.of(one)
            case set() | frozenset():
                yield f"{type(value).__name__} {sorted(map(repr, value))}"
                if not all(isinstance(one, _PLAIN) for one in value):
                    raise _UnknownError
            case Mapping():
                yield f"mapping {len(value)}"
                for key, one in value.items():
                    yield from self.of(key)
                    yield from self.of(one)
            case FunctionType():
                yield from self._function(value)
            case CodeType():
                yield from self._code(value)
            case type():
                yield from self._class(value)
            case ModuleType():
                yield f"module {value.__name__}"
            case Job():
                yield f"job {value.name}"
                yield from self.of(value.transform)
            case _:
                yield from self._object(value)

    def _function(self, value: FunctionType) -> Iterator[str]:
        if not self._is_own(value):
            inner = getattr(value, "__wrapped__", None)  # as decorators of libraries do, F.udf among them
            if inner is None:
                yield f"function {value.__module__}.{value.__qualname__}"
                return
            yield f"wrapped by {value.__code__.co_filename.rpartition('/')[2]} {value.__code__.co_name}"
            yield from self.of(inner)
            yield from (f"{key} {getattr(value, key, '')}" for key in ("evalType", "returnType"))
            for cell in value.__closure__ or ():
                yield from self._unless_unknown(cell.cell_contents)
            return
        yield f"function {value.__name__}"
        yield from self._code(value.__code__)
        yield from self.of(value.__defaults__)
        yield from self.of(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            yield from self.of(cell.cell_contents)
        for name in sorted(_names(value.__code__)):
            if name in value.__globals__:
                yield f"global {name}"
                yield from self._global(value.__globals__[name], _names(value.__code__))

    def _unless_unknown(self, value: Any) -> Iterator[str]:
        """Yield the texts of a library's internal value, or its type's name if it has none."""
        try:
            yield from list(self.of(value))
        except _UnknownError:
            yield f"something of {type(value).__qualname__}"

    def _global(self, value: Any, names: set[str]) -> Iterator[str]:
        if not isinstance(value, ModuleType):
            yield from self.of(value)
            return
        yield f"module {value.__name__}"
        if _is_own_file(getattr(value, "__file__", None)) and self._is_new(value, names):
            for name in sorted(names & vars(value).keys()):
                yield f"attribute {name}"
                yield from self._global(vars(value)[name], names)

    def _is_new(self, value: ModuleType, names: set[str]) -> bool:
        """Whether these names of a module were not visited before: modules may refer to each other."""
        key = hash((value.__name__, *sorted(names)))
        if key in self._seen:
            return False
        self._seen[key] = value
        return True

    def _code(self, code: CodeType) -> Iterator[str]:
        yield f"code {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_argcount}"
        yield code.co_exceptiontable.hex()
        for constant in code.co_consts:
            yield from self.of(constant)
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                yield from _imported(str(step.argval))

    def _class(self, value: type) -> Iterator[str]:
        yield f"class {value.__module__ if not self._is_own(value) else ''}.{value.__qualname__}"
        if self._is_own(value):
            yield from self.of(list(value.__bases__))
            for name, one in sorted(vars(value).items()):
                is_made = name == "_abc_impl" or isinstance(one, MemberDescriptorType | GetSetDescriptorType)
                if is_made or (
                    name.startswith("__") and name.endswith("__") and not isinstance(one, FunctionType)
                ):
                    continue  # Python makes it of the rest
                yield f"member {name}"
                if isinstance(one, property):
                    yield from self.of([one.fget, one.fset, one.fdel])
                else:
                    yield from self.of(one.__func__ if isinstance(one, classmethod | staticmethod) else one)

    def _object(self, value: Any) -> Iterator[str]:
        module = "" if self._is_own(type(value)) else type(value).__module__
        yield f"object {module}.{type(value).__qualname__}"
        if is_dataclass(value):
            for field in fields(value):
                yield field.name
                yield from self.of(getattr(value, field.name))
            return
        function = getattr(value, "func", None)
        if isinstance(function, FunctionType):  # functions of users as Spark wraps them, and partial ones
            yield from self.of(function)
            yield from self.of([getattr(value, name, None) for name in ("args", "keywords", "evalType")])
            yield str(getattr(value, "returnType", ""))
            return
        if type(value).__name__ in _SESSIONS and type(value).__module__.startswith("pyspark."):
            return
        if self._is_own(type(value)) and hasattr(value, "__dict__"):
            yield from self.of(type(value))
            yield from self.of(vars(value))
            return
        text = repr(value)
        if " at 0x" in text or " object" in text:
            raise _UnknownError
        yield text

    def _is_own(self, value: FunctionType | type) -> bool:
        module = sys.modules.get(value.__module__)
        file = (
            value.__code__.co_filename
            if isinstance(value, FunctionType)
            else getattr(module, "__file__", None)
        )
        return _is_own_file(file)


def _imported(name: str) -> Iterator[str]:
    """Yield texts for a module imported at run time: everything in its file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise _UnknownError from error
    if spec is None:
        raise _UnknownError
    yield f"imported {name}"
    if spec.has_location and spec.origin is not None and _is_own_file(spec.origin):
        yield hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def _is_own_file(file: str | None) -> bool:
    """Whether a module is looked into: it is neither installed nor part of Python."""
    if file is None:
        return False
    path = Path(file)
    return not any(part in path.parts for part in ("site-packages", "dist-packages")) and not any(
        path.is_relative_to(folder) for folder in _LIBRARIES
    )


def _names(code: CodeType) -> set[str]:
    """Return the names used by code, and by the code nested in it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
