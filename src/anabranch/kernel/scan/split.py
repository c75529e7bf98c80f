"""The unit of reading: files of one bucket, few enough for one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class SplitFile(NamedTuple):
    """One data file to read. A named tuple for speed, because a plan of a large table has very many of them."""

    path: str
    """Relative to the table's root."""
    size: int
    """Bytes."""
    row_count: int
    schema_id: int
    format: str
    """Extension of the name: ``parquet``, ``orc`` or ``avro``."""


class Split:
    """Files of one bucket of one partition, to be read in this order. An immutable, picklable value.

    A plan may hold hundreds of thousands of files, so the files of a split are built lazily.
    """

    __slots__ = ("_files", "bucket", "partition")

    def __init__(
        self,
        partition: bytes,
        bucket: int,
        files: tuple[SplitFile, ...] | Callable[[], tuple[SplitFile, ...]],
    ) -> None:
        self.partition = partition
        """BinaryRow of the partition values with its 4-byte arity."""
        self.bucket = bucket
        self._files = files

    @property
    def files(self) -> tuple[SplitFile, ...]:
        # Not kept: whoever goes through the splits of a million files would hold all of them in the end.
        return self._files if isinstance(self._files, tuple) else self._files()

    @property
    def row_count(self) -> int:
        return sum(f.row_count for f in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        return (self.partition, self.bucket, self.files) == (other.partition, other.bucket, other.files)

    def __hash__(self) -> int:
        return hash((self.partition, self.bucket, self.files))

    def __repr__(self) -> str:
        return f"Split(bucket={self.bucket}, files={len(self.files)}, rows={self.row_count})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Split, (self.partition, self.bucket, self.files)
