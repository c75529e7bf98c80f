"""The output of one writing worker, sent to the committer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.format.records.data_file import DataFileMeta


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The newest event times of rows, epoch milliseconds; nulls are ignored."""

    newest: int | None = None
    """None if no row has an event time."""
    by_source: Mapping[str, int] = field(default_factory=dict)
    """Per source of rows, if the rows name their source."""
    ahead: int = 0
    """Number of rows too far ahead of the writer's clock to count."""


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """New files of one bucket of one partition.

    Sequence numbers in `new_files` are relative: they count from 0 in each message, in the order of
    writing. A commit to a table with fixed buckets shifts them onto the base it lands on.
    """

    partition: bytes
    """BinaryRow of the partition values with its 4-byte arity."""
    bucket: int
    total_buckets: int
    """Number of buckets of the table, -1 for a scalable table."""
    new_files: tuple[DataFileMeta, ...]
    event_times: EventTimes | None = None
    """Covers all rows written together with these, in the first message of one write."""


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
