"""Paths of the data files of many manifest entries at once; each partition is formatted only once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.format.records.data_file import ManifestEntry
from anabranch.format.records.layout import Layout
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_path
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.options import PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME


def bucket_folders(frame: pl.DataFrame, schema: TableSchema) -> pl.Series:
    """Return the bucket folder of each entry, relative to the table. Raises `CorruptTableError`."""
    fields = schema.partition_fields
    types = [f.type for f in fields]
    legacy, default = PARTITION_LEGACY_NAME.of(schema.options), PARTITION_DEFAULT_NAME.of(schema.options)
    buckets = frame.select("partition", "bucket").unique()
    folders = [
        Layout().bucket_path(
            partition_path(
                fields,
                decode_row(types, row, where="the partition of a manifest entry"),
                legacy_names=legacy,
                default_name=default,
            ),
            bucket,
        )
        for row, bucket in buckets.iter_rows()
    ]
    named = buckets.with_columns(folder=pl.Series(folders, dtype=pl.String))
    on = ["partition", "bucket"]
    return frame.select(on).join(named, on=on, how="left", maintain_order="left")["folder"]


def data_file_paths(entries: Sequence[ManifestEntry], schema: TableSchema) -> list[str]:
    """Return the data file path of each entry, in order."""
    frame = pl.DataFrame(
        {"partition": [e.partition for e in entries], "bucket": [e.bucket for e in entries]},
        schema={"partition": pl.Binary, "bucket": pl.Int32},
    )
    folders = bucket_folders(frame, schema)
    return [f"{folder}/{entry.file.file_name}" for folder, entry in zip(folders, entries, strict=True)]


def missing_files(context: TableContext, frame: pl.DataFrame, schema: TableSchema) -> list[str]:
    """Return the paths of data files that are missing from the store; one listing per bucket."""
    odd = odd_files(context, frame, schema)
    return odd.filter(pl.col("there").is_null())["path"].to_list()


def odd_files(context: TableContext, frame: pl.DataFrame, schema: TableSchema) -> pl.DataFrame:
    """Return the data files that are missing or not as large as their entries say; one listing per bucket.

    Columns: `path`; `file_size`, by the entry; `there`, the size in the store, null where there is no such file.
    """
    if frame.height == 0:
        return pl.DataFrame(schema={"path": pl.String, "file_size": pl.Int64, "there": pl.Int64})
    folders = bucket_folders(frame, schema)
    wanted = pl.DataFrame(
        {"path": folders + "/" + frame["file_name"], "file_size": frame["file_size"].cast(pl.Int64)}
    )
    listed = folders.unique().sort().to_list()  # in an order that is the same each time

    def sizes(folder: str) -> list[tuple[str, int]]:
        return [(info.path, info.size) for info in context.storage.list(folder)]

    there = pl.DataFrame(
        [row for rows in each(sizes, listed) for row in rows],
        schema={"path": pl.String, "there": pl.Int64},
        orient="row",
    )
    found = wanted.join(there, on="path", how="left", maintain_order="left")
    return found.filter(pl.col("there").is_null() | (pl.col("there") != pl.col("file_size")))
