"""Predicates that fit a schema: columns are fields with ids, values belong to the columns' types.

A bound predicate is in normal form. It has no NOT: negation was pushed down to the tests by three-valued
logic, and every test says for which rows it is TRUE. FALSE and "unknown" then mean the same, because AND and
OR never make a row TRUE out of tests that are not. So a test may be replaced by a weaker one (by ALWAYS, at
the extreme) and the whole predicate only gets weaker: that is what pruning rests on.

Values are physical values (see `anabranch.format.types.values`), never null and never NaN. Floating-point columns
compare as in Spark, not as in IEEE 754: NaN equals NaN and is greater than every other number; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch.expr.like import Pattern, join_pattern
from anabranch.expr.nodes import Operator
from anabranch.expr.values import EPOCH_ORDINAL, Timestamp, Value, quote_name, quote_text, sql_text
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import ArrowArray, from_physical

Physical: TypeAlias = bool | int | float | Decimal | str | bytes
ArrowScalar: TypeAlias = "pa.Scalar[Any]"


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A top-level field, or a field inside of one: the way from the top-level field down to it."""

    path: tuple[t.Field, ...]

    @property
    def id(self) -> int:
        return self.path[-1].id

    @property
    def root_id(self) -> int:
        """Id of the top-level field."""
        return self.path[0].id

    @property
    def type(self) -> t.DataType:
        return self.path[-1].type

    @property
    def arrow_type(self) -> pa.DataType:
        return to_arrow_type(self.type)

    @property
    def is_floating(self) -> bool:
        """Whether the column can hold NaN."""
        return isinstance(self.type, t.FloatType | t.DoubleType)

    def scalar(self, value: Physical) -> ArrowScalar:
        """A physical value of the column as Arrow has it."""
        scalar: ArrowScalar = self.array([value])[0]
        return scalar

    def array(self, values: Iterable[Physical]) -> ArrowArray:
        """Physical values of the column as Arrow has them."""
        return from_physical(list(values), self.type)

    def spelled(self, value: Physical) -> str:
        """A physical value of the column in SQL."""
        return sql_text(as_literal_value(value, self.type))

    def __str__(self) -> str:
        return ".".join(quote_name(field.name) for field in self.path)


class BoundPredicate:
    """Base of all bound predicates: immutable values that can be hashed, pickled and read as SQL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoundConstant(BoundPredicate):
    """TRUE for every row or for none."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"


ALWAYS = BoundConstant(True)
NEVER = BoundConstant(False)


@dataclass(frozen=True, slots=True)
class AllOf(BoundPredicate):
    """At least two predicates, none of them AllOf or Constant; made by `conjunction`."""

    children: tuple[BoundPredicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({c})" if isinstance(c, AnyOf) else str(c) for c in self.children)


@dataclass(frozen=True, slots=True)
class AnyOf(BoundPredicate):
    """At least two predicates, none of them AnyOf or Constant; made by `disjunction`."""

    children: tuple[BoundPredicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({c})" if isinstance(c, AllOf) else str(c) for c in self.children)


@dataclass(frozen=True, slots=True)
class NullTest(BoundPredicate):
    column: BoundColumn
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.column} IS {_not(self)}NULL"


@dataclass(frozen=True, slots=True)
class NaNTest(BoundPredicate):
    """Whether a floating-point column is NaN or, negated, a number; never TRUE for null."""

    column: BoundColumn
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.column} {'<>' if self.negated else '='} CAST('NaN' AS DOUBLE)"


@dataclass(frozen=True, slots=True)
class Compare(BoundPredicate):
    """A column against a value; the operator is not ``<=>``."""

    column: BoundColumn
    op: Operator
    value: Physical

    def __str__(self) -> str:
        return f"{self.column} {self.op} {self.column.spelled(self.value)}"


@dataclass(frozen=True, slots=True)
class CompareColumns(BoundPredicate):
    """Two columns of a row, compared after both are converted, exactly, to `domain`."""

    left: BoundColumn
    op: Operator
    right: BoundColumn
    domain: pa.DataType

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class OneOf(BoundPredicate):
    """Whether a column has one of at least two values, which are sorted and differ."""

    column: BoundColumn
    values: tuple[Physical, ...]
    negated: bool = False

    def __str__(self) -> str:
        values = ", ".join(map(self.column.spelled, self.values))
        return f"{self.column} {_not(self)}IN ({values})"


@dataclass(frozen=True, slots=True)
class PrefixTest(BoundPredicate):
    """Whether a text column starts with a text that is not empty."""

    column: BoundColumn
    prefix: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{'NOT ' if self.negated else ''}startswith({self.column}, {quote_text(self.prefix)})"


@dataclass(frozen=True, slots=True)
class LikeTest(BoundPredicate):
    """Whether a text column matches a pattern that is more than a text or a prefix."""

    column: BoundColumn
    pattern: Pattern
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.column} {_not(self)}LIKE {quote_text(join_pattern(self.pattern))}"


@dataclass(frozen=True, slots=True)
class Computed(BoundPredicate):
    """A test of what is computed of columns: no statistics, footers or older schemas tell anything of it."""

    test: BoundPredicate
    looks_at: tuple[BoundColumn, ...]
    """The columns of the table that it needs."""

    def __str__(self) -> str:
        return str(self.test)


def conjunction(parts: Iterable[BoundPredicate]) -> BoundPredicate:
    """TRUE where all parts are; of no parts, ALWAYS."""
    children: dict[BoundPredicate, None] = {}
    for part in parts:
        if part == NEVER:
            return NEVER
        if part != ALWAYS:
            children.update(dict.fromkeys(part.children if isinstance(part, AllOf) else (part,)))
    return AllOf(tuple(children)) if len(children) > 1 else next(iter(children), ALWAYS)


def disjunction(parts: Iterable[BoundPredicate]) -> BoundPredicate:
    """TRUE where one of the parts is; of no parts, NEVER.

    Equalities of one column are gathered into one test.
    """
    children: dict[BoundPredicate, None] = {}
    for part in parts:
        if part == ALWAYS:
            return ALWAYS
        if part != NEVER:
            children.update(dict.fromkeys(part.children if isinstance(part, AnyOf) else (part,)))
    gathered = _gathered(children)
    return AnyOf(gathered) if len(gathered) > 1 else next(iter(gathered), NEVER)


def one_of(column: BoundColumn, values: Collection[Physical], *, negated: bool = False) -> BoundPredicate:
    """The membership test of any number of values; with none, nothing is a member."""
    # Sets would keep either of 0.0 and -0.0, and both are right.
    ordered = tuple(sorted(set(values)))
    match ordered:
        case ():
            return NullTest(column, negated=True) if negated else NEVER
        case (value,):
            return Compare(column, Operator.NE if negated else Operator.EQ, value)
        case _:
            return OneOf(column, ordered, negated)


def columns_of(test: BoundPredicate) -> tuple[BoundColumn, ...]:
    """The columns that a single test looks at."""
    match test:
        case Computed(looks_at=looked_at):
            return looked_at
        case CompareColumns(left=left, right=right):
            return left, right
        case NullTest(column=column) | NaNTest(column=column) | Compare(column=column) | OneOf(column=column):
            return (column,)
        case PrefixTest(column=column) | LikeTest(column=column):
            return (column,)
        case _:
            return ()


def tests(predicate: BoundPredicate) -> Iterator[BoundPredicate]:
    """All tests of a predicate, from left to right."""
    if isinstance(predicate, AllOf | AnyOf):
        for child in predicate.children:
            yield from tests(child)
    elif not isinstance(predicate, BoundConstant):
        yield predicate


def replace_tests(
    predicate: BoundPredicate, replacement: Callable[[BoundPredicate], BoundPredicate]
) -> BoundPredicate:
    """The predicate with each test replaced."""
    match predicate:
        case AllOf(children=children):
            return conjunction(replace_tests(c, replacement) for c in children)
        case AnyOf(children=children):
            return disjunction(replace_tests(c, replacement) for c in children)
        case BoundConstant():
            return predicate
        case _:
            return replacement(predicate)


def columns(predicate: BoundPredicate) -> set[int]:
    """Ids of the top-level fields that a row must have for the predicate to be evaluated on it."""
    return {column.root_id for test in tests(predicate) for column in columns_of(test)}


def as_literal_value(value: Physical, data_type: t.DataType) -> Value:
    """A physical value as literals hold it."""
    match data_type:
        case t.DateType():
            return date.fromordinal(int(value) + EPOCH_ORDINAL)
        case t.TimeType():
            seconds, millis = divmod(int(value), 1000)
            return time(seconds // 3600, seconds // 60 % 60, seconds % 60, millis * 1000)
        case t.TimestampType():
            return Timestamp(int(value))
        case t.LocalZonedTimestampType():
            return Timestamp(int(value), zoned=True)
        case _:
            return value


def _gathered(parts: Iterable[BoundPredicate]) -> tuple[BoundPredicate, ...]:
    """The parts with all equalities of a column made one, at the place of the first of them."""
    members: dict[BoundColumn, list[Physical]] = {}
    places: dict[BoundPredicate | BoundColumn, None] = {}
    for part in parts:
        match part:
            case Compare(column=column, op=Operator.EQ, value=value):
                members.setdefault(column, []).append(value)
                places[column] = None
            case OneOf(column=column, values=values, negated=False):
                members.setdefault(column, []).extend(values)
                places[column] = None
            case _:
                places[part] = None
    return tuple(one_of(p, members[p]) if isinstance(p, BoundColumn) else p for p in places)


def _not(test: NullTest | OneOf | LikeTest) -> str:
    return "NOT " if test.negated else ""
