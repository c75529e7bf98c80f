"""Filters with functions, arithmetic and casts, from text to predicates.

What `anabranch.expr.parse` reads needs nothing beside. Other filters are taken apart by sqlglot, if it is installed, with the
signs of ours: 'text' in which two quotes stand for one and a backslash is a backslash, and names in back-ticks.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from anabranch.errors import PredicateError, shortened
from anabranch.expr import nodes as n
from anabranch.expr.like import DEFAULT_ESCAPE
from anabranch.expr.operands import number_of, typed_value

_QUOTED = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`")
_COMPUTES = re.compile(
    r"[*/%]|::|[\w)'`]\s*[+-]|[+-]\s*[^\W\d]|[+-]\s*[(`]|\b(?!(?:and|or|not|in)\b)[^\W\d]\w*\s*\(",
    re.IGNORECASE,
)
_MOST_CHARACTERS = 100_000
_COMPARISONS = {
    "EQ": n.Operator.EQ,
    "NEQ": n.Operator.NE,
    "LT": n.Operator.LT,
    "LTE": n.Operator.LE,
    "GT": n.Operator.GT,
    "GTE": n.Operator.GE,
    "NullSafeEQ": n.Operator.SAME,
}
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_NAMES = {
    "Upper": "UPPER", "Lower": "LOWER", "Length": "LENGTH", "Year": "YEAR", "Month": "MONTH", "Day": "DAY",
    "Hour": "HOUR", "Minute": "MINUTE", "Date": "DATE", "TsOrDsToDate": "DATE", "Abs": "ABS", "Trim": "TRIM",
}  # fmt: skip
_TYPED = {
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPNTZ": "TIMESTAMP_NTZ",
    "TIMESTAMPLTZ": "TIMESTAMP_LTZ",
}
_PARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Paren", "Not", "Boolean", "HexString", "Neg", *_NAMES), frozenset({"this"})),
    **dict.fromkeys(
        ("And", "Or", "Is", "Escape", "StartsWith", *_COMPARISONS, *_SIGNS), frozenset({"this", "expression"})
    ),
    "Like": frozenset({"this", "expression", "negate"}),
    "In": frozenset({"this", "expressions"}),
    "Between": frozenset({"this", "low", "high"}),
    "Column": frozenset({"this", "table", "db", "catalog"}),
    "Dot": frozenset({"this", "expression"}),
    "Literal": frozenset({"this", "is_string"}),
    "Null": frozenset(),
    "Cast": frozenset({"this", "to"}),
    "Substring": frozenset({"this", "start", "length"}),
    "Coalesce": frozenset({"this", "expressions"}),
}
"""What is understood of each kind of node. Whatever else sqlglot has found there is said to be unknown, and never passed over."""
_NEEDED = "functions and arithmetic in filters need sqlglot: pip install 'anabranch[filters]'."


class _NotUnderstoodError(PredicateError):
    """There is something in a filter that neither we nor sqlglot's reading of it know."""


def may_compute(sql: str) -> bool:
    """Whether there is something in a filter that looks like a function, arithmetic or a cast."""
    return _COMPUTES.search(_QUOTED.sub("'x'", sql)) is not None


def parse_computing(sql: str, refusal: PredicateError) -> n.Predicate:
    """The predicate of a filter that computes.

    Args:
        sql: the filter.
        refusal: why it is none without functions.

    Raises:
        PredicateError: it cannot be read, or sqlglot is not installed.
    """
    try:
        from sqlglot import parse_one
        from sqlglot.errors import SqlglotError
    except ImportError:
        raise PredicateError(refusal.message, hint=_NEEDED) from refusal
    if len(sql) > _MOST_CHARACTERS:
        raise PredicateError(
            f"a filter with functions has at most {_MOST_CHARACTERS:,} characters, found {len(sql):,}"
        )
    try:
        return _predicate(parse_one(sql, dialect=_dialect()))
    except _NotUnderstoodError as error:
        raise PredicateError(refusal.message, hint=error.hint) from error
    except SqlglotError as error:
        said = re.sub(r"\x1b\[\d*m", "", str(error)).partition("\n")[0]
        raise PredicateError(f"the filter cannot be read: {said}") from error
    except RecursionError as error:
        raise PredicateError("the filter nests too many expressions in one another") from error


@cache
def _dialect() -> Any:
    from sqlglot import Dialect, tokens

    class Filters(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ["`"]  # noqa: RUF012
            QUOTES = ["'"]  # noqa: RUF012
            STRING_ESCAPES = ["'"]  # noqa: RUF012
            HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012
            NUMERIC_LITERALS = {"D": "DOUBLE", "F": "FLOAT", "L": "BIGINT", "BD": "DECIMAL"}  # noqa: RUF012

    return Filters


def _predicate(node: Any) -> n.Predicate:
    """A condition out of what sqlglot has found."""
    kind = _kind(node)
    match kind:
        case "Paren":
            return _predicate(node.this)
        case "And" | "Or":
            parts = [_predicate(part) for part in node.flatten()]
            return n.all_of(parts) if kind == "And" else n.any_of(parts)
        case "Not":
            return n.Not(_predicate(node.this))
        case "Boolean":
            return n.Constant(bool(node.this))
        case "Is":
            return _state(node)
        case "In" if node.expressions:
            values = tuple(_value(value) for value in node.expressions)
            return n.In(_operand(node.this), values)
        case "Between":
            operand = _expression(node.this)
            low, high = (_expression(node.args[side]) for side in ("low", "high"))
            return n.all_of([_compared(n.Operator.GE, operand, low), _compared(n.Operator.LE, operand, high)])
        case "Like":
            return _like(node, DEFAULT_ESCAPE)
        case "Escape" if _kind(node.this) == "Like":
            return _like(node.this, _text(node.expression))
        case "StartsWith":
            return n.StartsWith(_operand(node.this), _text(node.expression))
    if kind in _COMPARISONS:
        return _compared(_COMPARISONS[kind], _expression(node.this), _expression(node.expression))
    operand = _expression(node)
    if isinstance(operand, n.Literal):
        raise PredicateError(f"expected a condition, found the value {operand}")
    return n.Comparison(n.Operator.EQ, operand, n.Literal(True))


def _kind(node: Any) -> str:
    """The kind of a node, of which all parts are understood."""
    kind = type(node).__name__
    known = _PARTS.get(kind)
    if known is None or any(value and name not in known for name, value in node.args.items()):
        raise _unknown(node)
    return kind


def _like(node: Any, escape: str) -> n.Predicate:
    like = n.Like(_operand(node.this), _text(node.expression), escape)
    return n.Not(like) if node.args.get("negate") else like


def _state(node: Any) -> n.Predicate:
    operand = _operand(node.this)
    match _kind(node.expression):
        case "Null":
            return n.IsNull(operand)
        case "Boolean":
            return n.Comparison(n.Operator.SAME, operand, n.Literal(bool(node.expression.this)))
    raise _unknown(node)


def _compared(op: n.Operator, left: n.Expression, right: n.Expression) -> n.Predicate:
    if isinstance(left, n.Literal):
        if isinstance(right, n.Literal):
            raise PredicateError(f"{left} {op} {right} compares two values and no column")
        return n.Comparison(op.flipped, right, left)
    return n.Comparison(op, left, right)


def _expression(node: Any) -> n.Expression:
    """A value, a column, or what is computed of them."""
    kind = _kind(node)
    match kind:
        case "Paren":
            return _expression(node.this)
        case "Column" | "Dot":
            if any(type(part).__name__ != "Identifier" for part in node.parts):
                raise _unknown(node)
            return n.Column(tuple(part.name for part in node.parts))
        case "Literal":
            return n.Literal(node.this if node.is_string else number_of(node.this))
        case "HexString":
            return n.Literal(_bytes(node.this))
        case "Boolean":
            return n.Literal(bool(node.this))
        case "Null":
            return n.Literal(None)
        case "Neg":
            inner = _expression(node.this)
            if _kind(node.this) == "Literal" and not node.this.is_string:
                return n.Literal(number_of(f"-{node.this.this}"))
            return n.Call("-", (inner,))
        case "Cast":
            return _cast(node)
        case "Substring":
            given = [node.this, node.args.get("start"), node.args.get("length")]
            return n.Call("SUBSTR", tuple(_expression(part) for part in given if part is not None))
        case "Coalesce":
            return n.Call("COALESCE", tuple(map(_expression, (node.this, *node.expressions))))
    if kind in _SIGNS:
        return n.Call(_SIGNS[kind], (_expression(node.this), _expression(node.expression)))
    if kind in _NAMES:
        return n.Call(_NAMES[kind], (_expression(node.this),))
    raise _unknown(node)


def _cast(node: Any) -> n.Expression:
    target = node.to.sql(dialect="spark")
    inner = _expression(node.this)
    word = _TYPED.get(node.to.this.name)
    if word is not None and isinstance(inner, n.Literal) and isinstance(inner.value, str):
        value = typed_value(word, inner.value)
        if value is None:
            raise PredicateError(f"{inner} is no {word}")
        return n.Literal(value)
    return n.Call("CAST", (inner,), target)


def _operand(node: Any) -> n.Column | n.Call:
    found = _expression(node)
    if isinstance(found, n.Literal):
        raise PredicateError(f"expected a column or something computed, found the value {found}")
    return found


def _value(node: Any) -> n.Literal:
    found = _expression(node)
    if not isinstance(found, n.Literal):
        raise PredicateError(f"IN takes values, found {found}", hint="write a = b OR a = c")
    return found


def _text(node: Any) -> str:
    found = _expression(node)
    if not isinstance(found, n.Literal) or not isinstance(found.value, str):
        raise PredicateError(f"expected a text in single quotes, found {found}")
    return found.value


def _bytes(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise PredicateError(f"X'{digits}' is not made of pairs of hexadecimal digits") from error


def _unknown(node: Any) -> _NotUnderstoodError:
    from anabranch.expr.functions import KNOWN

    return _NotUnderstoodError(
        f"{shortened(node.sql(), 200)} is not understood in a filter",
        hint=f"there are {', '.join(KNOWN)}; compute other things after reading.",
    )
