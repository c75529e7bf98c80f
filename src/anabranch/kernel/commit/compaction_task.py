"""Compaction tasks and their results, as values that travel between processes."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Live files of one bucket of one partition, to be rewritten as fewer files with the same rows."""

    partition: bytes
    """BinaryRow of the partition values with its 4-byte arity, as in the files' manifest entries."""
    bucket: int
    total_buckets: int
    """Number of buckets the files were written for, -1 in a scalable table."""
    files: tuple[DataFileMeta, ...]
    """In reading order; in a queue's bucket, consecutive files."""

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
    """A completed task: its new files hold exactly the task's rows.

    Sequence numbers in `new_files` count from 0 as in a `CommitMessage`; the commit shifts those of a queue.
    """

    task: CompactionTask
    new_files: tuple[DataFileMeta, ...]
