"""Encoding of one row group as Parquet.

Bounded by what Paimon's Java reader of release 0.9 decodes, as every later reader does: data pages of
version 1, plain and dictionary encoding, short decimals as integers, no fixed-length binaries but those that
decimals need, timestamps in the unit of their precision, times adjusted to UTC.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.arrow import nested
from anabranch.arrow.parquet_footer import UNSEALED
from anabranch.arrow.row_buffer import Measured
from anabranch.arrow.stored_values import INT96, storable
from anabranch.errors import OptionError
from anabranch.options import FILE_CHECKSUM, FILE_COMPRESSION, ZSTD_LEVEL

_CODECS: Final = ("zstd", "lz4", "snappy", "gzip", "none")
_SAMPLE_PIECES: Final = 8
_SAMPLE_ROWS: Final = 512
_DICTIONARY_BYTES: Final = 1 << 20
"""Size above which PyArrow abandons a dictionary."""
_TINY_CHUNK: Final = 64
"""Bytes of a column's values that are not worth a compressor, whose set-up takes as long as writing them uncompressed."""
_TRIAL_ROWS: Final = 1 << 15
"""Most rows of a row group that are compressed to see which columns it pays for."""
_TRIAL_SHARE: Final = 16
"""They are no more than one of so many, so that a trial costs little."""
_LEAST_TRIED: Final = 1 << 17
"""Rows of a group below which all columns are compressed: a trial of few tells little."""
_WORTH: Final = 0.8
"""Share of its size that a column may keep to be compressed: every reader pays for decompression, most of all of zstd."""

SCHEMA_SETTINGS: Final[dict[str, Any]] = {
    "version": "2.6",
    "store_decimal_as_integer": True,
    "write_time_adjusted_to_utc": True,
    "store_schema": False,
}
"""Settings of the column descriptions in a file."""
_LARGE_PAGES: Final[dict[str, Any]] = (
    {"max_rows_per_page": 1 << 20}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters
    else {}
)
"""Settings for pages of 1 MiB, the default of older versions of PyArrow; smaller ones only cost time."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Compression of pages, and whether each has a checksum."""

    codec: str
    level: int | None = None
    checksum: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> PageSettings:
        """Read the settings from the options of a table. Raises `OptionError`."""
        key = "parquet.compression" if "parquet.compression" in options else FILE_COMPRESSION.key
        text = options.get(key, FILE_COMPRESSION.default).strip().lower()
        codec = "none" if text == "uncompressed" else text
        if codec not in _CODECS:
            raise OptionError(
                f"option '{key}' is '{text}', which data files cannot be compressed with",
                hint=f"choose one of {', '.join(_CODECS)}.",
            )
        level = ZSTD_LEVEL.of(options) if codec == "zstd" else None
        return cls(codec, level, FILE_CHECKSUM.of(options))


def encode(group: Measured, pages: PageSettings) -> pa.Buffer:
    """Encode a table as a Parquet file in memory with one row group; `JoinedFile` makes files of these.

    Args:
        group: at least one row, its fields nullable as they are to be in the file.
        pages: how they are compressed and checked.

    Raises:
        SchemaError: a value is null that is NOT NULL.
    """
    table = storable(group.rows)
    leaves = _leaves(table.schema)
    dictionaries = _dictionaries(table)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        **_compression(Measured(table, group.size), leaves, pages, dictionaries),
        write_page_checksum=pages.checksum,
        use_dictionary=dictionaries,
        write_statistics=_ordered(table, leaves),
        data_page_version="1.0",
        **SCHEMA_SETTINGS,
        **_LARGE_PAGES,
    ) as writer:
        writer.write_table(table, row_group_size=len(table))
        if INT96 not in leaves.values():
            writer.add_key_value_metadata(UNSEALED)  # its footer may stay as it is
    return sink.getvalue()


_Leaves = Mapping[str, pa.DataType]
"""The types of primitive columns at any depth, by their Parquet paths."""


def _dictionaries(table: pa.Table) -> list[str] | bool:
    """Return the paths of the columns to encode with a dictionary; False for none."""
    if len(table) < 2:
        return False
    share = min(1.0, _SAMPLE_PIECES * _SAMPLE_ROWS / len(table))
    return [path for path, values in _samples(table) if _pays_a_dictionary(values, share)]


def _compression(
    group: Measured, leaves: _Leaves, pages: PageSettings, dictionaries: list[str] | bool
) -> dict[str, Any]:
    """Return PyArrow's settings that compress the columns for which it pays.

    Numbers without a pattern, and dictionary indices, hardly shrink. Stored as they are, their readers are spared the
    decompression, which takes several times as long as the decoding.
    """
    table, size = group
    if pages.codec == "none" or (pages.codec == "zstd" and size <= _TINY_CHUNK * len(leaves)):
        return {"compression": "none"}
    everywhere = {"compression": pages.codec, "compression_level": pages.level}
    if len(table) < _LEAST_TRIED:
        return everywhere
    trial, sink = _pieces(table, min(_TRIAL_ROWS, len(table) // _TRIAL_SHARE)), pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        trial.schema,
        **everywhere,
        use_dictionary=dictionaries,
        write_statistics=False,
        **SCHEMA_SETTINGS,
    ) as writer:
        writer.write_table(trial, row_group_size=len(trial))
    written = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [written.column(position) for position in range(written.num_columns)]
    paying = [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.total_compressed_size <= _WORTH * chunk.total_uncompressed_size
    ]
    if len(paying) == len(chunks):
        return everywhere
    levels = None if pages.level is None else dict.fromkeys(paying, pages.level)
    return {"compression": dict.fromkeys(paying, pages.codec), "compression_level": levels}


def _pieces(table: pa.Table, rows: int) -> pa.Table:
    """Return that many rows, from all parts of the table."""
    step, length = len(table) // _SAMPLE_PIECES, rows // _SAMPLE_PIECES
    return pa.concat_tables([table.slice(part * step, length) for part in range(_SAMPLE_PIECES)])


def _ordered(table: pa.Table, leaves: _Leaves) -> list[str] | bool:
    """Return the paths of the columns on whose minimum and maximum readers may rely; True for all.

    Arrow leaves NaN out of them, but to Spark NaN is above all numbers: it would skip rows that match.
    """
    floating = {path for path, kind in leaves.items() if pa.types.is_floating(kind)}
    some = table.select([position for position, name in enumerate(table.column_names) if name in floating])
    columns = dict(zip(some.column_names, some.columns, strict=True))
    by_type: dict[pa.DataType, list[pa.Array]] = {}
    for column in columns.values():
        by_type.setdefault(column.type, []).extend(column.chunks)
    # All columns in one call, since a row of thousands of columns would make one for each value.
    has_nan = any(_has_nan(pa.chunked_array(chunks)) for chunks in by_type.values())
    unordered = {path for path, kind in leaves.items() if kind == INT96}
    if len(columns) < len(floating) or has_nan:
        plain = {name for name, column in columns.items() if not _has_nan(column)}
        unordered |= floating - plain  # what is nested is not in these
    return [path for path in leaves if path not in unordered] if unordered else True


def _has_nan(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())


def _leaves(schema: pa.Schema) -> _Leaves:
    kinds = schema.types
    top = zip(schema.names, kinds, strict=True)
    if not any(map(pa.types.is_nested, kinds)):
        return dict(top)
    return {path: found for name, kind in top for path, found in _leaves_of(name, kind)}


def _leaves_of(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_list(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _samples(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield some values of each primitive column, with its path."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield from _samples_of(name, _sample(column))


def _samples_of(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_list(array.type):
        yield from _samples_of(f"{path}.list.element", nested.list_values(array))
    elif pa.types.is_map(array.type):
        keys, items = nested.map_entries(array)
        yield from _samples_of(f"{path}.key_value.key", keys)
        yield from _samples_of(f"{path}.key_value.value", items)
    elif pa.types.is_struct(array.type):
        for position, field in enumerate(array.type):
            yield from _samples_of(f"{path}.{field.name}", array.field(position))
    else:
        yield path, array


def _sample(column: pa.ChunkedArray) -> pa.Array:
    """Return some rows from all parts of the column."""
    if len(column) <= _SAMPLE_ROWS and column.num_chunks == 1:
        return column.chunk(0)
    step = max(len(column) // _SAMPLE_PIECES, _SAMPLE_ROWS)
    pieces = [column.slice(start, _SAMPLE_ROWS) for start in range(0, len(column), step)]
    return pa.concat_arrays([chunk for piece in pieces for chunk in piece.chunks])


def _pays_a_dictionary(sample: pa.Array, share: float) -> bool:
    """Whether values repeat so much that a dictionary makes writing faster and the file smaller.

    Args:
        sample: values from all parts of the column.
        share: how much of the column they are.
    """
    # What is nested may have no values, however many rows there are.
    if len(sample) < 2 or pa.types.is_boolean(sample.type):
        return False
    counts = pc.value_counts(sample).field("counts").to_numpy()
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    if share >= 1:
        return len(counts) <= len(sample) / 2
    if once and not twice:
        return False
    # Chao's estimate of how many values there are of which the sample shows none.
    distinct = len(counts) + (once * once / (2 * twice) if twice else 0)
    width = sample.nbytes / len(sample)
    return distinct <= len(sample) / share / 8 and distinct * width <= _DICTIONARY_BYTES
