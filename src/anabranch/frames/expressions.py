"""Translation of Arrow filter expressions, given to a data set, into our predicates.

Arrow has no way to walk an expression, but it can be pickled, and what is pickled is an Arrow file: its literals are
columns of one row, and the key-value pairs of its schema are the expression in prefix form (``call``, ``field_ref``,
``literal``, ``options``, ``end``). Keys repeat, so the pairs are read through Arrow's C interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import PredicateError
from anabranch.expr.nodes import (
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Predicate,
    all_of,
    any_of,
)

_OPERATORS = {
    "equal": Operator.EQ,
    "not_equal": Operator.NE,
    "less": Operator.LT,
    "less_equal": Operator.LE,
    "greater": Operator.GT,
    "greater_equal": Operator.GE,
}


@dataclass(frozen=True)
class Call:
    """A function with its arguments: other calls, columns, and Arrow scalars."""

    name: str
    arguments: tuple[Any, ...]
    options: Any = None
    """An Arrow scalar, or None."""


def parts_of(expression: Any) -> list[Predicate | None]:
    """Split a `pyarrow.compute` expression at its ANDs, and translate each condition to a predicate.

    None stands for one that is not understood.
    """
    try:
        root = _tree(expression)
    except (pa.ArrowException, PredicateError, ValueError, IndexError, StopIteration):
        return [None]
    return [_predicate(part) for part in _conjuncts(root)]


def _predicate(part: Any) -> Predicate | None:
    try:
        return _translated(part)
    except (PredicateError, _UnknownError):
        return None


class _UnknownError(Exception):
    """A part of an expression has no counterpart."""


def _conjuncts(part: Any) -> Iterator[Any]:
    if isinstance(part, Call) and part.name in ("and_kleene", "and"):
        for argument in part.arguments:
            yield from _conjuncts(argument)
    else:
        yield part


def _translated(part: Any, *, negated: bool = False) -> Predicate:
    """Translate a condition; `negated` tells whether it stands inside of a NOT, where false and unknown differ."""
    match part:
        case Call("and_kleene", arguments):
            return all_of(_translated(argument, negated=negated) for argument in arguments)
        case Call("or_kleene", arguments):
            return any_of(_translated(argument, negated=negated) for argument in arguments)
        case Call("invert", (argument,)):
            return Not(_translated(argument, negated=True))
        case Call("is_null", (Column() as column,), options) if not _flag(options, "nan_is_null"):
            return IsNull(column)
        case Call("is_valid", (Column() as column,)):
            return Not(IsNull(column))
        case Call("is_nan", (Column() as column,)):
            return Comparison(Operator.EQ, column, Literal(float("nan")))
        case Call("is_in", (Column() as column,), options) if options is not None:
            values = list(options["value_set"].values)
            if any(not value.is_valid for value in values):
                raise _UnknownError
            found = In(column, tuple(Literal(value) for value in values))
            # For Arrow null is in no list, where SQL does not know.
            return all_of([found, Not(IsNull(column))]) if negated else found
        case Call(op, (Column() as column, pa.Scalar() as value)) if op in _OPERATORS and value.is_valid:
            return Comparison(_OPERATORS[op], column, Literal(value))
        case Call(op, (pa.Scalar() as value, Column() as column)) if op in _OPERATORS and value.is_valid:
            return Comparison(_OPERATORS[op].flipped, column, Literal(value))
        case pa.BooleanScalar() if part.is_valid:
            return Constant(part.as_py())
        case Column() as column:
            return Comparison(Operator.EQ, column, Literal(True))
    raise _UnknownError


def _flag(options: Any, name: str) -> bool:
    return options is not None and bool(options[name].as_py())


def _tree(expression: Any) -> Any:
    _, (buffer,) = expression.__reduce__()
    file = pa.ipc.open_file(buffer)
    literals = file.get_batch(0) if file.num_record_batches else None
    pairs = iter(_pairs(file.schema))
    return _read(*next(pairs), pairs, literals)


def _read(key: str, value: str, pairs: Iterator[tuple[str, str]], literals: Any) -> Any:
    if key == "nested_field_ref":
        return Column(tuple(next(pairs)[1] for _ in range(int(value))))
    if key != "call":
        return _leaf(key, value, literals)
    arguments: list[Any] = []
    options = None
    for inner, text in pairs:
        if inner == "end":
            return Call(value, tuple(arguments), options)
        if inner == "options":
            options = literals.column(int(text))[0]
        else:
            arguments.append(_read(inner, text, pairs, literals))
    raise ValueError(value)


def _leaf(key: str, value: str, literals: Any) -> Any:
    if key == "field_ref":
        return Column((value,))
    if key == "literal":
        return literals.column(int(value))[0]
    raise ValueError(key)


def _pairs(schema: Any) -> Sequence[tuple[str, str]]:
    """Return the key-value pairs of a schema in order; keys may repeat."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # struct ArrowSchema begins with the pointers format, name and metadata.
    place = ctypes.cast(pointer_of(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]
    if not place:
        return []

    def number() -> int:
        nonlocal place
        found = ctypes.c_int32.from_address(place).value
        place += 4
        return found

    def text() -> str:
        nonlocal place
        length = number()
        found = ctypes.string_at(place, length)
        place += length
        return found.decode()

    return [(text(), text()) for _ in range(number())]
