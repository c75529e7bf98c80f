"""Add rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.conflicts import bucket_count_conflict, partition_buckets_conflict
from anabranch.kernel.commit.order import continue_sequences


@dataclass(frozen=True)
class Append:
    """Add the files of these messages. Succeeds on every base with the same numbers of buckets."""

    messages: Sequence[CommitMessage]

    @property
    def depends_on_base(self) -> bool:
        return any(message.total_buckets > 0 for message in self.messages)

    def on(self, base: Base) -> Change | Conflict:
        conflict = bucket_count_conflict(base, self.messages) or partition_buckets_conflict(
            base, self.messages
        )
        if conflict is not None:
            return conflict
        entries = added_entries(self.messages)
        if self.depends_on_base:
            entries = continue_sequences(base, entries)
        return Change(CommitKind.APPEND, entries)


def added_entries(messages: Sequence[CommitMessage]) -> list[ManifestEntry]:
    """Return ADD entries for all files of these messages, in order."""
    return [
        ManifestEntry(FileKind.ADD, message.partition, message.bucket, message.total_buckets, file)
        for message in messages
        for file in message.new_files
    ]
