"""Reading ORC files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from anabranch.arrow import nested
from anabranch.arrow.files import check_rows, open_whole
from anabranch.errors import UnsupportedFeatureError
from anabranch.format.types.data_types import ArrayType, CharType, DataType, Field, MapType, RowType
from anabranch.kernel.scan.split import SplitFile
from anabranch.storage.protocol import Storage


class OrcData:
    """An ORC file whose footer was read."""

    def __init__(self, storage: Storage, file: SplitFile) -> None:
        self.path = file.path
        self.content = orc.ORCFile(open_whole(storage, file))
        check_rows(self.content.nrows, file)
        self.lock = Lock()
        self.names = frozenset(self.content.schema.names)
        self.pads_char = str(self.content.writer).startswith("ORC_JAVA")
        """Whether CHAR values are padded with spaces to the length of the type, as ORC's Java writer does."""

    def pieces(self) -> Sequence[Stripe]:
        return [Stripe(self, i) for i in range(self.content.nstripes)]


@dataclass(frozen=True, slots=True)
class Stripe:
    """A stripe of an ORC file."""

    file: OrcData
    index: int

    @property
    def rows(self) -> int | None:
        return int(self.file.content.nrows) if self.file.content.nstripes == 1 else None

    def size(self, columns: Sequence[Field]) -> int:
        return int(self.file.content.content_length) // int(self.file.content.nstripes)

    def read(self, columns: Sequence[Field]) -> pa.Table:
        rows = pa.Table.from_batches([self._read([c.name for c in columns if c.name in self.file.names])])
        if self.file.pads_char:
            for column in columns:
                position = rows.schema.get_field_index(column.name)
                if position >= 0 and _has_char(column.type):
                    values = [_trimmed(chunk, column.type) for chunk in rows.column(position).chunks]
                    rows = rows.set_column(position, column.name, pa.chunked_array(values))
        return rows

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        rows = self.read(columns)
        for start in range(0, len(rows), batch_rows):
            yield rows.slice(start, batch_rows)

    def _read(self, names: list[str]) -> pa.RecordBatch:
        # Names are paths to ORC: one with a dot would mean something inside of another column.
        plain = bool(names) and all(name.replace("_", "").isalnum() for name in names)
        try:
            with self.file.lock:
                return self.file.content.read_stripe(self.index, columns=names if plain else None)
        except pa.ArrowInvalid as error:
            if "out of range for nanosecond" not in str(error):
                raise
            raise UnsupportedFeatureError(
                f"Arrow reads ORC timestamps as nanoseconds, which reach from 1677 to 2262: {error}",
                feature="timestamp-range",
                path=self.file.path,
                hint="Read the other columns here, and this one with Spark.",
            ) from error


def _has_char(data_type: DataType) -> bool:
    match data_type:
        case RowType(fields=fields):
            return any(_has_char(f.type) for f in fields)
        case ArrayType(element=element):
            return _has_char(element)
        case MapType(key=key, value=value):
            return _has_char(key) or _has_char(value)
        case _:
            return isinstance(data_type, CharType)


def _trimmed(array: pa.Array, data_type: DataType) -> pa.Array:
    """Remove the padding of CHAR values, at any depth."""
    match data_type:
        case RowType(fields=fields):
            types = {f.name: f.type for f in fields}
            children = [
                _trimmed(array.field(i), types[member.name]) if member.name in types else array.field(i)
                for i, member in enumerate(array.type)
            ]
            return nested.with_children(array, children, array.type)
        case ArrayType(element=element):
            return nested.with_values(array, _trimmed(nested.list_values(array), element), array.type)
        case MapType(key=key, value=value):
            keys, items = nested.map_entries(array)
            return nested.with_entries(array, _trimmed(keys, key), _trimmed(items, value), array.type)
        case CharType():
            return pc.ascii_rtrim(array, " ")
        case _:
            return array
