"""All rows of a scan as a Polars frame, by Polars' own Parquet reader where it gives the same rows.

It takes less time than Arrow's and a conversion. It knows no checksums, and a damaged file may make it ask for any amount of
memory; so it gets only files of which the footer and all pages have checksums that hold. Every other file, and
one that it cannot read or reads as other types, is read by Arrow, which also has the errors for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from itertools import groupby
from typing import IO, Final

import polars as pl
import pyarrow as pa

from anabranch.arrow.files import open_here, translated
from anabranch.arrow.parquet_file import ParquetData
from anabranch.arrow.parquet_pages import pages_are_intact
from anabranch.arrow.pipeline import MAX_THREADS, available_cores
from anabranch.arrow.table_read import Reader
from anabranch.format.types.arrow_types import no_rows, to_arrow_type
from anabranch.kernel.scan.split import Split, SplitFile

_LEAST_BYTES: Final = 1 << 20
"""Size of a file from which it gains something."""
_TYPES: Final = frozenset(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32()),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in (None, "UTC")),
    ]
)
"""Types that both readers give alike."""


def read_frame(reader: Reader, splits: Sequence[Split]) -> pl.DataFrame:
    """Return the rows of splits, in order. Errors are those of `Reader.read_table`."""
    schema = reader.schema
    is_known = schema.names and all(field.type in _TYPES for field in schema)
    if reader.predicate is not None or not is_known or reader.context.storage.is_far:
        return _frame(reader.read_table(splits))
    frames = list(_frames(reader, splits))
    return pl.concat(frames, rechunk=False) if frames else _frame(no_rows(schema))


def _frames(reader: Reader, splits: Iterable[Split]) -> Iterator[pl.DataFrame]:
    parts = [Split(split.partition, split.bucket, (file,)) for split in splits for file in split.files]
    with ThreadPoolExecutor(min(available_cores(), MAX_THREADS), "anabranch-read") as pool:
        # One file is checked while another is decoded: neither keeps all cores busy. Small files wait for no thread.
        large = pool.map(partial(_direct, reader), filter(_is_large, parts))
        found = ((part, next(large) if _is_large(part) else None) for part in parts)
        for is_left, group in groupby(found, key=lambda one: one[1] is None):
            if is_left:
                yield _frame(reader.read_table([part for part, _ in group]))
            else:
                yield from (frame for _, frame in group if frame is not None)


def _is_large(part: Split) -> bool:
    """Whether Polars may read the file of a part faster than Arrow."""
    (file,) = part.files
    return file.format == "parquet" and file.size >= _LEAST_BYTES


def _direct(reader: Reader, part: Split) -> pl.DataFrame | None:
    """Return the rows of a file as Polars reads them; None if it may not or cannot, or gives something else."""
    (file,) = part.files
    storage = reader.context.storage
    with translated(file.path):
        found = ParquetData(storage, file, verify=reader.verify)
        names = _stored_names(reader, file, found)
        if names is None or not found.has_checksum:
            return None
        try:
            stream = open_here(storage, file.path, FileIO)
        except OSError:  # such as too many open files; Arrow keeps few of them open
            return None
        if stream is None:  # in memory
            return None
        with stream:
            return _read(reader, names, stream) if _is_intact(found, names, stream) else None


def _is_intact(found: ParquetData, names: Sequence[str], stream: FileIO) -> bool:
    """Whether the checksums of all pages of the columns hold."""
    leaves = [leaf for name in names for leaf in found.leaves[name]]
    # One buffer for all columns: memory that is new takes longer than reading.
    buffer = memoryview(bytearray(max(group[leaf].size for group in found.places for leaf in leaves)))
    for group, rows in zip(found.places, found.group_rows, strict=True):
        for start, size, unpacked_size in (group[leaf] for leaf in leaves):
            stream.seek(start)
            column = buffer[: stream.readinto(buffer[:size])]
            if len(column) != size or not pages_are_intact(column, unpacked_size, rows):
                return False
    return True


def _stored_names(reader: Reader, file: SplitFile, found: ParquetData) -> tuple[str, ...] | None:
    """Return the names of the columns in the file; None if one is missing or has another type."""
    stored = {field.id: field for field in reader.context.schemas.get(file.schema_id).fields}
    fields = {field.name: field for field in reader.fields}
    names = []
    for name in reader.schema.names:
        field, source = fields[name], stored.get(fields[name].id)
        if source is None or _is_pattern(name) or _is_pattern(source.name):
            return None
        if source.type.with_nullable(True) != field.type.with_nullable(True):
            return None
        if not found.stores(source.name, to_arrow_type(source.type)):
            return None
        names.append(source.name)
    return tuple(names)


def _is_pattern(name: str) -> bool:
    """Whether Polars takes the name for a choice of columns."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _read(reader: Reader, names: Sequence[str], file: IO[bytes]) -> pl.DataFrame | None:
    wanted = reader.schema
    try:
        frame = pl.read_parquet(file, columns=list(names), hive_partitioning=False, glob=False)
    # TypeError: it found no file descriptor left for it.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, TypeError):
        return None
    frame = frame.select(pl.col(name).alias(new) for name, new in zip(names, wanted.names, strict=True))
    has_wrong_null = any(not field.nullable and frame[field.name].null_count() for field in wanted)
    return frame if frame.schema == _frame(no_rows(wanted)).schema and not has_wrong_null else None


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
