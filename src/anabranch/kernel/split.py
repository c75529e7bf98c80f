"""The unit of reading: some files of one bucket, small enough for one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class SplitFile(NamedTuple):
    """One data file to read. A named tuple, because a plan of a large table makes very many of them."""

    path: str
    """Relative to the table's root."""
    size: int
    """Bytes."""
    row_count: int
    schema_id: int
    format: str
    """Extension of the name: ``parquet``, ``orc`` or ``avro``."""


@dataclass(frozen=True, slots=True)
class Split:
    """Files of one bucket of one partition, to be read in this order. Picklable."""

    partition: bytes
    """BinaryRow of the partition values with its 4-byte arity."""
    bucket: int
    files: tuple[SplitFile, ...]

    @property
    def row_count(self) -> int:
        return sum(f.row_count for f in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)
