"""Reading ORC files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from anabranch.arrow.data_files import check_rows
from anabranch.arrow.files import open_whole
from anabranch.kernel.split import SplitFile
from anabranch.spec.types import CharType, Field
from anabranch.storage.protocol import Storage


class OrcData:
    """An open ORC file."""

    def __init__(self, storage: Storage, file: SplitFile) -> None:
        self.path = file.path
        self.content = orc.ORCFile(open_whole(storage, file))
        check_rows(self.content.nrows, file)
        self.lock = Lock()
        self.names = frozenset(self.content.schema.names)
        self.pads_char = str(self.content.writer).startswith("ORC_JAVA")
        """ORC's own CHAR, which Java uses, is as long as its type says, with spaces behind the text."""

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
        names = [column.name for column in columns if column.name in self.file.names]
        # Names are paths to ORC: one with a dot would mean something inside of another column.
        plain = bool(names) and all(name.replace("_", "").isalnum() for name in names)
        with self.file.lock:
            batch = self.file.content.read_stripe(self.index, columns=names if plain else None)
        rows = pa.Table.from_batches([batch])
        for column in columns:
            if self.file.pads_char and isinstance(column.type, CharType) and column.name in names:
                position = rows.schema.get_field_index(column.name)
                trimmed = pc.ascii_rtrim(rows.column(position), " ")
                rows = rows.set_column(position, column.name, trimmed)
        return rows

    def stream(self, columns: Sequence[Field], batch_rows: int) -> Iterator[pa.Table]:
        rows = self.read(columns)
        for start in range(0, len(rows), batch_rows):
            yield rows.slice(start, batch_rows)
