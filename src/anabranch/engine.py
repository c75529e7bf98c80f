"""Execution of work on many files: in this process, or on a cluster.

The kernel decides what is to be done; an engine does it. Work is a plain function with one picklable
argument and a picklable result, so that it may run anywhere, and may be rerun if a machine fails: it
writes under fresh names only, and only the result that comes back counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from anabranch.long_work import step

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs work that is independent item by item."""

    def map(self, work: Callable[[T], R], items: Sequence[T], *, name: str) -> Iterator[R]:
        """Yield the results of `work` for each item, in any order; an error in one ends the iteration.

        Args:
            work: a function of a module (it is pickled by name where it travels).
            items: what to work on; each is one unit.
            name: what is being done, for progress displays.
        """
        ...


@dataclass(frozen=True)
class WrittenRows:
    """Rows in new files of a table, durable, for a commit to take in."""

    messages: Sequence[Any]
    """The commit messages, in the order of the rows."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Properties for the commit, which say where the rows come from."""
    told: Callable[[str], None] = lambda _: None
    """Call with the identity of the branch whose commit has these properties, once it is made."""


@runtime_checkable
class WritesFrames(Protocol):
    """Optional engine ability: write rows that are on its own machines without moving them here."""

    def columns(self, frame: Any) -> Sequence[Any] | None:
        """Return the columns of a frame, as `anabranch.format.types.data_types.Field`; None for another engine's."""
        ...

    def write(self, frame: Any, table: Any, schema: Any = None) -> WrittenRows | None:
        """Write a frame's rows to new files of a table, durable on return, for a commit to take in.

        Args:
            frame: the user's rows.
            table: the `anabranch.table.Table`.
            schema: the `anabranch.format.schema.table_schema.TableSchema` to write them in; the table's if None.

        Returns:
            The written rows; None if the rows are not of the engine's kind, or if its machines cannot reach the
            table.
        """
        ...


@runtime_checkable
class ReadsFrames(Protocol):
    """Optional engine ability: return rows as a frame of its own, without moving them here."""

    def frame(self, scan: Any) -> Any:
        """Return the rows of an `anabranch.scan.scan.Scan` as a frame of the engine's."""
        ...


@runtime_checkable
class MeasuresRows(Protocol):
    """Optional engine ability: measure what the checks of an audit need, on its own machines."""

    def measure(self, measures: Sequence[Any], sides: Any) -> Mapping[Any, Any]:
        """Return the result of each `anabranch.audit.measures.Measure` of an `anabranch.audit.Sides`.

        Conditions in text are in the engine's own language.
        """
        ...


class LocalEngine:
    """Runs everything in this process, one item after the other; the work itself uses all cores."""

    def map(self, work: Callable[[T], R], items: Sequence[T], *, name: str) -> Iterator[R]:
        return self._done(work, items, name)

    def _done(self, work: Callable[[T], R], items: Sequence[T], name: str) -> Iterator[R]:
        with step(name, "steps", len(items)) as advance:
            for item in items:
                yield work(item)
                advance(1)
