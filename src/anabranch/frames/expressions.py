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
from anabranch.expr import nodes as n

_OPERATORS = {
    "equal": n.Operator.EQ,
    "not_equal": n.Operator.NE,
    "less": n.Operator.LT,
    "less_equal": n.Operator.LE,
    "greater": n.Operator.GT,
    "greater_equal": n.Operator.GE,
}


@dataclass(frozen=True)
class Call:
    """A function with its arguments: other calls, columns, and Arrow scalars."""

    name: str
    arguments: tuple[Any, ...]
    options: Any = None
    """An Arrow scalar, or None."""


def parts_of(expression: Any) -> list[n.Predicate | None]:
    """Split a `pyarrow.compute` expression at its ANDs, and translate each condition to a predicate.

    None stands for one that is not understood.
    """
    try:
        root = _tree(expression)
    except (pa.ArrowException, PredicateError, ValueError, IndexError, StopIteration):
        return [None]
    return [_predicate(part) for part in _conjuncts(root)]


def columns_of(expression: Any) -> list[n.Column] | None:
    """Return the columns that a `pyarrow.compute` expression names; None if it is not understood."""
    try:
        return [*_columns(_tree(expression))]
    except (pa.ArrowException, PredicateError, ValueError, IndexError, StopIteration):
        return None


def _columns(part: Any) -> Iterator[n.Column]:
    match part:
        case n.Column():
            yield part
        case Call():
            for argument in part.arguments:
                yield from _columns(argument)


def _predicate(part: Any) -> n.Predicate | None:
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


def _translated(part: Any, *, negated: bool = False) -> n.Predicate:
    """Translate a condition; `negated` tells whether it stands inside of a NOT, where false and unknown differ."""
    match part:
        case Call("and_kleene", arguments):
            return n.all_of(_translated(argument, negated=negated) for argument in arguments)
        case Call("or_kleene", arguments):
            return n.any_of(_translated(argument, negated=negated) for argument in arguments)
        case Call("invert", (argument,)):
            return n.Not(_translated(argument, negated=True))
        case Call("is_null", (n.Column() as column,), options) if not _flag(options, "nan_is_null"):
            return n.IsNull(column)
        case Call("is_valid", (n.Column() as column,)):
            return n.Not(n.IsNull(column))
        case Call("is_nan", (n.Column() as column,)):
            return n.Comparison(n.Operator.EQ, column, n.Literal(float("nan")))
        case Call("is_in", (n.Column() as column,), options) if options is not None:
            found = _in(column, options)
            # For Arrow null is in no list, where SQL does not know.
            return n.all_of([found, n.Not(n.IsNull(column))]) if negated else found
        # DuckDB 2 writes the IN of SQL in this way: of null it is not known.
        case Call(
            "if_else",
            (
                Call("is_valid", (n.Column() as asked,)),
                Call("is_in", (n.Column() as column,), options),
                pa.BooleanScalar() as otherwise,
            ),
        ) if options is not None and asked == column and not otherwise.is_valid:
            return _in(column, options)
        case Call(op, (n.Column() as column, pa.Scalar() as value)) if op in _OPERATORS and value.is_valid:
            return n.Comparison(_OPERATORS[op], column, n.Literal(value))
        case Call(op, (pa.Scalar() as value, n.Column() as column)) if op in _OPERATORS and value.is_valid:
            return n.Comparison(_OPERATORS[op].flipped, column, n.Literal(value))
        case pa.BooleanScalar() if part.is_valid:
            return n.Constant(part.as_py())
        case n.Column() as column:
            return n.Comparison(n.Operator.EQ, column, n.Literal(True))
    raise _UnknownError


def _in(column: n.Column, options: Any) -> n.Predicate:
    values = list(options["value_set"].values)
    if any(not value.is_valid for value in values):
        raise _UnknownError
    return n.In(column, tuple(n.Literal(value) for value in values))


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
        return n.Column(tuple(next(pairs)[1] for _ in range(int(value))))
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
        return n.Column((value,))
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
