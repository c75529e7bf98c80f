"""Definition of a catalog procedure: its parameters, result columns, and the function it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import InvalidInputError
from anabranch.table import Table

Arguments = Mapping[str, Any]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Parameter:
    """Parameter of a procedure."""

    name: str
    type: str
    """Type in Spark's SQL: STRING, BIGINT or BOOLEAN."""
    meaning: str
    required: bool = False


@dataclass(frozen=True)
class Verb:
    """A procedure."""

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    """Parameters besides `table`, which comes first."""
    columns: str
    """Result columns, as DDL."""
    rows: Callable[[Table, Arguments], Iterable[Row]]


TABLE: Final = Parameter("table", "STRING", "the table, db.t", required=True)
"""First parameter of every procedure."""
DRY_RUN: Final = Parameter("dry_run", "BOOLEAN", "only say what would be done")


def checked(found: Verb, given: Arguments) -> dict[str, Any]:
    """Return the arguments that are not NULL. Raises `InvalidInputError` if a required one is missing."""
    missing = [p.name for p in found.parameters if p.required and given.get(p.name) is None]
    if missing:
        raise InvalidInputError(
            f"procedure '{found.name}' needs the argument '{missing[0]}'",
            hint=f"write {missing[0]} => ...: {next(p.meaning for p in found.parameters if p.name == missing[0])}",
        )
    return {name: value for name, value in given.items() if value is not None}


def without(given: Arguments, name: str) -> dict[str, Any]:
    """Return the arguments except one."""
    return {key: value for key, value in given.items() if key != name}
