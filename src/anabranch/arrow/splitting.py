"""Distribution of rows to partitions and buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.format.records.layout import Layout
from anabranch.format.rows.binary_row import decode_row, encode_row, with_arity
from anabranch.format.rows.bucket import assign_buckets
from anabranch.format.rows.partition_path import partition_path
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.values import physical_values
from anabranch.options import PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME


@dataclass(frozen=True, slots=True)
class BucketKey:
    """A bucket of a partition. Partitions are distinguished by their rows, never by their folders."""

    partition: bytes
    """Partition values as a BinaryRow with its 4-byte arity."""
    bucket: int


class Splitter:
    """Distributor of a table's rows to buckets."""

    def __init__(self, schema: TableSchema, options: Mapping[str, str]) -> None:
        self._fields = schema.partition_fields
        self._types = [f.type for f in self._fields]
        self._bucket_fields = [schema.field(name) for name in schema.bucket_keys]
        self._bucket_count = max(1, schema.bucket)
        self._legacy_names = PARTITION_LEGACY_NAME.of(options)
        self._default_name = PARTITION_DEFAULT_NAME.of(options)

    def split(self, table: pa.Table) -> tuple[pa.Table, list[tuple[BucketKey, int]]]:
        """Group the rows by bucket, keeping their order in `table` within each.

        Returns:
            The rows, and for each bucket how many of them are its; buckets stand in the order of their first rows.
        """
        codes = self._codes(table)
        if codes is None or not codes.any():
            return table, [(self._keys(table, np.zeros(1, np.int64))[0], len(table))] if len(table) else []
        order = np.argsort(_narrowed(codes), kind="stable")
        counts = np.bincount(codes)
        keys = self._keys(table, order[np.cumsum(counts) - counts])
        return table.take(pa.array(order)), list(zip(keys, counts.tolist(), strict=True))

    def folder(self, key: BucketKey) -> str:
        """Return the folder of the bucket's files, relative to the table's root."""
        values = decode_row(self._types, key.partition)
        partition = partition_path(
            self._fields, values, legacy_names=self._legacy_names, default_name=self._default_name
        )
        return Layout().bucket_path(partition, key.bucket)

    def _codes(self, table: pa.Table) -> npt.NDArray[np.int64] | None:
        """Return the same number for rows of one bucket, counted from 0 in the order of first rows."""
        columns = [table.column(f.name).combine_chunks() for f in self._fields]
        buckets = self._buckets(table)
        if buckets is not None:
            columns.append(pa.array(buckets))
        codes: npt.NDArray[np.int64] | None = None
        for column in columns:
            found = _encoded(column)
            codes = found if codes is None else _encoded(pa.array(codes * (found.max(initial=0) + 1) + found))
        return codes

    def _buckets(self, rows: pa.Table) -> npt.NDArray[np.int32] | None:
        """Return the bucket of each row; None if all rows belong to bucket 0."""
        if not self._bucket_fields or self._bucket_count == 1:
            return None
        columns = [rows.column(f.name) for f in self._bucket_fields]
        return assign_buckets(columns, [f.type for f in self._bucket_fields], self._bucket_count)

    def _keys(self, table: pa.Table, first_rows: npt.NDArray[np.int64]) -> list[BucketKey]:
        """Return the bucket of each of these rows."""
        rows = table.select([f.name for f in (*self._fields, *self._bucket_fields)]).take(
            pa.array(first_rows)
        )
        columns = [physical_values(rows.column(f.name), f.type) for f in self._fields]
        values: list[tuple[Any, ...]] = [*zip(*columns, strict=True)] if columns else [()] * len(first_rows)
        buckets = self._buckets(rows)
        return [
            BucketKey(with_arity(len(self._types), encode_row(self._types, row, reserve_nulls=True)), bucket)
            for row, bucket in zip(
                values, [0] * len(values) if buckets is None else buckets.tolist(), strict=True
            )
        ]


def _encoded(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a number per element, equal for equal elements and for nulls; zeros of either sign differ."""
    indices = column.dictionary_encode(null_encoding="encode").indices
    numbers: npt.NDArray[np.int64] = indices.to_numpy().astype(np.int64, copy=False)
    return numbers


def _narrowed(codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the numbers in 16 bits where they fit, which sort much faster."""
    return codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes
