"""Tells values that stand in the text of the program from those that it computed, such as ids that it has collected.

The text is that of the main file, of the user's modules and of the cells of a notebook. What is not found there counts as
computed: whoever asks then says that rows may hold what the program had read. A computed value that equals a constant of the
program, in a call of the same function, is taken for that.
"""

from __future__ import annotations

import ast
import functools
import linecache
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

_MOST_FILES: Final = 1_000
_LONGEST_FILE: Final = 1 << 20
_SHORTEST_PART: Final = 4
"""Shorter text around a value may stand anywhere by chance."""

_TEXTS: Final[dict[tuple[str, int], _File]] = {}
_FOUND: Final[dict[tuple[int, int], tuple[_File, ...]]] = {}
"""The texts, by the number of modules and of files that were read."""


def is_written_at(value: str, file: str, line: int) -> bool:
    """Whether a value, as Spark shows it, stands in the statement at a line of a file, by itself or by the name of a constant."""
    text = _of_file(file)
    return text is not None and value in text.at(line)


def is_argument(value: str, function: str | None = None) -> bool:
    """Whether a value stands in the text as an argument of a call, of a function of that name if one is given."""
    return any(value in text.arguments.get(function, ()) for text in _texts())


def is_written(value: str) -> bool:
    """Whether a value, as Spark shows it, stands anywhere in the text as a constant."""
    return any(value in text.constants for text in _texts())


def calls_of(function: str) -> Iterator[ast.Call]:
    """Yield the calls of functions of a name that stand in the text."""
    for text in _texts():
        yield from text.calls.get(function, ())


def is_constant(name: str, value: str) -> bool:
    """Whether nothing but constants is ever assigned to a name in a file of the program, and a value is one of them."""
    return any(value in text.names.get(name, ()) for text in _texts())


def is_attribute(owner: str, name: str, value: str) -> bool:
    """Whether a value stands in the text as what a class of that name has under a name."""
    return any(value in text.attributes.get((owner, name), ()) for text in _texts())


def is_default(value: str) -> bool:
    """Whether a value stands in the text as the default of a parameter."""
    return any(value in text.defaults for text in _texts())


def is_collection(values: Iterable[str]) -> bool:
    """Whether a list, tuple, set or dictionary of exactly these values stands in the text."""
    wanted = frozenset(values)
    return any(wanted in text.collections for text in _texts())


def is_installed(file: str) -> bool:
    """Whether a file is not the user's: of the standard library, a package, or Anabranch."""
    return file.startswith(_installed())


def is_part_of_text(statement: str, start: int, end: int, *, around: int = 2) -> bool:
    """Whether what is between two places of a statement stands in the text, with so many characters of what is around it.

    The statement may have been rewritten elsewhere, as `lake.sql` and hints are: then some more of what is around it counts.
    """
    least = end - start + around
    texts = _texts()
    if any(
        first <= start and end <= last and last - first >= least for first, last in _spans(statement, texts)
    ):
        return True
    first, last = start - _SHORTEST_PART, min(end + _SHORTEST_PART, len(statement))
    return first >= 0 and any(_has_word(text.joined, statement[first:last]) for text in texts)


@functools.lru_cache(maxsize=4)
def _spans(statement: str, texts: tuple[_File, ...]) -> tuple[tuple[int, int], ...]:
    """Return where text constants of the program stand in a statement."""
    found = []
    for part in (part for text in texts for part in text.parts):
        place = statement.find(part)
        while place >= 0:
            found.append((place, place + len(part)))
            place = statement.find(part, place + 1)
    return tuple(found)


def _has_word(text: str, near: str) -> bool:
    """Whether a text has another in it that is not cut within a word at its end."""
    place = text.find(near)
    while place >= 0:
        after = text[place + len(near) : place + len(near) + 1]
        if not (near[-1].isalnum() and after.isalnum()):
            return True
        place = text.find(near, place + 1)
    return False


@dataclass(eq=False)
class _File:
    """The text of one file."""

    tree: ast.Module
    _statements: dict[int, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Text constants, and those around the values of f-strings."""
        found = {
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        return tuple(part for part in found if len(part) >= _SHORTEST_PART)

    @cached_property
    def joined(self) -> str:
        """The same as one text."""
        return "\0".join(self.parts)

    @cached_property
    def constants(self) -> frozenset[str]:
        """All constants, wherever they stand."""
        found = (
            _only_constants(node)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant | ast.UnaryOp)
        )
        return frozenset(value for values in found for value in values or ())

    @cached_property
    def arguments(self) -> dict[str | None, frozenset[str]]:
        """Constants in calls, by the name of the function; by None those of all."""
        found: dict[str | None, set[str]] = {None: set()}
        for name, calls in self.calls.items():
            for node in calls:
                values = {value for part in (*node.args, *node.keywords) for value in self._constants(part)}
                found[None] |= values
                found.setdefault(name, set()).update(values)
        return {name: frozenset(values) for name, values in found.items()}

    @cached_property
    def calls(self) -> dict[str | None, list[ast.Call]]:
        """All calls, by the name of the function."""
        found: dict[str | None, list[ast.Call]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
                )
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def defaults(self) -> frozenset[str]:
        """Constants that are defaults of parameters."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arguments):
                for value in (*node.defaults, *node.kw_defaults):
                    found |= (_only_constants(value) if value is not None else None) or set()
        return frozenset(found)

    @cached_property
    def collections(self) -> frozenset[frozenset[str]]:
        """The values of each collection of constants; of dictionaries with their keys."""
        found = set()
        for node in ast.walk(self.tree):
            parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else getattr(node, "elts", [])
            values = [_only_constants(part) if part is not None else None for part in parts]
            if values and None not in values:
                found.add(frozenset(one for value in values for one in value or ()))
        return frozenset(found)

    @cached_property
    def names(self) -> dict[str, frozenset[str]]:
        """Names to which nothing but constants is ever assigned, with these."""
        found: dict[str, set[str]] = {}
        constant: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                values = _only_constants(node.value)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets if values is not None else ():
                    if isinstance(target, ast.Name):
                        constant.add(id(target))
                        found.setdefault(target.id, set()).update(values or ())
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in constant:
                found.pop(node.id, None)
            elif isinstance(node, ast.arg):
                found.pop(node.arg, None)
        return {name: frozenset(values) for name, values in found.items()}

    @cached_property
    def attributes(self) -> dict[tuple[str, str], frozenset[str]]:
        """Constants in the bodies of classes, by the names of class and attribute."""
        found: dict[tuple[str, str], set[str]] = {}
        owners = [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]
        for owner in owners:
            for node in owner.body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    values = _only_constants(node.value) or set()
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        if isinstance(target, ast.Name):
                            found.setdefault((owner.name, target.id), set()).update(values)
        return {place: frozenset(values) for place, values in found.items()}

    def at(self, line: int) -> frozenset[str]:
        """Return the constants of the smallest statement that has a line."""
        if line not in self._statements:
            around = [
                node
                for node in ast.walk(self.tree)
                if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
            ]
            smallest = min(around, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
            found = () if smallest is None else self._constants(smallest)
            self._statements[line] = frozenset(found)
        return self._statements[line]

    def _constants(self, part: ast.AST) -> Iterator[str]:
        for node in ast.walk(part):
            constants = _only_constants(node)
            if constants is not None:
                yield from constants
            elif isinstance(node, ast.Name):
                yield from self.names.get(node.id, ())


def _only_constants(node: ast.AST) -> set[str] | None:
    """Return the values of a node that consists of constants only, as Spark shows them; None for any other."""
    match node:
        case ast.Constant(value=value):
            return {shown(value)}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return {shown(-value)}
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            found: set[str] = set()
            for part in parts:
                constants = _only_constants(part)
                if constants is None:
                    return None
                found |= constants
            return found
        case _:
            return None


def shown(value: Any) -> str:
    """Return a value as Spark shows it in a plan."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts() -> tuple[_File, ...]:
    """Return the texts of the program; they are looked for again once there are more modules, or cells."""
    found = _FOUND.get((len(sys.modules), len(linecache.cache)))
    if found is None:
        found = tuple(text for path in _files() if (text := _of_file(path)) is not None)
        _FOUND.clear()
        _FOUND[len(sys.modules), len(linecache.cache)] = found  # reading them adds to the cache
    return found


def _files() -> Iterator[str]:
    """Yield the files of the program: what is not installed, the main one and the last imported first, and cells of notebooks."""
    found: dict[str, None] = {}
    for module in [sys.modules.get("__main__"), *reversed([*sys.modules.values()])]:
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and not is_installed(path):
            found[path] = None
    for name in list(linecache.cache):
        if "ipykernel" in name or name.startswith("<"):
            found[name] = None
    yield from list(found)[:_MOST_FILES]


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the folders of what others wrote: the standard library, what was installed, and Anabranch itself."""
    own = str(Path(__file__).resolve().parent.parent)
    places = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple({*(place for place in places if place), *site.getsitepackages(), own})


def _of_file(path: str) -> _File | None:
    lines = linecache.getlines(path)
    text = "".join(lines)
    if not text or len(text) > _LONGEST_FILE:
        return None
    key = (path, hash(text))
    if key not in _TEXTS:
        try:
            _TEXTS[key] = _File(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            return None
    return _TEXTS[key]
