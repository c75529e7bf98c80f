"""Reading Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from anabranch.arrow.data_files import check_rows
from anabranch.arrow.files import Range, open_file
from anabranch.errors import UnsupportedFeatureError
from anabranch.kernel.split import SplitFile
from anabranch.spec.types import Field
from anabranch.storage.protocol import Storage


class ParquetData:
    """A Parquet file whose footer was read."""

    def __init__(self, storage: Storage, file: SplitFile) -> None:
        self.path = file.path
        self._storage = storage
        self._file = file
        with open_file(storage, file) as source, pq.ParquetFile(source) as footer:
            self.metadata = footer.metadata
            self.schema = footer.schema_arrow
        check_rows(self.metadata.num_rows, file)

    def pieces(self) -> Sequence[RowGroup]:
        return [RowGroup(self, i) for i in range(self.metadata.num_row_groups)]

    def pieces_matching(self, condition: pc.Expression) -> Sequence[RowGroup]:
        """Those whose statistics do not rule the condition out; it names columns as the file does."""
        pieces = self.pieces()
        if len(pieces) < 2:
            return pieces
        with open_file(self._storage, self._file) as source:
            fragment = ds.ParquetFileFormat().make_fragment(source)
            return [pieces[group.id] for group in fragment.subset(condition).row_groups]

    def stores(self, name: str, data_type: pa.DataType) -> bool:
        """Whether there is a column of that name and exactly that type."""
        position = self.schema.get_field_index(name)
        return position >= 0 and self.schema.field(position).type == data_type

    @cached_property
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

    @cached_property
    def doubtful(self) -> frozenset[str]:
        """Columns with INT96 timestamps that 64 bits of nanoseconds may not express.

        Read as nanoseconds, they wrap around silently; a writer on Arrow cannot have had such values.
        """
        if str(self.metadata.created_by).startswith("parquet-cpp-arrow"):
            return frozenset()
        schema = self.metadata.schema
        return frozenset(
            name
            for name, leaves in self.leaves.items()
            if any(schema.column(i).physical_type == "INT96" for i in leaves)
        )

    @contextmanager
    def reader(self, group: int, names: Sequence[str], *, int96_unit: str = "ns") -> Iterator[pq.ParquetFile]:
        """Reads columns of a row group. Each thread has its own, so that they share nothing."""
        row_group = self.metadata.row_group(group)
        wanted = [_range(row_group.column(i)) for name in names for i in self.leaves[name]]
        with (
            open_file(self._storage, self._file, wanted) as source,
            pq.ParquetFile(
                source, metadata=self.metadata, coerce_int96_timestamp_unit=int96_unit, pre_buffer=False
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
            rows = content.read_row_group(self.index, names)
        doubtful = self._doubtful(names)
        if doubtful:
            with self.file.reader(self.index, doubtful, int96_unit="us") as content:
                self._check(content.read_row_group(self.index, doubtful), rows.schema)
        return rows

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        names = self._names(columns)
        if self._doubtful(names):
            yield self.read(columns)
            return
        with self.file.reader(self.index, names) as content:
            for batch in content.iter_batches(batch_rows, [self.index], names):
                yield pa.Table.from_batches([batch])

    def _names(self, columns: Sequence[Field]) -> list[str]:
        return [column.name for column in columns if column.name in self.file.leaves]

    def _doubtful(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.file.doubtful]

    def _check(self, coarse: pa.Table, schema: pa.Schema) -> None:
        """Refuse what microseconds, which express all there is, show to be out of the range of nanoseconds."""
        for name in coarse.column_names:
            try:
                coarse.column(name).cast(schema.field(name).type)
            except pa.ArrowInvalid as error:
                raise UnsupportedFeatureError(
                    f"column '{name}' has timestamps outside of the years 1677 to 2262, which Arrow cannot hold "
                    f"in nanoseconds",
                    feature="timestamp-range",
                    path=self.file.path,
                    hint="Read the other columns, or read the table with Spark.",
                ) from error


def _range(chunk: pq.ColumnChunkMetaData) -> Range:
    """Where the pages of a column of a row group are."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset > 0:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size
