"""Manifest lists: Avro files that name the manifests of a snapshot and say what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import polars as pl

from anabranch.forked import may_use_polars
from anabranch.format.avro.files import read_columns, write_container
from anabranch.format.records.data_file import EMPTY_ROW, ManifestFileMeta, SimpleStats
from anabranch.format.records.manifest_schema import (
    FORMAT_VERSION,
    MANIFEST_FILE_META,
    PlainName,
    PlainNames,
    Present,
    Within,
    check_rows,
    stats_record,
)

_INT64 = 2**63 - 1

_FIELDS: dict[str, tuple[str, pl.DataType]] = {
    "version": ("_VERSION", pl.Int64()),
    "file_name": ("_FILE_NAME", pl.String()),
    "file_size": ("_FILE_SIZE", pl.Int64()),
    "num_added_files": ("_NUM_ADDED_FILES", pl.Int64()),
    "num_deleted_files": ("_NUM_DELETED_FILES", pl.Int64()),
    "min_values": ("_PARTITION_STATS._MIN_VALUES", pl.Binary()),
    "max_values": ("_PARTITION_STATS._MAX_VALUES", pl.Binary()),
    "null_counts": ("_PARTITION_STATS._NULL_COUNTS", pl.List(pl.Int64())),
    "schema_id": ("_SCHEMA_ID", pl.Int64()),
    "min_bucket": ("_MIN_BUCKET", pl.Int64()),
    "max_bucket": ("_MAX_BUCKET", pl.Int64()),
    "min_level": ("_MIN_LEVEL", pl.Int64()),
    "max_level": ("_MAX_LEVEL", pl.Int64()),
    "extra_files": ("_EXTRA_FILES", pl.List(pl.String())),
}
_CHECKS = (
    Present("version"),
    Within("version", FORMAT_VERSION, FORMAT_VERSION, feature="manifest-version"),
    *map(Present, ("file_name", "file_size", "num_added_files", "num_deleted_files")),
    PlainName("file_name"),
    PlainNames("extra_files"),
    *(
        Within(column, 0, _INT64)
        for column in (
            "file_size",
            "num_added_files",
            "num_deleted_files",
            "schema_id",
            "min_level",
            "max_level",
        )
    ),
)


_MOST = 500_000
"""Manifests that a list may name; lists of the largest tables name thousands."""


def encode_manifest_list(metas: Iterable[ManifestFileMeta], *, codec: str = "zstandard") -> bytes:
    """A manifest list that names these manifests in this order."""
    return write_container(MANIFEST_FILE_META, map(_to_record, metas), codec=codec)


def decode_manifest_list(data: bytes, *, path: str) -> list[ManifestFileMeta]:
    """The manifests a list names, in its order.

    Statistics a list does not have are an empty row, other fields it does not have are None; a schema id it
    does not have is 0.

    Raises:
        CorruptTableError: the list is damaged or contradicts itself.
        UnsupportedFeatureError: it is of another format version.
    """
    return decode_manifest_lists([(path, data)])[0]


def decode_manifest_lists(files: Sequence[tuple[str, bytes]]) -> list[list[ManifestFileMeta]]:
    """The manifests that each of many lists names, decoded together: one by one each costs as much as fifty.

    Args:
        files: path, for messages, and content of each list.

    Raises as `decode_manifest_list`, naming the list.
    """
    may_use_polars()
    df, counts = read_columns(files, _FIELDS, rows=[_MOST] * len(files))
    check_rows(df, _CHECKS, [path for path, _ in files], counts)
    metas = iter(
        [
            ManifestFileMeta(
                file_name=row["file_name"],
                file_size=row["file_size"],
                num_added_files=row["num_added_files"],
                num_deleted_files=row["num_deleted_files"],
                partition_stats=SimpleStats(
                    EMPTY_ROW if row["min_values"] is None else row["min_values"],
                    EMPTY_ROW if row["max_values"] is None else row["max_values"],
                    tuple(row["null_counts"] or ()),
                ),
                schema_id=row["schema_id"] or 0,
                min_bucket=row["min_bucket"],
                max_bucket=row["max_bucket"],
                min_level=row["min_level"],
                max_level=row["max_level"],
                extra_files=tuple(row["extra_files"] or ()),
            )
            for row in df.iter_rows(named=True)
        ]
    )
    return [[*islice(metas, count)] for count in counts]


def _to_record(meta: ManifestFileMeta) -> dict[str, object]:
    return {
        "_VERSION": FORMAT_VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": stats_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": None,
        "_MAX_ROW_ID": None,
        "_TOTAL_BUCKETS": None,
        "_EXTRA_FILES": list(meta.extra_files) or None,
    }
