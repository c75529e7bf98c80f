"""Data files and manifest entries as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

EMPTY_ROW = bytes(12)
"""A row of no fields as manifests store it: a 4-byte arity of 0 and one null word."""


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Minimum, maximum and null counts of some columns.

    `min_values` and `max_values` are BinaryRows with their 4-byte arity; a null slot, or a null count
    of None, means unknown.
    """

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] = ()


EMPTY_STATS = SimpleStats()


class FileSource(IntEnum):
    """Origin of a data file."""

    APPEND = 0
    COMPACT = 1


class FileKind(IntEnum):
    """Whether a manifest entry adds or deletes its file."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One data file, as a manifest entry describes it (sizes in bytes, times in milliseconds)."""

    file_name: str
    file_size: int
    row_count: int
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int = 0
    extra_files: tuple[str, ...] = ()
    creation_time: int | None = None
    """Local wall-clock time of the writer, encoded as if it were UTC."""
    delete_row_count: int | None = 0
    embedded_index: bytes | None = None
    file_source: FileSource | None = FileSource.APPEND
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: SimpleStats = EMPTY_STATS
    written_millis: int | None = field(default=None, compare=False, repr=False)
    """When it was written, in epoch milliseconds; known on the way to its commit only, and not stored."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A data file added to, or deleted from, a bucket of a partition."""

    kind: FileKind
    partition: bytes
    """BinaryRow of the partition columns with its 4-byte arity, exactly as found or written."""
    bucket: int
    total_buckets: int
    file: DataFileMeta


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """One manifest, as a manifest list describes it."""

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    extra_files: tuple[str, ...] = ()

    @property
    def num_entries(self) -> int:
        return self.num_added_files + self.num_deleted_files
