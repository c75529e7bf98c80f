"""Manifests: Avro files of entries that add files to a table or delete them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from anabranch.forked import may_use_polars
from anabranch.format.avro import columns
from anabranch.format.avro.container import (
    Block,
    frame_container,
    pack_block,
    read_blocks,
    read_header,
    write_long,
)
from anabranch.format.avro.files import read_columns, write_container
from anabranch.format.records.data_file import EMPTY_ROW, ManifestEntry
from anabranch.format.records.entry_frame import COLUMNS, EntryFrame
from anabranch.format.records.manifest_schema import (
    FORMAT_VERSION,
    MANIFEST_ENTRY,
    ColumnRule,
    NotZero,
    PlainName,
    PlainNames,
    Present,
    Within,
    check_rows,
    stats_record,
)

_BLOCK_BYTES = 4 << 20
"""Decompressed rows of one block of what is written."""

_INT64 = 2**63 - 1
_INT32 = 2**31 - 1

_PATHS = {
    "version": "_VERSION",
    "kind": "_KIND",
    "partition": "_PARTITION",
    "bucket": "_BUCKET",
    "total_buckets": "_TOTAL_BUCKETS",
    "file_name": "_FILE._FILE_NAME",
    "file_size": "_FILE._FILE_SIZE",
    "row_count": "_FILE._ROW_COUNT",
    "min_key": "_FILE._MIN_KEY",
    "max_key": "_FILE._MAX_KEY",
    "key_min": "_FILE._KEY_STATS._MIN_VALUES",
    "key_max": "_FILE._KEY_STATS._MAX_VALUES",
    "key_null_counts": "_FILE._KEY_STATS._NULL_COUNTS",
    "value_min": "_FILE._VALUE_STATS._MIN_VALUES",
    "value_max": "_FILE._VALUE_STATS._MAX_VALUES",
    "value_null_counts": "_FILE._VALUE_STATS._NULL_COUNTS",
    "min_sequence_number": "_FILE._MIN_SEQUENCE_NUMBER",
    "max_sequence_number": "_FILE._MAX_SEQUENCE_NUMBER",
    "schema_id": "_FILE._SCHEMA_ID",
    "level": "_FILE._LEVEL",
    "extra_files": "_FILE._EXTRA_FILES",
    "creation_time": "_FILE._CREATION_TIME",
    "delete_row_count": "_FILE._DELETE_ROW_COUNT",
    "embedded_index": "_FILE._EMBEDDED_FILE_INDEX",
    "file_source": "_FILE._FILE_SOURCE",
    "value_stats_cols": "_FILE._VALUE_STATS_COLS",
    "external_path": "_FILE._EXTERNAL_PATH",
    "first_row_id": "_FILE._FIRST_ROW_ID",
    "write_cols": "_FILE._WRITE_COLS",
}
_FIELDS: dict[str, tuple[str, pl.DataType]] = {
    name: (path, pl.Int64() if COLUMNS.get(name, pl.Int64()).is_integer() else COLUMNS[name])
    for name, path in _PATHS.items()
}

_EMPTY: dict[str, Any] = {
    **dict.fromkeys(("min_key", "max_key", "key_min", "key_max", "value_min", "value_max"), EMPTY_ROW),
    **{name: [] for name in ("key_null_counts", "value_null_counts", "extra_files")},
}
"""What stands for a field that an entry does not have."""

_CHECKS: tuple[ColumnRule, ...] = (
    Present("version"),
    Within("version", FORMAT_VERSION, FORMAT_VERSION, feature="manifest-version"),
    *map(Present, ("kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count")),
    *map(Present, ("min_sequence_number", "max_sequence_number", "schema_id", "level")),
    Within("kind", 0, 1),
    PlainName("file_name"),
    PlainNames("extra_files"),
    *(Within(column, 0, _INT64) for column in ("file_size", "row_count", "schema_id", "delete_row_count")),
    *(Within(column, 0, _INT32) for column in ("bucket", "level")),
    Within("total_buckets", -2, _INT32),
    NotZero("total_buckets"),
    Within("file_source", 0, 1, feature="file-source"),
)


def encode_manifest(entries: Iterable[ManifestEntry], *, codec: str = "zstandard") -> bytes:
    """A manifest of these entries in this order. `encode_frame` is the faster way for thousands."""
    return write_container(MANIFEST_ENTRY, map(_to_record, entries), codec=codec)


def encode_frame(frame: EntryFrame, *, codec: str = "zstandard") -> bytes:
    """A manifest of these entries in this order."""
    blocks = [pack_block(_encode_block(part), codec) for part in _block_parts(frame, _BLOCK_BYTES)]
    return frame_container(MANIFEST_ENTRY.text, blocks, codec)


def roll_frame(
    frame: EntryFrame, *, target_size: int, codec: str = "zstandard"
) -> Iterator[tuple[EntryFrame, bytes]]:
    """Manifests of these entries in this order, a new one begun when `target_size` bytes are reached.

    Yields:
        The entries of a manifest and its bytes; nothing for an empty frame.
    """
    parts: list[EntryFrame] = []
    blocks: list[bytes] = []
    for part in _block_parts(frame, min(_BLOCK_BYTES, 2 * target_size)):
        parts.append(part)
        blocks.append(pack_block(_encode_block(part), codec))
        if sum(map(len, blocks)) >= target_size:
            yield EntryFrame.concat(parts), frame_container(MANIFEST_ENTRY.text, blocks, codec)
            parts, blocks = [], []
    if parts:
        yield EntryFrame.concat(parts), frame_container(MANIFEST_ENTRY.text, blocks, codec)


def decode_manifest(data: bytes, *, path: str) -> EntryFrame:
    """The entries of one manifest. Raises as `decode_manifests` does."""
    return decode_manifests([(path, data)])[0]


def decode_manifests(
    files: Sequence[tuple[str, bytes]],
    *,
    only: Collection[str] | None = None,
    counts: Sequence[int] | None = None,
) -> tuple[EntryFrame, list[int]]:
    """The entries of many manifests, decoded together.

    Args:
        files: path, for messages, and content of each manifest.
        only: columns of `COLUMNS` to decode, which saves the time of the others; None for all.
        counts: how many entries each manifest has by its manifest list; a manifest with more is refused before it
            is decoded.

    Returns:
        The entries in the order of the manifests, and how many each manifest has.

    Raises:
        CorruptTableError: a manifest is damaged, or an entry lacks a value, has one out of range, or has a
            file name that leads out of its folder; names the manifest.
        UnsupportedFeatureError: an entry is of another format version.
    """
    may_use_polars()
    wanted = [name for name in COLUMNS if only is None or name in only]
    df, found = read_columns(files, {name: _FIELDS[name] for name in ("version", *wanted)}, rows=counts)
    checks = [check for check in _CHECKS if check.column in df.columns]
    check_rows(df, checks, [path for path, _ in files], found)
    return EntryFrame(pl.DataFrame([_settled(df.get_column(name)) for name in wanted])), found


def concat_manifests(
    manifests: Sequence[bytes], *, paths: Sequence[str] | None = None, codec: str = "zstandard"
) -> bytes:
    """One manifest with the entries of all, in that order; no entry cancels another.

    Manifests of one writer schema are joined without decoding an entry, so fields unknown here survive.
    Of different ones the entries are decoded and written in the schema of `encode_manifest`.

    Raises:
        CorruptTableError: a manifest is damaged.
        UnsupportedFeatureError: as in `decode_manifests`.
    """
    files = list(zip(paths or [f"manifest {i}" for i in range(len(manifests))], manifests, strict=True))
    headers = [read_header(data, path=path) for path, data in files]
    schemas = {header.schema for header in headers}
    if len(schemas) != 1:
        return encode_frame(decode_manifests(files)[0], codec=codec)
    blocks: list[bytes] = []
    rows = size = 0
    payloads: list[bytes] = []
    for (path, data), header in zip(files, headers, strict=True):
        for block in read_blocks(data, header, path=path):
            payloads.append(block.payload)
            rows += block.rows
            size += len(block.payload)
            if size >= _BLOCK_BYTES:
                blocks.append(pack_block(Block(rows, b"".join(payloads)), codec))
                rows, size, payloads = 0, 0, []
    if rows:
        blocks.append(pack_block(Block(rows, b"".join(payloads)), codec))
    return frame_container(schemas.pop(), blocks, codec)


def _settled(column: pl.Series) -> pl.Series:
    """A decoded column as it is in an `EntryFrame`."""
    if column.name in _EMPTY and column.null_count():
        filler = pl.Series([_EMPTY[column.name]], dtype=column.dtype)
        column = column.zip_with(column.is_not_null(), filler.new_from_index(0, len(column)))
    return column.cast(COLUMNS[column.name])


def _to_record(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "_VERSION": FORMAT_VERSION,
        "_KIND": entry.kind,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_record(file.key_stats),
            "_VALUE_STATS": stats_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": file.extra_files,
            "_CREATION_TIME": file.creation_time,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": file.file_source,
            "_VALUE_STATS_COLS": _optional_list(file.value_stats_cols),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": _optional_list(file.write_cols),
        },
    }


def _optional_list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _block_parts(frame: EntryFrame, block_bytes: int) -> Iterator[EntryFrame]:
    """Slices of about that many bytes."""
    if not len(frame):
        return
    rows = max(1, block_bytes * len(frame) // max(1, int(frame.df.estimated_size())))
    for start in range(0, len(frame), rows):
        yield frame.slice(start, rows)


def _encode_block(frame: EntryFrame) -> Block:
    arrays = {
        name: frame.df.get_column(name).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        for name in COLUMNS
    }

    def integer(name: str) -> columns.Encoded:
        return columns.encode_long(arrays[name])

    def text(name: str) -> columns.Encoded:
        return columns.encode_bytes(arrays[name])

    def texts(name: str) -> columns.Encoded:
        return columns.encode_array(arrays[name], columns.encode_bytes)

    def null_counts(name: str) -> columns.Encoded:
        counts = columns.encode_array(arrays[name], lambda items: optional(columns.encode_long(items)))
        return optional(counts)

    optional = columns.encode_optional
    return Block(
        len(frame),
        columns.join_rows(
            [
                columns.constant(write_long(FORMAT_VERSION)),
                integer("kind"),
                text("partition"),
                integer("bucket"),
                integer("total_buckets"),
                text("file_name"),
                integer("file_size"),
                integer("row_count"),
                text("min_key"),
                text("max_key"),
                text("key_min"),
                text("key_max"),
                null_counts("key_null_counts"),
                text("value_min"),
                text("value_max"),
                null_counts("value_null_counts"),
                integer("min_sequence_number"),
                integer("max_sequence_number"),
                integer("schema_id"),
                integer("level"),
                texts("extra_files"),
                optional(integer("creation_time")),
                optional(integer("delete_row_count")),
                optional(text("embedded_index")),
                optional(integer("file_source")),
                optional(texts("value_stats_cols")),
                optional(text("external_path")),
                optional(integer("first_row_id")),
                optional(texts("write_cols")),
            ]
        ),
    )
