"""Compaction as values: what to rewrite, and what became of it. Both travel between processes."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Live files of one bucket of one partition, to be rewritten as fewer files with the same rows."""

    partition: bytes
    """BinaryRow of the partition values with its 4-byte arity, as the files' manifest entries have it."""
    bucket: int
    total_buckets: int
    """Number of buckets the files were written for, -1 in a scalable table."""
    files: tuple[DataFileMeta, ...]
    """To be read in this order; of a queue's bucket, files that follow each other."""

    @property
    def place(self) -> tuple[bytes, int, int]:
        """Partition, bucket and number of buckets."""
        return self.partition, self.bucket, self.total_buckets

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A task that was carried out: its new files hold exactly its rows.

    Sequence numbers in `new_files` count from 0 as in a `CommitMessage`; the commit shifts those of a queue.
    """

    task: CompactionTask
    new_files: tuple[DataFileMeta, ...]
