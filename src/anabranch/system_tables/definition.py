"""The definition of a system table: a name, columns, and how its rows are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.expr.bind import bind
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.parse import parse
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.lazy import lazy


@dataclass(frozen=True)
class View:
    """The table, and the moment at which it is read."""

    context: TableContext
    snapshot: Snapshot | None
    """None for a table that was never written."""
    schema: TableSchema
    pinned: bool = False
    """Whether a moment of the past was asked for."""
    columns: frozenset[str] = frozenset()
    """Requested columns; others need not be made."""
    damage: CorruptTableError | None = None
    """Why the newest snapshot or schema cannot be read: then there is neither, and tables that need one say so."""

    @classmethod
    def damaged(cls, context: TableContext, damage: CorruptTableError) -> View:
        """Return the view of a branch whose newest snapshot or schema cannot be read."""
        nothing = TableSchema.create(parse_columns("unknown STRING"), time_millis=0)
        return cls(context, None, nothing, damage=damage)


Columns = Mapping[str, Any]
"""Values by column: lists, Arrow arrays or Polars series."""
Rows = Iterable[Sequence[Any]]
"""Rows that have all columns."""


@dataclass(frozen=True)
class SystemTable:
    """A table whose rows are made from metadata when it is read."""

    name: str
    meaning: str
    ddl: str
    """Its columns, as SQL spells them."""
    rows: Callable[[View], Columns | Rows]
    """Makes rows with all columns; or by column those that are requested, and perhaps others."""
    of_a_moment: bool = False
    """Whether it can also be read as of a moment in the past."""
    needs_newest: bool = False
    """Whether nothing of it can be told where the newest snapshot or schema is damaged."""
    parts: Callable[[View], Iterator[Columns]] | None = None
    """Makes the same rows in parts, so that not all are in memory at once; None if there are never that many."""

    @lazy
    def fields(self) -> tuple[Field, ...]:
        """The columns."""
        return parse_columns(self.ddl)

    @lazy
    def schema(self) -> TableSchema:
        """The columns as those of a table."""
        return TableSchema.create(self.fields, time_millis=0)

    def read(self, view: View, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows. Raises `SchemaError` for a column it does not have."""
        chosen = self._chosen(columns)
        made = self.rows(replace(view, columns=frozenset(f.name for f in chosen)))
        return arrow_table(chosen, made if isinstance(made, Mapping) else by_column(self.fields, made))

    def read_parts(self, view: View, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in parts, in the same order. Raises `SchemaError` for a column it does not have."""
        if self.parts is None:
            yield self.read(view, columns)
            return
        chosen = self._chosen(columns)
        for part in self.parts(replace(view, columns=frozenset(f.name for f in chosen))):
            yield arrow_table(chosen, part)

    def _chosen(self, columns: Sequence[str] | None) -> tuple[Field, ...]:
        return self.fields if columns is None else tuple(self.schema.field(name) for name in columns)


def select(
    table: pa.Table,
    fields: Sequence[Field],
    *,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Return some rows and columns of a system table that was read whole. Raises `PredicateError`, `SchemaError`."""
    if filter is not None:
        mask = filter_mask(bind(parse(filter), fields), table)
        table = table.filter(mask)
    if columns is not None:
        schema = TableSchema.create(fields, time_millis=0)
        table = table.select([schema.field(name).name for name in columns])
    return table if limit is None else table.slice(0, limit)


def select_parts(
    parts: Iterable[pa.Table],
    fields: Sequence[Field],
    *,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows and columns as `select` does, of a system table that is read in parts; none is read after the limit."""
    left = limit
    for part in parts:
        chosen = select(part, fields, filter=filter, columns=columns, limit=left)
        yield from chosen.to_batches() or [pa.RecordBatch.from_pylist([], chosen.schema)]
        if left is not None:
            left -= chosen.num_rows
            if not left:
                return


def arrow_table(fields: Sequence[Field], columns: Columns) -> pa.Table:
    """Return the columns in the Arrow types of the fields."""
    schema = to_arrow_schema(fields)
    return pa.Table.from_arrays([_array(columns[f.name], f.type) for f in schema], schema=schema)


def by_column(fields: Iterable[Field], rows: Iterable[Sequence[Any]]) -> Columns:
    """Convert rows that have all columns to values by column."""
    names = [f.name for f in fields]
    whole = list(rows)
    return dict(zip(names, zip(*whole, strict=True), strict=True)) if whole else dict.fromkeys(names, ())


def problem_of(error: AnabranchError) -> str:
    """Return what cannot be read, and what to do about it, as one text."""
    return error.message if error.hint is None else f"{error.message} ({error.hint})"


def damaged_row(fields: Iterable[Field], problem: str, **known: Any) -> tuple[Any, ...]:
    """Return the row of something that cannot be read: what is known of it, and why, under ``problem``."""
    return tuple(problem if field.name == "problem" else known.get(field.name) for field in fields)


def as_json(value: Any) -> str:
    """Return JSON text, with keys in their given order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _array(values: Any, arrow_type: pa.DataType) -> Any:
    found = values.to_arrow() if hasattr(values, "to_arrow") else values
    if isinstance(found, pa.Array | pa.ChunkedArray):
        return found if found.type == arrow_type else found.cast(arrow_type)
    return pa.array(found, arrow_type)
