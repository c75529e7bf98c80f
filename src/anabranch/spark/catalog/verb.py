"""What a procedure of the catalog is: its parameters, the columns of its answer, and what it calls."""

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
    """What a procedure is given."""

    name: str
    type: str
    """In Spark's SQL: STRING, BIGINT or BOOLEAN."""
    meaning: str
    required: bool = False


@dataclass(frozen=True)
class Verb:
    """A procedure."""

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    """Those besides `table`, which comes first."""
    columns: str
    """Of the answer, as DDL."""
    rows: Callable[[Table, Arguments], Iterable[Row]]


TABLE: Final = Parameter("table", "STRING", "the table, db.t", required=True)
"""The first of every procedure."""
DRY_RUN: Final = Parameter("dry_run", "BOOLEAN", "only say what would be done")


def checked(found: Verb, given: Arguments) -> dict[str, Any]:
    """The arguments that are not NULL. Raises `InvalidInputError` if a required one is missing."""
    missing = [p.name for p in found.parameters if p.required and given.get(p.name) is None]
    if missing:
        raise InvalidInputError(
            f"procedure '{found.name}' needs the argument '{missing[0]}'",
            hint=f"write {missing[0]} => ...: {next(p.meaning for p in found.parameters if p.name == missing[0])}",
        )
    return {name: value for name, value in given.items() if value is not None}


def without(given: Arguments, name: str) -> dict[str, Any]:
    """The arguments but one."""
    return {key: value for key, value in given.items() if key != name}
