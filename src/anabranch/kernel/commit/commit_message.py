"""The output of one writing worker, sent to the committer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.format.records.data_file import DataFileMeta
from anabranch.options import WRITE_ONLY, WRITERS_PER_TASK_WARN


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


# Write load: the number of buckets that one task of a write writes. Each costs memory, and then a file.
#
# The proposal's rule is ``(N * B) / P < 100`` (seed 003): N partitions to which data is written, B buckets in each,
# P concurrent tasks. The limit is lower for tables that are not compacted while writing.

_LIMIT = 100
_LIMIT_WRITE_ONLY = 50


@dataclass(frozen=True, slots=True)
class WriteLoad:
    """The dimensions of one write."""

    partitions: int
    """Number of partitions that are written."""
    buckets: int
    """Buckets per partition; 1 for a scalable table."""
    tasks: int
    """Number of writing tasks."""
    found: float | None = None
    """Average number of buckets that a task did write; None before the write, or if rows are clustered."""

    @classmethod
    def of_messages(cls, tasks: Sequence[Sequence[CommitMessage]]) -> WriteLoad:
        """Compute the load of a finished write from the messages of each task."""
        places = {(m.partition, m.bucket) for messages in tasks for m in messages}
        partitions = len({partition for partition, _ in places})
        busy = sum(1 for messages in tasks if messages)
        found = sum(len({(m.partition, m.bucket) for m in messages}) for messages in tasks) / max(1, busy)
        return cls(partitions, math.ceil(len(places) / max(1, partitions)), max(1, len(tasks)), found)

    @property
    def per_task(self) -> float:
        """``(N * B) / P``: buckets per task if each bucket is written by one task only."""
        return self.partitions * self.buckets / self.tasks

    def tasks_below(self, limit: int) -> int:
        """Return the fewest tasks with which `per_task` is below the limit."""
        return self.partitions * self.buckets // limit + 1


def load_limit(options: Mapping[str, str]) -> int | None:
    """Return the number of buckets per task from which on to warn; None for never."""
    limit = WRITERS_PER_TASK_WARN.of(options)
    if limit is None:
        return _LIMIT_WRITE_ONLY if WRITE_ONLY.of(options) else _LIMIT
    return limit or None


def load_warning(load: WriteLoad, table: str, options: Mapping[str, str]) -> str | None:
    """Return a warning about a planned or finished write with too many buckets per task; None if it is fine.

    Args:
        load: the load.
        table: its name, for the message.
        options: of the table and the write.
    """
    limit = load_limit(options)
    if limit is None or max(load.per_task, load.found or 0) < limit:
        return None
    counted = (
        f"{_count(load.partitions, 'partition')} x {_count(load.buckets, 'bucket')} / {_count(load.tasks, 'task')} "
        f"= {_number(load.per_task)} buckets to write for each task"
    )
    if load.found is not None and load.found > load.per_task:
        counted += f"; in fact each wrote {_number(load.found)}, because the rows were not clustered"
    remedies = []
    if load.found is not None and load.found > load.per_task:
        remedies.append("cluster the rows with anabranch.spark.cluster(df, table)")
    if load.per_task >= limit:
        remedies.append(
            f"write with at least {load.tasks_below(limit):,} tasks, or fewer partitions at a time"
        )
    return (
        f"writing '{table}': {counted}. From {limit:,} on ('{WRITERS_PER_TASK_WARN.key}') tasks put rows aside on disk, "
        f"and files get many and small: {', and '.join(remedies)}."
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value.is_integer() else f"{value:,.1f}"
