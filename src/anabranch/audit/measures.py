"""Checks, and the measures of a table's rows that they need. Plain values; an engine computes them.

A condition is SQL text or a predicate. Text is in our own language of filters if this process measures, and in
Spark's SQL if Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from anabranch.audit.checks_file import Item
from anabranch.errors import PredicateError
from anabranch.expr.bind import bind, resolve
from anabranch.expr.bound import BoundColumn
from anabranch.expr.nodes import Predicate, col
from anabranch.expr.parse import parse
from anabranch.format.types.data_types import (
    DataType,
    Field,
)

Condition: TypeAlias = str | Predicate
SAMPLE_SIZE = 5
"""Offending rows shown in a sample."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure of rows."""

    where: Condition | None = None
    """Only rows for which it is TRUE; all if None."""
    of_main: bool = False
    """Whether main's rows are measured, not the audited branch's. Columns go by the branch's names there, too."""


@dataclass(frozen=True)
class RowCount(Measure):
    """Number of rows: an int."""


@dataclass(frozen=True)
class Offending(Measure):
    """Rows for which a condition is not TRUE: `Findings`."""

    condition: Condition
    columns: tuple[str, ...] = ()
    """Names of the columns shown in a sample."""


@dataclass(frozen=True)
class Duplicates(Measure):
    """Rows beyond the first of each key, `Findings`. Keys with a null are ignored."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Total(Measure):
    """Sum of a column's values: an int, Decimal or float, 0 without any."""

    column: str


@dataclass(frozen=True)
class NewestValue(Measure):
    """Greatest value of a column of dates or timestamps: epoch milliseconds, None without any."""

    column: str


@dataclass(frozen=True)
class MissingKeys(Measure):
    """Keys in main that no row of the branch has, `Findings`. Keys with a null are ignored."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class SqlQuery(Measure):
    """Rows that a query in Spark's SQL returns, `Findings`; ``{branch}`` and ``{main}`` stand for the rows of each."""

    sql: str


@dataclass(frozen=True)
class Findings:
    """Offending rows."""

    count: int
    sample: tuple[Mapping[str, Any], ...] = field(default=())
    """At most `SAMPLE_SIZE` of them, as JSON values."""


Found: TypeAlias = int | Decimal | float | Findings | None


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON values: numbers, text, true, false and null; all else as text."""
    return {name: _json_value(value) for name, value in row.items()}


def sample_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the first rows, as JSON values."""
    return tuple(json_row(row) for row in rows[:SAMPLE_SIZE])


_LONGEST = 200
_MOST_MEMBERS = 20


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if abs(value) < float("inf") else str(value)
        case str():
            return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        case bytes() | bytearray():
            text = bytes(value[: _LONGEST // 2]).hex()
            return text if len(value) <= _LONGEST // 2 else f"{text}…"
        case dict():
            return {str(k): _json_value(v) for k, v in [*value.items()][:_MOST_MEMBERS]}
        case list() | tuple():
            return [_json_value(v) for v in value[:_MOST_MEMBERS]]
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """What checks need to know besides rows, in epoch milliseconds."""

    now: int
    committed: int | None
    """Commit time of the audited snapshot; None without any."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Result of a check."""

    passed: bool
    found: str
    findings: Findings | None = None


@dataclass(frozen=True)
class Check:
    """One check, bound to a table."""

    kind: str
    name: str
    expected: str
    measures: tuple[Measure, ...]
    judge: Callable[[Sequence[Found], CheckFacts], CheckOutcome]
    """Called with the results of the measures."""
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class CheckEntry:
    """One entry of a file of checks, as its reader gets it."""

    kind: str
    item: Item
    """The value of the kind's key."""
    fields: Sequence[Field]
    """The columns of the table."""
    shown: tuple[str, ...]
    """Further columns shown in samples."""
    own_language: bool
    """Whether conditions are in our language, and can be checked before anything is read."""
    where: str | None = None
    most: Item | None = None

    def column(self, item: Item, *types: type[DataType]) -> BoundColumn:
        """Return a column by its name. Raises `InvalidInputError` naming the line."""
        name = item.text()
        try:
            found = resolve(col(name).column, self.fields)
        except PredicateError as error:
            item.fail(error.message, error.hint)
        if types and not isinstance(found.type, types):
            item.fail(f"column '{name}' is of type {found.type.spelling}, which '{self.kind}' does not take")
        return found

    def keys(self) -> tuple[str, ...]:
        """Return names of top-level columns that form a key."""
        found = [self.column(item) for item in self.item.each()]
        for column in found:
            if len(column.path) > 1:
                self.item.fail(f"'{self.kind}' takes whole columns, and {column} is a field inside of one")
        return tuple(column.path[0].name for column in found)

    def condition(self, item: Item) -> str:
        """Return a condition in SQL, checked if it is in our language."""
        text = item.text()
        if self.own_language:
            try:
                bind(parse(text), self.fields)
            except PredicateError as error:
                item.fail(f'{error.message} (in "{text}")', error.hint)
        return text

    def predicate(self, made: Predicate) -> Predicate:
        """Check a constructed condition. Raises `InvalidInputError` if it does not fit the columns."""
        try:
            bind(made, self.fields)
        except PredicateError as error:
            self.item.fail(error.message, error.hint)
        return made
