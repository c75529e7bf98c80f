"""How many buckets one task of a write has to write: each costs memory while it is written, and a file after.

The proposal's rule is ``(N * B) / P < 100`` (seed 003): N partitions to which data is written, B buckets in each,
P tasks that write side by side. Less where nobody compacts while writing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.options import WRITE_ONLY, WRITERS_PER_TASK_WARN

_LIMIT = 100
_LIMIT_WRITE_ONLY = 50


@dataclass(frozen=True, slots=True)
class WriteLoad:
    """The numbers of one write."""

    partitions: int
    """Partitions to which data is written."""
    buckets: int
    """Buckets in each of them; 1 for a scalable table."""
    tasks: int
    """Tasks that write."""
    found: float | None = None
    """Buckets that a task did write, on average; None before the write, or if rows are clustered."""

    @classmethod
    def of_messages(cls, tasks: Sequence[Sequence[CommitMessage]]) -> WriteLoad:
        """The numbers of a write that has happened, from the messages of each task."""
        places = {(m.partition, m.bucket) for messages in tasks for m in messages}
        partitions = len({partition for partition, _ in places})
        busy = sum(1 for messages in tasks if messages)
        found = sum(len({(m.partition, m.bucket) for m in messages}) for messages in tasks) / max(1, busy)
        return cls(partitions, math.ceil(len(places) / max(1, partitions)), max(1, len(tasks)), found)

    @property
    def per_task(self) -> float:
        """``(N * B) / P``: the buckets of a task when every bucket is written by one task only."""
        return self.partitions * self.buckets / self.tasks

    def tasks_below(self, limit: int) -> int:
        """The fewest tasks with which `per_task` is below the limit."""
        return self.partitions * self.buckets // limit + 1


def load_limit(options: Mapping[str, str]) -> int | None:
    """Buckets of a task from which on to warn; None for never."""
    limit = WRITERS_PER_TASK_WARN.of(options)
    if limit is None:
        return _LIMIT_WRITE_ONLY if WRITE_ONLY.of(options) else _LIMIT
    return limit or None


def load_warning(load: WriteLoad, table: str, options: Mapping[str, str]) -> str | None:
    """What to tell a person who is about to write so much with so few tasks, or who did; None if all is well.

    Args:
        load: the numbers.
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
