"""Instants in the unit of DuckDB, which has one for all of them.

DuckDB cuts what an instant is compared with to the column's unit: of milliseconds, ``z < '00:00:00.0005'`` left 00:00:00 out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from anabranch.expr.nodes import Predicate
from anabranch.frames.narrowing import Narrowing


def in_microseconds(rows: Narrowing) -> Narrowing:
    """Return the rows with instants of seconds and milliseconds as ones of microseconds."""
    schema = rows.arrow_schema
    return rows if _in_microseconds(schema) == schema else _Microseconds(rows)


@dataclass(frozen=True)
class _Microseconds:
    rows: Narrowing

    @property
    def title(self) -> str:
        return self.rows.title

    @property
    def arrow_schema(self) -> pa.Schema:
        return _in_microseconds(self.rows.arrow_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.arrow_schema
        return (batch.cast(schema) for batch in self.rows.to_batches())

    def where(self, predicate: Predicate) -> Self | None:
        found = self.rows.where(predicate)
        return None if found is None else replace(self, rows=found)

    def only_columns(self, names: Sequence[str]) -> Self:
        return replace(self, rows=self.rows.only_columns(names))

    def first(self, count: int) -> Self:
        return replace(self, rows=self.rows.first(count))


def _in_microseconds(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_finer(field.type)) for field in schema])


def _finer(kind: pa.DataType) -> pa.DataType:
    is_coarse = pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit in {"s", "ms"}
    return pa.timestamp("us", kind.tz) if is_coarse else kind
