"""What one worker wrote, on its way to the commit."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.spec.data_file import DataFileMeta


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
