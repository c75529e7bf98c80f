"""The definition of a check, and the inputs of the readers that parse checks from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.audit.checks_file import Item
from anabranch.audit.measures import (
    Findings,
    Found,
    Measure,
)
from anabranch.errors import PredicateError
from anabranch.expr.bind import bind, resolve
from anabranch.expr.bound import BoundColumn
from anabranch.expr.nodes import Predicate, col
from anabranch.expr.parse import parse
from anabranch.format.types.data_types import (
    DataType,
    Field,
)


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
