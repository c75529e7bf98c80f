"""Partition identity: keys, order and text of partition rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow.compute as pc

from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_label
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.values import physical_values
from anabranch.kernel.scan.pruning import partition_values

PartitionKey = tuple[Any, ...]


def partition_key(values: Sequence[Any]) -> PartitionKey:
    """Return a key that is equal for equal partitions; `values` are physical.

    The bytes of partition rows are not unique: engines encode nulls of some types differently. As in folder names,
    NaN is one value and 0.0 and -0.0 are two.
    """
    return tuple(value.hex() if isinstance(value, float) else value for value in values)


def key_of_row(row: bytes, schema: TableSchema) -> PartitionKey:
    """Return the key of a partition row as stored in manifests. Raises `CorruptTableError`."""
    types = [f.type for f in schema.partition_fields]
    return partition_key(decode_row(types, row, where="the partition of a manifest entry"))


def keys_of_rows(rows: pl.Series, schema: TableSchema) -> list[PartitionKey]:
    """Return the keys of many partition rows. Raises `CorruptTableError`."""
    fields = schema.partition_fields
    if not fields:
        return [()] * len(rows)
    columns = partition_values(rows, schema)
    values = [physical_values(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return [partition_key(row) for row in zip(*values, strict=True)]


def in_order_of_values(rows: pl.Series, schema: TableSchema) -> pl.Series:
    """Sort partition rows by the values of the partition fields, nulls first, as other engines do."""
    if not schema.partition_fields:
        return rows
    values = partition_values(rows, schema)
    # By number, since a partition field may have any name.
    numbered = values.rename_columns([str(i) for i in range(values.num_columns)])
    order = pc.sort_indices(numbered, [(name, "ascending", "at_start") for name in numbered.column_names])
    return rows.gather(order.to_numpy())


def partition_text(row: bytes, schema: TableSchema) -> str:
    """Format a partition row as unique text for people: ``dt=2026-01-01/hour=5``."""
    fields = schema.partition_fields
    values = decode_row([f.type for f in fields], row, where="the partition of a manifest entry")
    return partition_label(fields, values) or "(the whole table)"


def of_partitions(
    files: EntryFrame, wanted: Iterable[PartitionKey], schema: TableSchema
) -> Mapping[PartitionKey, pl.DataFrame]:
    """Return the files of some partitions, each in order."""
    chosen = set(wanted)
    rows = files.df["partition"].unique(maintain_order=True)
    found: dict[PartitionKey, pl.DataFrame] = {}
    keys = keys_of_rows(rows, schema)
    spellings: dict[PartitionKey, list[bytes]] = {}
    for key, row in zip(keys, rows, strict=True):
        if key in chosen:
            spellings.setdefault(key, []).append(row)
    for key, spelled in spellings.items():
        found[key] = files.df.filter(pl.col("partition").is_in(pl.Series(spelled, dtype=pl.Binary).implode()))
    return found
