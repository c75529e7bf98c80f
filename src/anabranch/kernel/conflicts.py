"""What two commits may not both do. One table, one test a row.

| commit             | meanwhile                           | outcome                                   |
|--------------------|-------------------------------------|-------------------------------------------|
| append             | append, compaction, overwrite       | replayed on the newest snapshot           |
| append             | schema change                       | replayed; files keep their own schema     |
| append, overwrite  | number of buckets changed           | conflict BUCKET_COUNT_CHANGED             |
| overwrite          | append, compaction, overwrite       | replayed: it replaces what is there now   |
| any                | table dropped and created again     | conflict TABLE_REPLACED                   |
| adds a file        | that file is live already           | conflict FILE_ADDED_TWICE                 |
| removes a file     | that file is gone                   | conflict FILE_GONE                        |

The last two are checked for changes that remove files; a plain append adds files under fresh names.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.kernel.base import Base, Change, Conflict
from anabranch.kernel.commit_message import CommitMessage
from anabranch.kernel.context import BRANCH_PROPERTY
from anabranch.options import BUCKET
from anabranch.spec.data_file import FileKind, ManifestEntry
from anabranch.spec.entry_frame import IDENTITY
from anabranch.spec.snapshot import CommitKind


def bucket_count_conflict(base: Base, messages: Sequence[CommitMessage]) -> Conflict | None:
    """A conflict if rows were spread over another number of buckets than the table has now."""
    now = BUCKET.of(base.schema.options)
    other = next((m.total_buckets for m in messages if m.total_buckets != now), now)
    if other == now:
        return None
    return Conflict(
        "BUCKET_COUNT_CHANGED",
        f"rows were written for {other} buckets, but '{base.context.title}' has {now} now",
        "write the rows again.",
    )


def table_replaced_conflict(base: Base) -> Conflict | None:
    """A conflict if the table under this name is not the one that the rows were written for.

    The newest snapshot tells by the branch it was made on; where it does not say, the table's first schema.
    """
    context = base.context
    made_on = None if base.snapshot is None else base.snapshot.properties.get(BRANCH_PROPERTY)
    if made_on in (context.branch_uuid, context.table_uuid):
        return None
    if made_on is None and context.read_table_uuid() == context.table_uuid:
        return None
    return Conflict(
        "TABLE_REPLACED",
        f"'{context.title}' was dropped and created again while rows were being written for it",
        "open the table again and write the rows to the new one.",
    )


def file_conflict(base: Base, change: Change) -> Conflict | None:
    """A conflict if the change adds a file that is live or removes one that is not."""
    if change.kind == CommitKind.APPEND and not any(e.kind == FileKind.DELETE for e in change.entries):
        return None
    live = set(base.live.df.select(IDENTITY).iter_rows())
    for entry in change.entries:
        identity = _identity(entry)
        if entry.kind == FileKind.ADD and identity in live:
            return Conflict(
                "FILE_ADDED_TWICE",
                f"data file {entry.file.file_name} is in '{base.context.title}' already",
                "this commit was made before; nothing is left to do.",
            )
        if entry.kind == FileKind.DELETE and identity not in live:
            return Conflict(
                "FILE_GONE",
                f"data file {entry.file.file_name} of '{base.context.title}' was compacted or overwritten meanwhile",
                "plan the work again from the newest snapshot.",
            )
    return None


def _identity(entry: ManifestEntry) -> tuple[bytes, int, int, str]:
    return entry.partition, entry.bucket, entry.file.level, entry.file.file_name
