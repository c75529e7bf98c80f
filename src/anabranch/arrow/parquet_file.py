"""Reading Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.arrow.data_files import check_rows
from anabranch.arrow.files import Range, open_file
from anabranch.arrow.parquet_footer import MAGIC, with_int96_as_bytes
from anabranch.kernel.scan.split import SplitFile
from anabranch.lazy import lazy
from anabranch.spec.types import Field
from anabranch.storage.protocol import Storage


class ParquetData:
    """A Parquet file whose footer was read."""

    def __init__(self, storage: Storage, file: SplitFile) -> None:
        self.path = file.path
        self._storage = storage
        self._file = file
        with open_file(storage, file) as source:
            self.metadata = _metadata(source)
        self.schema = self.metadata.schema.to_arrow_schema()
        check_rows(self.metadata.num_rows, file)

    def pieces(self) -> Sequence[RowGroup]:
        return [RowGroup(self, i) for i in range(self.metadata.num_row_groups)]

    def pieces_matching(self, condition: pc.Expression) -> Sequence[RowGroup]:
        """Those whose statistics do not rule the condition out; it names columns as the file does."""
        pieces = self.pieces()
        if len(pieces) < 2:
            return pieces
        # It loads pandas, which takes a sixth of the start of each of Spark's processes of Python.
        import pyarrow.dataset as ds

        with open_file(self._storage, self._file) as source:
            fragment = ds.ParquetFileFormat().make_fragment(source)
            return [pieces[group.id] for group in fragment.subset(condition).row_groups]

    def stores(self, name: str, data_type: pa.DataType) -> bool:
        """Whether there is a column of that name and exactly that type."""
        position = self.schema.get_field_index(name)
        return position >= 0 and bool(self.schema.field(position).type == data_type)

    @lazy
    def leaves(self) -> dict[str, list[int]]:
        """Positions of the primitive columns of each top-level column."""
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

    @contextmanager
    def reader(self, group: int, names: Sequence[str]) -> Iterator[pq.ParquetFile]:
        """Reads columns of a row group. Each thread has its own, so that they share nothing."""
        row_group = self.metadata.row_group(group)
        wanted = [_range(row_group.column(i)) for name in names for i in self.leaves[name]]
        with (
            open_file(self._storage, self._file, wanted) as source,
            pq.ParquetFile(source, metadata=self.metadata, pre_buffer=False) as content,
        ):
            yield content


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file."""

    file: ParquetData
    index: int

    @property
    def rows(self) -> int:
        return int(self.file.metadata.row_group(self.index).num_rows)

    def size(self, columns: Sequence[Field]) -> int:
        group = self.file.metadata.row_group(self.index)
        wanted = [i for name in self._names(columns) for i in self.file.leaves[name]]
        if len(wanted) == group.num_columns:
            return int(group.total_byte_size)
        return sum(group.column(i).total_uncompressed_size for i in wanted)

    def read(self, columns: Sequence[Field]) -> pa.Table:
        names = self._names(columns)
        with self.file.reader(self.index, names) as content:
            return content.read_row_group(self.index, names)

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        names = self._names(columns)
        with self.file.reader(self.index, names) as content:
            for batch in content.iter_batches(batch_rows, [self.index], names):
                yield pa.Table.from_batches([batch])

    def _names(self, columns: Sequence[Field]) -> list[str]:
        return [column.name for column in columns if column.name in self.file.leaves]


def _metadata(source: pa.NativeFile) -> pq.FileMetaData:
    """The footer, in which INT96 columns are called what they are to us: bytes of a fixed length.

    Arrow would make nanoseconds of them that wrap around silently outside of the years 1677 to 2262.
    """
    metadata = pq.read_metadata(source)
    leaves = (metadata.schema.column(i) for i in range(metadata.num_columns))
    if all(leaf.physical_type != "INT96" for leaf in leaves):
        return metadata
    end = source.size() - 8
    source.seek(end)
    size = int.from_bytes(source.read(4), "little")
    source.seek(end - size)
    return pq.read_metadata(pa.BufferReader(MAGIC + with_int96_as_bytes(source.read(size))))


def _range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Where the pages of a column of a row group are."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset > 0:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size
