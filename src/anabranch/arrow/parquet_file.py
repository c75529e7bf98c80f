"""Reading Parquet files."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.arrow.files import Range, check_rows, damaged, native_path, open_file
from anabranch.arrow.parquet_footer import (
    KEY,
    MAGIC,
    ColumnPlace,
    column_places,
    is_intact,
    with_int96_as_bytes,
    with_length,
)
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import SplitFile
from anabranch.lazy import lazy
from anabranch.storage.protocol import Storage

_T = TypeVar("_T")

_TAIL: Final = 8
"""Bytes after the footer: its length, and the magic number."""
_SMALL_GROUP: Final = 1 << 20
"""Bytes of a row group above which the share of the wanted columns matters."""


class ParquetData:
    """A Parquet file whose footer was read.

    Args:
        verify: whether to check the checksums of pages that have one; the footer's is always checked.

    Raises `CorruptTableError`.
    """

    def __init__(self, storage: Storage, file: SplitFile, *, verify: bool = True) -> None:
        self.path = file.path
        self._storage = storage
        self._file = file
        self._verify = verify
        with open_file(storage, file) as source:
            self._footer = _footer(source, self.path)
        self.metadata = _decoded(self.path, lambda: _metadata(self._footer))
        self.schema = self.metadata.schema.to_arrow_schema()
        self.group_rows = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        check_rows(sum(self.group_rows), file)

    def pieces(self) -> Sequence[RowGroup]:
        return [RowGroup(self, i) for i in range(self.metadata.num_row_groups)]

    def pieces_matching(self, condition: pc.Expression) -> Sequence[RowGroup]:
        """Return the row groups that a filter must read: those whose statistics do not rule it out.

        The condition uses the file's column names.
        """
        pieces = self.pieces()
        if len(pieces) < 2:
            return pieces
        # Imported late: it loads pandas, a sixth of the start-up time of Spark's Python processes.
        import pyarrow.dataset as ds

        with open_file(self._storage, self._file) as source:
            fragment = ds.ParquetFileFormat().make_fragment(source)
            return [pieces[group.id] for group in fragment.subset(condition).row_groups]

    def stores(self, name: str, data_type: pa.DataType) -> bool:
        """Whether the file has a column of that name and exactly that type."""
        position = self.schema.get_field_index(name)
        return position >= 0 and bool(self.schema.field(position).type == data_type)

    @property
    def has_checksum(self) -> bool:
        """Whether the footer has one; it holds then."""
        return (self.metadata.metadata or {}).keys() >= {KEY}

    @lazy
    def leaves(self) -> dict[str, list[int]]:
        """Return the indexes of the primitive columns of each top-level column."""
        schema = self.metadata.schema
        found: dict[str, list[int]] = {name: [] for name in self.schema.names}
        names = iter(found)
        name = next(names, "")
        for position in range(len(schema)):
            path = schema.column(position).path
            # Names may have dots in them; leaves come in the order of the columns.
            while path != name and not path.startswith(f"{name}."):
                name = next(names)
            found[name].append(position)
        return found

    @lazy
    def places(self) -> list[list[ColumnPlace]]:
        """Locations of the columns of each row group. Raises `CorruptTableError`."""
        places = _decoded(self.path, lambda: column_places(self._footer))
        if len(places) != self.metadata.num_row_groups:
            raise damaged(
                self.path, f"{self.metadata.num_row_groups} row groups, of which {len(places)} are described"
            )
        columns = len(self.metadata.schema)
        for group in places:
            if len(group) != columns:
                raise damaged(self.path, f"a row group of {len(group)} columns where the file has {columns}")
            if any(place.start < 0 or place.size < 0 or place.unpacked < 0 for place in group):
                raise damaged(self.path, "a column that begins before the file")
        return places

    @contextmanager
    def reader(self, group: int, names: Sequence[str]) -> Iterator[pq.ParquetFile]:
        """Open readers for columns of a row group, one per thread, so that they share nothing."""
        wanted: list[Range] = []
        if native_path(self._storage, self.path) is None:
            wanted = [self.places[group][i][:2] for name in names for i in self.leaves[name]]
        with (
            open_file(self._storage, self._file, wanted) as source,
            pq.ParquetFile(
                source, metadata=self.metadata, pre_buffer=False, page_checksum_verification=self._verify
            ) as content,
        ):
            yield content


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file."""

    file: ParquetData
    index: int

    @property
    def rows(self) -> int:
        return int(self.file.group_rows[self.index])

    def size(self, columns: Sequence[Field]) -> int:
        whole = int(self.file.metadata.row_group(self.index).total_byte_size)
        wanted = [i for name in self._names(columns) for i in self.file.leaves[name]]
        if 0 <= whole <= _SMALL_GROUP or len(wanted) == len(self.file.metadata.schema):
            return whole
        return sum(self.file.places[self.index][i].unpacked for i in wanted)

    def read(self, columns: Sequence[Field]) -> pa.Table:
        names = self._names(columns)
        with self.file.reader(self.index, names) as content:
            rows = content.read_row_group(self.index, names)
        if names:
            self._check(rows.num_rows)
        return rows

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        names = self._names(columns)
        with self.file.reader(self.index, names) as content:
            count = 0
            for batch in content.iter_batches(batch_rows, [self.index], names):
                count += batch.num_rows
                yield pa.Table.from_batches([batch])
        if names:
            self._check(count)

    def _check(self, found: int) -> None:
        """Raise `CorruptTableError` if the pages do not have as many rows as the footer says."""
        if found != self.rows:
            raise damaged(
                self.file.path, f"row group {self.index} has {found} rows, its footer says {self.rows}"
            )

    def _names(self, columns: Sequence[Field]) -> list[str]:
        return [column.name for column in columns if column.name in self.file.leaves]


def _footer(source: pa.NativeFile, path: str) -> bytes:
    """Return the encoded footer, as it was written. Raises `CorruptTableError`."""
    end = source.size() - _TAIL
    if end < len(MAGIC):
        raise damaged(path, f"{end + _TAIL} bytes are no Parquet file")
    source.seek(end)
    tail = source.read(_TAIL)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or size > end - len(MAGIC):
        raise damaged(path, "it does not end as Parquet files do")
    source.seek(end - size)
    footer: bytes = source.read(size)
    if len(footer) != size:
        raise damaged(path, "the file became shorter while it was read")
    if not _decoded(path, lambda: is_intact(footer)):
        raise damaged(path, "the footer is not what its checksum says")
    return footer


def _metadata(footer: bytes) -> pq.FileMetaData:
    """Parse the footer with INT96 columns declared as fixed-length bytes.

    Arrow would make nanoseconds of them that wrap around silently outside of the years 1677 to 2262.
    """
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + with_length(footer)))
    leaves = (metadata.schema.column(i) for i in range(metadata.num_columns))
    if all(leaf.physical_type != "INT96" for leaf in leaves):
        return metadata
    return pq.read_metadata(pa.BufferReader(MAGIC + with_length(with_int96_as_bytes(footer))))


def _decoded(path: str, work: Callable[[], _T]) -> _T:
    """Decode a footer; any error from damaged bytes becomes a `CorruptTableError`."""
    try:
        return work()
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, struct.error) as error:
        if isinstance(error, pa.ArrowException):
            raise
        raise damaged(path, f"its footer breaks off or is none: {type(error).__name__}") from error
