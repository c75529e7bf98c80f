"""Measures that checks need of a table's rows. Plain values; an engine computes them.

A condition is SQL text or a predicate. Text is in our own language of filters if this process measures, and in
Spark's SQL if Spark does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from anabranch.expr.nodes import Predicate

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
