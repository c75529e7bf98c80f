"""Prunes what a predicate cannot match: manifests, partitions, buckets and files, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bound import BoundPredicate
from anabranch.expr.coerce import converts_exactly
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.prune import key_values, may_match
from anabranch.forked import may_use_polars
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.rows.binary_row import SlotKind, slot_kind
from anabranch.format.rows.binary_row_columns import decode_column
from anabranch.format.rows.bucket import assign_buckets
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import DataType, Field, is_atomic
from anabranch.kernel.log.schema_log import SchemaLog
from anabranch.lazy import lazy


def partition_values(partitions: pl.Series, schema: TableSchema) -> pa.Table:
    """Decode partition rows into a table with one column per partition field."""
    rows = partitions.to_arrow()
    fields = schema.partition_fields
    arrays = [
        decode_column(rows, i, f.type, len(fields), strict=True, where="a partition")
        for i, f in enumerate(fields)
    ]
    return pa.Table.from_arrays(arrays, names=[f.name for f in fields])


def manifests_may_match(
    metas: Sequence[ManifestFileMeta], predicate: BoundPredicate, schema: TableSchema
) -> list[ManifestFileMeta]:
    """Return the manifests whose partition range may hold a match."""
    may_use_polars()
    statistics = Statistics(
        fields=schema.partition_fields,
        table_fields=schema.partition_fields,
        min_rows=pa.array([m.partition_stats.min_values for m in metas], pa.large_binary()),
        max_rows=pa.array([m.partition_stats.max_values for m in metas], pa.large_binary()),
        null_counts=pl.Series([list(m.partition_stats.null_counts) for m in metas], dtype=pl.List(pl.Int64)),
        row_counts=pa.array([m.num_added_files + m.num_deleted_files for m in metas], pa.int64()),
    )
    keep = may_match(predicate, statistics)
    return [meta for meta, kept in zip(metas, keep, strict=True) if kept]


def partitions_match(frame: pl.DataFrame, predicate: BoundPredicate, schema: TableSchema) -> pl.DataFrame:
    """Return the entries whose partition satisfies the predicate, decided exactly."""
    unique = frame["partition"].unique()
    mask = filter_mask(predicate, partition_values(unique, schema))
    kept = unique.filter(pl.Series(np.asarray(mask, dtype=bool)))
    return frame if len(kept) == len(unique) else frame.filter(pl.col("partition").is_in(kept.implode()))


def buckets_match(
    frame: pl.DataFrame, predicate: BoundPredicate, schema: TableSchema, schemas: SchemaLog
) -> pl.DataFrame:
    """Return the entries whose bucket can hold one of the bucket keys that the predicate asks for.

    The number of buckets may have changed over time, so each entry is judged by its own. So may the key and its
    types, if another engine changed them: such files are not pruned by bucket.
    """
    keys = [schema.field(name) for name in schema.bucket_keys]
    if not keys:
        return frame
    wanted = key_values(predicate, [key.id for key in keys])
    if wanted is None:
        return frame
    if any(_hashes_vary(key.type, row[i]) for i, key in enumerate(keys) for row in wanted):
        return frame
    columns = [pa.array([row[i] for row in wanted], to_arrow_type(key.type)) for i, key in enumerate(keys)]
    rehashed = [i for i in frame["schema_id"].unique() if not _has_keys(schemas.get(i), keys)]
    keep = (pl.col("total_buckets") <= 0) | pl.col("schema_id").is_in(rehashed)
    for total in frame["total_buckets"].unique().to_list():
        if total > 0:
            buckets = assign_buckets(columns, [key.type for key in keys], total).tolist()
            keep |= (pl.col("total_buckets") == total) & pl.col("bucket").is_in(sorted(set(buckets)))
    return frame.filter(keep)


def _hashes_vary(data_type: DataType, value: pa.Scalar | None) -> bool:
    """Whether engines encode the value differently, so that they put it into different buckets.

    They differ in nulls of types that take more than a slot, and in the length of some wide decimals.
    """
    kind = slot_kind(data_type)
    return kind is SlotKind.WIDE_DECIMAL or (kind is SlotKind.MILLIS_AND_NANOS and value is None)


def _has_keys(schema: TableSchema, keys: Sequence[Field]) -> bool:
    """Whether rows of an older schema were hashed by these fields, in types that hash alike."""
    if [schema.field(name).id for name in schema.bucket_keys] != [key.id for key in keys]:
        return False
    for key in keys:
        old = schema.field_by_id(key.id)
        if old is None or to_arrow_type(old.type) != to_arrow_type(key.type):
            return False
    return True


def files_may_match(
    frame: pl.DataFrame, predicate: BoundPredicate, schema: TableSchema, schemas: SchemaLog
) -> pl.DataFrame:
    """Return the entries whose column statistics may hold a match."""
    keep = np.ones(frame.height, dtype=bool)
    for rows, statistics in statistics_of_files(frame, schema, schemas):
        mask = np.asarray(may_match(predicate, statistics), dtype=bool)
        if rows is None:
            keep = mask
        else:
            keep[rows] = mask
    return frame if keep.all() else frame.filter(pl.Series(keep))


def statistics_of_files(
    frame: pl.DataFrame, schema: TableSchema, schemas: SchemaLog
) -> Iterator[tuple[np.ndarray | None, Statistics]]:
    """Yield column statistics of entries, with the rows they belong to (None for all).

    They are laid out by the schema a file was written with, so they come in groups of one schema and one choice
    of columns; asked for by the field ids of `schema`.
    """
    for schema_id, columns, rows in _layouts(frame):
        group = frame if rows is None else frame[rows]
        file_schema = schemas.get(schema_id)
        if columns is None:
            fields = file_schema.fields
        else:
            known = {f.name: f for f in file_schema.fields}
            fields = tuple(known[name] for name in columns if name in known)
            if len(fields) != len(columns):
                raise UnsupportedFeatureError(
                    f"a file of schema {schema_id} has statistics of columns {columns}, not all of which "
                    "are in that schema",
                    feature="stats-columns",
                )
        yield (
            rows,
            Statistics(
                fields=fields,
                table_fields=schema.fields,
                absent_ids=frozenset(f.id for f in schema.fields) - {f.id for f in file_schema.fields},
                min_rows=group["value_min"].to_arrow(),
                max_rows=group["value_max"].to_arrow(),
                null_counts=group["value_null_counts"],
                row_counts=group["row_count"].to_arrow(),
                partitions=(group["partition"], schema),
            ),
        )


def _layouts(frame: pl.DataFrame) -> list[tuple[int, list[str] | None, np.ndarray | None]]:
    """Group rows whose statistics are laid out alike: schema id, column names, rows (None for all)."""
    dense = frame["value_stats_cols"]
    if frame["schema_id"].n_unique() == 1 and dense.null_count() == len(dense):
        return [(int(frame["schema_id"][0]), None, None)]
    keys = frame.select("schema_id", cols=dense.list.join("\0"), count=dense.list.len()).with_row_index("row")
    groups: list[tuple[int, list[str] | None, np.ndarray | None]] = []
    for group in keys.partition_by("schema_id", "cols", "count", maintain_order=True):
        rows = group["row"].to_numpy()
        columns = dense[int(rows[0])]
        groups.append((int(group["schema_id"][0]), None if columns is None else columns.to_list(), rows))
    return groups


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
