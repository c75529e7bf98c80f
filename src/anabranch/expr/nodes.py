"""Predicates as people write them: a small algebra of immutable values, and Python sugar to build it.

    from anabranch.expr import col

    (col("price") > 5) & col("city").is_in(["Bonn", "Rome"]) & ~col("note").like("%test%")

A predicate is TRUE, FALSE or unknown for a row, by the three-valued logic of SQL; a filter keeps the rows for
which it is TRUE. ``str(predicate)`` is SQL that `parse` reads back to an equal predicate. Predicates know
nothing of a schema: `bind` checks them against one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn, TypeAlias

from anabranch.errors import PredicateError
from anabranch.expr.like import DEFAULT_ESCAPE, split_pattern
from anabranch.expr.values import Value, quote_name, quote_text, split_path, sql_text, to_value

MAX_DEPTH = 100
"""How deep predicates may nest. Everything that walks one may recurse."""


class Operator(StrEnum):
    """Comparison operator. ``<=>`` is equality for which null equals null and nothing is unknown."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    SAME = "<=>"

    @property
    def flipped(self) -> Operator:
        """The operator that says the same with the sides exchanged."""
        return _FLIPPED.get(self, self)

    @property
    def negated(self) -> Operator:
        """The operator that is TRUE where this one is FALSE; ``<=>`` has none."""
        return _NEGATED[self]


_FLIPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
_NEGATED = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or with more than one name a field inside of it."""

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        if (
            not isinstance(self.path, tuple)
            or not self.path
            or not all(isinstance(name, str) and name for name in self.path)
        ):
            raise PredicateError(f"a column has a name, found {self.path!r}")

    def __str__(self) -> str:
        return ".".join(quote_name(name) for name in self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A value. Literals are equal when they have the same kind of value and are spelled alike."""

    value: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", to_value(self.value))

    def __str__(self) -> str:
        return sql_text(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[type, str]:
        # Python has 1 == 1.0 == True and nan != nan; SQL text tells them apart.
        return type(self.value), sql_text(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A value that is computed for each row: by a function, a sign or a cast; see `anabranch.expr.functions`."""

    name: str
    """In capitals, or the sign."""
    arguments: tuple[Column | Literal | Call, ...]
    target: str = ""
    """The type that a CAST names."""
    _depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for argument in self.arguments:
            _check_kind(argument, Column, Literal, Call)
        depth = 1 + max((a.depth for a in self.arguments if isinstance(a, Call)), default=0)
        if depth > MAX_DEPTH:
            raise PredicateError(f"the filter nests more than {MAX_DEPTH} expressions in one another")
        object.__setattr__(self, "_depth", depth)

    @property
    def depth(self) -> int:
        """Nesting depth of calls, this one included."""
        return self._depth

    def __str__(self) -> str:
        given = [*map(str, self.arguments)]
        if self.name == "CAST":
            return f"CAST({given[0]} AS {self.target})"
        if self.name.isalpha():
            return f"{self.name.lower()}({', '.join(given)})"
        return f"({given[0]} {self.name} {given[1]})" if len(given) == 2 else f"({self.name} {given[0]})"


Expression: TypeAlias = Column | Literal | Call


class Predicate:
    """Base of all predicates. Combine them with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    @property
    def depth(self) -> int:
        """Nesting depth of predicates, this one included."""
        return 1

    def __and__(self, other: Predicate | ColumnExpression) -> Predicate:
        return all_of([self, _as_predicate(other)])

    def __or__(self, other: Predicate | ColumnExpression) -> Predicate:
        return any_of([self, _as_predicate(other)])

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise _no_truth(self)


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """A predicate that is the same for every row."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"


TRUE = Constant(True)
FALSE = Constant(False)


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """A column, or what is computed, compared with a value or with another one of the row."""

    op: Operator
    left: Column | Call
    right: Expression

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "op", Operator(self.op))
        except ValueError as error:
            raise PredicateError(
                f"{self.op!r} is no comparison", hint=f"use one of {', '.join(Operator)}"
            ) from error
        _check_kind(self.left, Column, Call)
        _check_kind(self.right, Column, Literal, Call)

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """Whether a column equals one of some values; unknown, not FALSE, if it does not and one of them is null."""

    column: Column | Call
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        _check_kind(self.column, Column, Call)
        if not self.values:
            raise PredicateError(f"{self.column} IN () names no value", hint="use FALSE")
        for value in self.values:
            _check_kind(value, Literal)

    def __str__(self) -> str:
        return _in_text(self, "IN")


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    column: Column | Call

    def __post_init__(self) -> None:
        _check_kind(self.column, Column, Call)

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """Whether a text column starts with a text, taken literally."""

    column: Column | Call
    prefix: str

    def __post_init__(self) -> None:
        _check_kind(self.column, Column, Call)
        object.__setattr__(self, "prefix", _text(self.prefix, "the prefix of startswith"))

    def __str__(self) -> str:
        return f"startswith({self.column}, {quote_text(self.prefix)})"


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """Whether a text column matches a pattern: ``_`` is any character, ``%`` any number of them.

    After the escape character, a backslash unless said otherwise, these two and itself mean themselves.
    """

    column: Column | Call
    pattern: str
    escape: str = DEFAULT_ESCAPE

    def __post_init__(self) -> None:
        _check_kind(self.column, Column, Call)
        object.__setattr__(self, "pattern", _text(self.pattern, "a LIKE pattern"))
        object.__setattr__(self, "escape", _text(self.escape, "an ESCAPE character"))
        split_pattern(self.pattern, self.escape)

    def __str__(self) -> str:
        return _like_text(self, "LIKE")


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    child: Predicate
    _depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_kind(self.child, Predicate)
        object.__setattr__(self, "_depth", _depth_over((self.child,)))

    @property
    def depth(self) -> int:
        return self._depth

    def __str__(self) -> str:
        match self.child:
            case In():
                return _in_text(self.child, "NOT IN")
            case Like():
                return _like_text(self.child, "NOT LIKE")
            case IsNull(column=column):
                return f"{column} IS NOT NULL"
            case child:
                return f"NOT ({child})"


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """TRUE where all of at least two predicates are; an And among them is dissolved."""

    children: tuple[Predicate, ...]
    _depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_children(self, "AND")

    @property
    def depth(self) -> int:
        return self._depth

    def __str__(self) -> str:
        return " AND ".join(f"({c})" if isinstance(c, Or) else str(c) for c in self.children)


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """TRUE where one of at least two predicates is; an Or among them is dissolved."""

    children: tuple[Predicate, ...]
    _depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_children(self, "OR")

    @property
    def depth(self) -> int:
        return self._depth

    def __str__(self) -> str:
        return " OR ".join(f"({c})" if isinstance(c, And) else str(c) for c in self.children)


def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """The conjunction of any number of predicates; of none it is TRUE."""
    children = tuple(predicates)
    return And(children) if len(children) > 1 else next(iter(children), TRUE)


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """The disjunction of any number of predicates; of none it is FALSE."""
    children = tuple(predicates)
    return Or(children) if len(children) > 1 else next(iter(children), FALSE)


def col(*path: str) -> ColumnExpression:
    """A column to build predicates with.

    One argument is read as SQL reads it: ``col("a.b")`` is field ``b`` of column ``a``, and
    ``` col("`a.b`") ``` the column ``a.b``. Several are taken as they are: ``col("a", "b.c")``.

    Example:
        >>> expensive = anabranch.col("price") > 15
        >>> str(expensive & anabranch.col("day").is_in(["2026-01-01"]))
        "price > 15 AND day IN ('2026-01-01')"
        >>> table.scan(expensive).count()
        3
    """
    return ColumnExpression(Column(split_path(path[0]) if len(path) == 1 else path))


class ColumnExpression:
    """Result of `col`. Its operators make predicates; a value may be a Python, NumPy or Arrow scalar."""

    __slots__ = ("column",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, column: Column) -> None:
        self.column = column

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compare(Operator.EQ, other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compare(Operator.NE, other)

    def __lt__(self, other: object) -> Predicate:
        return self._compare(Operator.LT, other)

    def __le__(self, other: object) -> Predicate:
        return self._compare(Operator.LE, other)

    def __gt__(self, other: object) -> Predicate:
        return self._compare(Operator.GT, other)

    def __ge__(self, other: object) -> Predicate:
        return self._compare(Operator.GE, other)

    def same_as(self, other: object) -> Predicate:
        """Equality for which null is a value like others: SQL's ``<=>``."""
        return Comparison(Operator.SAME, self.column, _as_operand(other))

    def is_in(self, values: Iterable[object]) -> Predicate:
        """Whether the column has one of the values; FALSE if there are none."""
        literals = tuple(Literal(to_value(v)) for v in values)
        return In(self.column, literals) if literals else FALSE

    def between(self, low: object, high: object) -> Predicate:
        """Whether the column lies between two values, both included."""
        return (self >= low) & (self <= high)

    def is_null(self) -> Predicate:
        return IsNull(self.column)

    def is_not_null(self) -> Predicate:
        return Not(IsNull(self.column))

    def starts_with(self, prefix: str) -> Predicate:
        """Whether a text column starts with a text, taken literally."""
        return StartsWith(self.column, prefix)

    def like(self, pattern: str, escape: str = DEFAULT_ESCAPE) -> Predicate:
        """Whether a text column matches a LIKE pattern."""
        return Like(self.column, pattern, escape)

    def __and__(self, other: Predicate | ColumnExpression) -> Predicate:
        return all_of([_as_predicate(self), _as_predicate(other)])

    def __or__(self, other: Predicate | ColumnExpression) -> Predicate:
        return any_of([_as_predicate(self), _as_predicate(other)])

    def __rand__(self, other: object) -> Predicate:
        return all_of([_as_predicate(other), _as_predicate(self)])

    def __ror__(self, other: object) -> Predicate:
        return any_of([_as_predicate(other), _as_predicate(self)])

    def __invert__(self) -> Predicate:
        return Not(_as_predicate(self))

    def __bool__(self) -> NoReturn:
        raise _no_truth(self)

    def __iter__(self) -> Iterator[Any]:
        raise PredicateError(f"the column {self.column} has no elements to go through in a filter")

    def __str__(self) -> str:
        return str(self.column)

    def __repr__(self) -> str:
        return f"col({', '.join(map(repr, self.column.path))})"

    def _compare(self, op: Operator, other: object) -> Predicate:
        if other is None:
            raise PredicateError(
                f"{self.column} {op} NULL is never true",
                hint="use .is_null(), .is_not_null() or .same_as(None)",
            )
        return Comparison(op, self.column, _as_operand(other))


def _as_operand(value: object) -> Column | Literal:
    match value:
        case ColumnExpression():
            return value.column
        case Column() | Literal():
            return value
        case _:
            return Literal(to_value(value))


def _as_predicate(value: object) -> Predicate:
    match value:
        case Predicate():
            return value
        case ColumnExpression():
            return Comparison(Operator.EQ, value.column, Literal(True))
        case _:
            raise PredicateError(
                f"& and | join predicates, found {value!r}",
                hint="put comparisons in parentheses: (col('a') > 1) & (col('b') < 2)",
            )


def _no_truth(what: object) -> PredicateError:
    return PredicateError(
        f"the filter {what} has no truth value of its own",
        hint="combine filters with & | ~ instead of and, or, not, and use .between() instead of a < b < c",
    )


def _check_kind(found: object, *kinds: type) -> None:
    if not isinstance(found, kinds):
        wanted = " or a ".join(kind.__name__ for kind in kinds)
        raise PredicateError(f"a filter needs a {wanted} here, found {found!r}")


def _text(value: object, what: str) -> str:
    checked = to_value(value)
    if not isinstance(checked, str):
        raise PredicateError(f"{what} is a text, found {value!r}")
    return checked


def _set_children(node: And | Or, word: str) -> None:
    children: list[Predicate] = []
    for child in node.children:
        _check_kind(child, Predicate)
        children.extend(
            child.children if isinstance(child, And | Or) and type(child) is type(node) else [child]
        )
    if len(children) < 2:
        raise PredicateError(f"{word} joins at least two predicates, found {len(children)}")
    object.__setattr__(node, "children", tuple(children))
    object.__setattr__(node, "_depth", _depth_over(children))


def _depth_over(children: Iterable[Predicate]) -> int:
    depth = 1 + max(child.depth for child in children)
    if depth > MAX_DEPTH:
        raise PredicateError(f"the filter nests more than {MAX_DEPTH} predicates in one another")
    return depth


def _in_text(node: In, word: str) -> str:
    return f"{node.column} {word} ({', '.join(map(str, node.values))})"


def _like_text(node: Like, word: str) -> str:
    escape = "" if node.escape == DEFAULT_ESCAPE else f" ESCAPE {quote_text(node.escape)}"
    return f"{node.column} {word} {quote_text(node.pattern)}{escape}"
