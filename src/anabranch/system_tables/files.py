"""System tables about a snapshot's content: files, manifests, partitions, buckets. Columnar throughout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.format.records.data_file import FileSource, ManifestFileMeta
from anabranch.format.records.entry_frame import COLUMNS, IDENTITY, EntryFrame
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_label
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.scan.pruning import Statistics, partition_values, statistics_of_files
from anabranch.system_tables.definition import Columns, Rows, SystemTable, View

_PART: Final = 20_000
"""Entries of manifests that are held at a time."""
_STATISTICS = ("null_value_counts", "min_value_stats", "max_value_stats")
_OF_STATISTICS = ("value_min", "value_max", "value_null_counts", "value_stats_cols")


def _files_in_parts(view: View) -> Iterator[Columns]:
    for frame in _live_in_parts(view, _needed(view)):
        yield _columns_of(frame, view)


def _needed(view: View) -> list[str]:
    """Return the entry columns that the requested columns are made of."""
    has_statistics = not view.columns.isdisjoint(_STATISTICS)
    return [c for c in COLUMNS if has_statistics or c not in _OF_STATISTICS]


def _columns_of(frame: pl.DataFrame, view: View) -> Columns:
    statistics = [name for name in _STATISTICS if name in view.columns]
    root = view.context.storage.url.rstrip("/")
    folder = root + "/" + bucket_folders(frame, view.schema)
    columns = {
        "partition": _partition_texts(frame["partition"], view),
        "bucket": frame["bucket"],
        "file_path": pl.select(
            pl.coalesce(frame["external_path"], folder + "/" + frame["file_name"])
        ).to_series(),
        "file_format": frame["file_name"].str.split(".").list.last(),
        "schema_id": frame["schema_id"],
        "level": frame["level"],
        "record_count": frame["row_count"],
        "file_size_in_bytes": frame["file_size"],
        "min_key": pa.nulls(frame.height, pa.string()),
        "max_key": pa.nulls(frame.height, pa.string()),
        "min_sequence_number": frame["min_sequence_number"],
        "max_sequence_number": frame["max_sequence_number"],
        "creation_time": frame["creation_time"],
        "deleteRowCount": frame["delete_row_count"],
        "file_source": frame["file_source"].replace_strict(
            {int(source): source.name for source in FileSource}, default=None, return_dtype=pl.String
        ),
        "first_row_id": frame["first_row_id"],
        "write_cols": frame["write_cols"],
        "total_buckets": frame["total_buckets"],
        "extra_files": frame["extra_files"],
    }
    return {**columns, **_statistics(frame, view, statistics)}


FILES = SystemTable(
    "files",
    "Live data files with their statistics.",
    "partition STRING NOT NULL, bucket INT NOT NULL, file_path STRING NOT NULL, file_format STRING NOT NULL, "
    "schema_id BIGINT NOT NULL, level INT NOT NULL, record_count BIGINT NOT NULL, "
    "file_size_in_bytes BIGINT NOT NULL, min_key STRING, max_key STRING, null_value_counts STRING NOT NULL, "
    "min_value_stats STRING NOT NULL, max_value_stats STRING NOT NULL, min_sequence_number BIGINT, "
    "max_sequence_number BIGINT, creation_time TIMESTAMP(3), deleteRowCount BIGINT, file_source STRING, "
    "first_row_id BIGINT, write_cols ARRAY<STRING>, total_buckets INT NOT NULL, "
    "extra_files ARRAY<STRING> NOT NULL",
    lambda view: _columns_of(_live(view, _needed(view)), view),
    of_a_moment=True,
    needs_newest=True,
    parts=_files_in_parts,
)


def _manifests(view: View) -> Columns | Rows:
    if view.snapshot is None:
        return ()
    store = view.context.manifests
    base = store.read_list(view.snapshot.base_manifest_list)
    delta = store.read_list(view.snapshot.delta_manifest_list)
    metas = [*base, *delta]
    low, high = (_partition_bounds(metas, view, bound) for bound in ("min_values", "max_values"))
    return {
        "file_name": [meta.file_name for meta in metas],
        "file_size": [meta.file_size for meta in metas],
        "num_added_files": [meta.num_added_files for meta in metas],
        "num_deleted_files": [meta.num_deleted_files for meta in metas],
        "schema_id": [meta.schema_id for meta in metas],
        "min_partition_stats": low,
        "max_partition_stats": high,
        "list": ["base"] * len(base) + ["delta"] * len(delta),
    }


MANIFESTS = SystemTable(
    "manifests",
    "Manifests of the snapshot in the order of their commits; 'list' is base or delta.",
    "file_name STRING NOT NULL, file_size BIGINT NOT NULL, num_added_files BIGINT NOT NULL, "
    "num_deleted_files BIGINT NOT NULL, schema_id BIGINT NOT NULL, min_partition_stats STRING, "
    "max_partition_stats STRING, list STRING NOT NULL",
    _manifests,
    of_a_moment=True,
    needs_newest=True,
)


PARTITIONS = SystemTable(
    "partitions",
    "Partitions with live files.",
    "partition STRING NOT NULL, record_count BIGINT NOT NULL, file_size_in_bytes BIGINT NOT NULL, "
    "file_count BIGINT NOT NULL, last_update_time TIMESTAMP(3), total_buckets INT NOT NULL",
    lambda view: _grouped(view, "partition"),
    of_a_moment=True,
    needs_newest=True,
)


BUCKETS = SystemTable(
    "buckets",
    "Buckets with live files.",
    "partition STRING NOT NULL, bucket INT NOT NULL, record_count BIGINT NOT NULL, "
    "file_size_in_bytes BIGINT NOT NULL, file_count BIGINT NOT NULL, last_update_time TIMESTAMP(3), "
    "total_buckets INT NOT NULL",
    lambda view: _grouped(view, "partition", "bucket"),
    of_a_moment=True,
    needs_newest=True,
)

_TO_GROUP = (
    *("kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count", "level"),
    "creation_time",
)


def _grouped(view: View, *keys: str) -> Columns:
    frame = _live(view, _TO_GROUP)
    frame = frame.with_columns(partition=pl.Series(_partition_texts(frame["partition"], view)))
    groups = frame.group_by(keys).agg(
        record_count=pl.col("row_count").sum(),
        file_size_in_bytes=pl.col("file_size").sum(),
        file_count=pl.len().cast(pl.Int64),
        last_update_time=pl.col("creation_time").max(),
        total_buckets=pl.col("total_buckets").last(),
    )
    return groups.sort(keys).to_dict()


def _live(view: View, columns: Sequence[str]) -> pl.DataFrame:
    if view.snapshot is None:
        return EntryFrame.empty().df.select(columns)
    manifests = view.context.manifests
    return manifests.entries(manifests.of_snapshot(view.snapshot), only=tuple(columns)).live().df


def _live_in_parts(view: View, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the live files of some manifests at a time, in the same order as all at once.

    Where files were deleted, all manifests are read twice: first for what tells which of their entries are live.
    """
    manifests = view.context.manifests
    metas = [] if view.snapshot is None else [*manifests.of_snapshot(view.snapshot)]
    if sum(meta.num_entries for meta in metas) <= _PART:
        yield _live(view, columns)
        return
    live: np.ndarray | None = None
    if any(meta.num_deleted_files for meta in metas):
        entries = manifests.entries(metas, only=("kind", *IDENTITY), keep=False).df.with_row_index("row")
        live = EntryFrame(entries).live().df["row"].to_numpy()
    start, first = 0, 0
    while first < len(metas):
        last, count = first, 0
        while last < len(metas) and (not count or count + metas[last].num_entries <= _PART):
            count += metas[last].num_entries
            last += 1
        frame = manifests.entries(metas[first:last], only=tuple(columns), keep=False).df
        if live is not None:
            frame = frame[live[(live >= start) & (live < start + count)] - start]
        yield frame
        start, first = start + count, last


def _partition_texts(partitions: pl.Series, view: View) -> pl.Series:
    """Return each partition as people write it: ``dt=2026-01-01/hour=5``; empty without partitions."""
    fields = view.schema.partition_fields
    types = [f.type for f in fields]
    rows = partitions.unique()
    texts = [
        partition_label(fields, decode_row(types, row, where="the partition of a manifest entry"))
        for row in rows
    ]
    spelled = pl.DataFrame({"partition": rows, "text": pl.Series(texts, dtype=pl.String)})
    return partitions.to_frame("partition").join(spelled, on="partition", how="left", maintain_order="left")[
        "text"
    ]


def _partition_bounds(metas: Sequence[ManifestFileMeta], view: View, bound: str) -> pl.Series:
    """Return the least or greatest values of the partition columns, as JSON; null without partitions."""
    if not view.schema.partition_keys or not metas:
        return pl.Series([None] * len(metas), dtype=pl.String)
    rows = pl.Series([getattr(meta.partition_stats, bound) for meta in metas], dtype=pl.Binary)
    values = partition_values(rows, view.schema)
    return json_objects(dict(zip(values.column_names, values.columns, strict=True)), len(metas))


def _statistics(frame: pl.DataFrame, view: View, names: Sequence[str]) -> Columns:
    """Return column statistics as JSON objects, by the view's column names."""
    if not names or frame.height == 0:
        return dict.fromkeys(names, ())
    rows, texts = [], []
    for group, statistics in statistics_of_files(frame, view.schema, view.context.schemas):
        count = len(statistics.row_count)
        rows.append(np.arange(count) if group is None else group)
        texts.append(
            pl.DataFrame(
                {
                    name: json_objects(
                        {f.name: _known(statistics, f, name) for f in view.schema.fields}, count
                    )
                    for name in names
                }
            )
        )
    return pl.concat(texts)[np.argsort(np.concatenate(rows))].to_dict()


def _known(statistics: Statistics, field: Field, name: str) -> pa.Array | None:
    match name:
        case "null_value_counts":
            return statistics.null_count(field.id)
        case "min_value_stats":
            return statistics.min(field.id)
        case _:
            return statistics.max(field.id)


_ITSELF = (pl.Boolean, pl.String, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64)


def json_objects(values: Mapping[str, pa.Array | pa.ChunkedArray | None], height: int) -> pl.Series:
    """Return one JSON object per row, with a key for each column; None stands for a column of nulls.

    Numbers, text and booleans are JSON's own; bytes are hexadecimal digits, everything else its text.
    """
    columns = [
        pl.Series(name, [None] * height, dtype=pl.String) if array is None else _plain(name, array)
        for name, array in values.items()
    ]
    if not columns:
        return pl.Series(["{}"] * height, dtype=pl.String)
    return pl.DataFrame(columns).to_struct("object").struct.json_encode()


def _plain(name: str, array: pa.Array | pa.ChunkedArray) -> pl.Series:
    found = pl.Series(name, pl.from_arrow(array))
    if found.dtype in _ITSELF:
        return found
    return found.bin.encode("hex") if found.dtype == pl.Binary else found.cast(pl.String)
