"""Column statistics of many files, decoded from their packed rows only for the requested columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from anabranch.expr.coerce import converts_exactly
from anabranch.format.rows.binary_row_columns import decode_column
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import Field, is_atomic
from anabranch.lazy import lazy


@dataclass(frozen=True)
class Statistics:
    """Minimum, maximum and null count by field id, for N files or manifests; unknown values are null."""

    fields: tuple[Field, ...]
    """Fields of the packed rows, in order, with their types at the time of writing."""
    table_fields: tuple[Field, ...]
    """The fields in their current types."""
    min_rows: pa.Array
    max_rows: pa.Array
    null_counts: pl.Series
    row_counts: pa.Array
    absent_ids: frozenset[int] = frozenset()
    """Fields that the files do not have, and which read null."""
    partitions: tuple[pl.Series, TableSchema] | None = field(default=None, repr=False)
    """Partition rows of the files, exact for partition columns."""

    @property
    def row_count(self) -> pa.Array:
        return self.row_counts

    def min(self, field_id: int) -> pa.Array | None:
        """Lower bounds in the current type, or None if unknown."""
        return self._bound(field_id, self.min_rows)

    def max(self, field_id: int) -> pa.Array | None:
        """Upper bounds in the current type, or None if unknown."""
        return self._bound(field_id, self.max_rows)

    def null_count(self, field_id: int) -> pa.Array | None:
        """Null counts (int64), or None if unknown."""
        if field_id in self.absent_ids:
            return self.row_counts
        exact = self._partition_value(field_id)
        if exact is not None:
            return pa.compute.if_else(exact.is_null(), self.row_counts, pa.scalar(0, pa.int64()))
        position = self._positions.get(field_id)
        if position is None or not self._keeps_values(position, field_id):
            return None
        counts = self.null_counts.list.get(position, null_on_oob=True)
        known = self.null_counts.list.len() == len(self.fields)
        return counts.set(~known, None).cast(pl.Int64).to_arrow()

    def _bound(self, field_id: int, rows: pa.Array) -> pa.Array | None:
        if field_id in self.absent_ids:
            return pa.nulls(len(rows), to_arrow_type(self._today[field_id].type))
        exact = self._partition_value(field_id)
        if exact is not None:
            return exact
        position = self._positions.get(field_id)
        if position is None or not is_atomic(self.fields[position].type):
            return None
        if not self._keeps_values(position, field_id):
            return None
        values = decode_column(rows, position, self.fields[position].type, len(self.fields))
        return values.cast(to_arrow_type(self._today[field_id].type))

    def _keeps_values(self, position: int, field_id: int) -> bool:
        """Whether the field's type changed at most in ways that keep values, and so order and nulls."""
        return converts_exactly(self.fields[position].type, self._today[field_id].type)

    def _partition_value(self, field_id: int) -> pa.Array | None:
        if self.partitions is None:
            return None
        rows, schema = self.partitions
        for i, partition_field in enumerate(schema.partition_fields):
            if partition_field.id == field_id:
                return decode_column(
                    rows.to_arrow(),
                    i,
                    partition_field.type,
                    len(schema.partition_keys),
                    strict=True,
                    where="a partition",
                )
        return None

    @lazy
    def _positions(self) -> dict[int, int]:
        return {f.id: i for i, f in enumerate(self.fields)}

    @lazy
    def _today(self) -> dict[int, Field]:
        return {f.id: f for f in self.table_fields}
