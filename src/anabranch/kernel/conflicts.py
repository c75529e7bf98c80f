"""What two commits may not both do. One table, one test a row.

| commit             | meanwhile                           | outcome                                   |
|--------------------|-------------------------------------|-------------------------------------------|
| append             | append, compaction, overwrite       | replayed on the newest snapshot           |
| compaction         | append                              | replayed; what was appended stays         |
| compaction         | compaction or overwrite of its files| conflict FILE_GONE                        |
| compaction         | either one of other files           | replayed on the newest snapshot           |
| compaction         | files came between those of a queue | conflict ORDER_CHANGED                    |
| compaction         | schema change                       | replayed; files keep their own schema     |
| overwrite          | compaction                          | replayed: the compacted files are removed |
| append             | schema change                       | replayed; files keep their own schema     |
| append, overwrite  | number of buckets changed           | conflict BUCKET_COUNT_CHANGED             |
| append             | partition has another number        | conflict BUCKET_COUNT_CHANGED             |
| overwrite          | append, compaction, overwrite       | replayed: it replaces what is there now   |
| any                | table dropped and created again     | conflict TABLE_REPLACED                   |
| any                | another branch put in its place     | conflict BRANCH_REPLACED                  |
| adds a file        | that file is live already           | conflict FILE_ADDED_TWICE                 |
| removes a file     | that file is gone                   | conflict FILE_GONE                        |

The last two are checked for changes that remove files; a plain append adds files under fresh names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from anabranch.kernel.base import Base, Change, Conflict
from anabranch.kernel.commit_message import CommitMessage
from anabranch.kernel.compaction.task import Rewrite
from anabranch.kernel.partitions import key_of_row, partition_text
from anabranch.kernel.properties import BRANCH_PROPERTY
from anabranch.kernel.sequence import bucket_counts
from anabranch.options import BUCKET
from anabranch.spec.data_file import FileKind, ManifestEntry
from anabranch.spec.entry_frame import COLUMNS, IDENTITY
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


def partition_buckets_conflict(base: Base, messages: Sequence[CommitMessage]) -> Conflict | None:
    """A conflict if a partition holds rows spread over another number of buckets than the new ones."""
    spread = {key_of_row(m.partition, base.schema): m.total_buckets for m in messages if m.total_buckets > 0}
    counts = bucket_counts(base) if spread else {}
    if all(counts.get(key, count) == count for key, count in spread.items()):
        return None
    # The newest files are not what was expected, but they may have been overwritten since.
    for partition, count in base.live.df.select("partition", "total_buckets").unique().iter_rows():
        expected = spread.get(key_of_row(partition, base.schema), count)
        if count != expected:
            where = partition_text(partition, base.schema)
            return Conflict(
                "BUCKET_COUNT_CHANGED",
                f"rows were written for {expected} buckets, but partition {where} of '{base.context.title}' "
                f"has {count}",
                f"overwrite the partition to spread all of its rows over {expected} buckets.",
            )
    return None


def identity_conflict(base: Base) -> Conflict | None:
    """A conflict if what lies under this name is not what the rows were written for.

    Raises `NotFoundError` if nothing lies there any more.
    """
    context = base.context
    if context.is_replaced(base.snapshot):
        return Conflict(
            "TABLE_REPLACED",
            f"'{context.title}' was dropped and created again while rows were being written for it",
            "open the table again and write the rows to the new one.",
        )
    made_on = None if base.snapshot is None else base.snapshot.properties.get(BRANCH_PROPERTY)
    if made_on in (None, context.branch_uuid, context.table_uuid):
        return None
    return Conflict(
        "BRANCH_REPLACED",
        f"the newest snapshot of '{context.title}' was made on another branch: another engine put it there",
        "compare the two branches; rows committed here since they parted may be gone.",
    )


def file_conflict(base: Base, change: Change) -> Conflict | None:
    """A conflict if the change adds a file that is live or removes one that is not."""
    if change.kind == CommitKind.APPEND and not any(e.kind == FileKind.DELETE for e in change.entries):
        return None
    changed = pl.DataFrame(
        [(int(entry.kind), *_identity(entry)) for entry in change.entries],
        schema={name: COLUMNS[name] for name in ("kind", *IDENTITY)},
        orient="row",
    )
    is_add = pl.col("kind") == int(FileKind.ADD)
    live = base.live.df.select(IDENTITY)
    twice = changed.filter(is_add).join(live, on=IDENTITY, how="semi")
    if twice.height:
        return Conflict(
            "FILE_ADDED_TWICE",
            f"data file {twice.item(0, 'file_name')} is in '{base.context.title}' already",
            "this commit was made before; nothing is left to do.",
        )
    gone = changed.filter(~is_add).join(live, on=IDENTITY, how="anti")
    return _gone(base, gone["file_name"].to_list()) if gone.height else None


def gone_conflict(
    base: Base, rewrites: Sequence[Rewrite], live: Collection[tuple[bytes, int, int, str]]
) -> Conflict | None:
    """A conflict if a file that was rewritten is not among the live ones."""
    gone = [
        file.file_name
        for rewrite in rewrites
        for file in rewrite.task.files
        if (rewrite.task.partition, rewrite.task.bucket, file.level, file.file_name) not in live
    ]
    return _gone(base, gone) if gone else None


def order_conflict(base: Base, rewrites: Sequence[Rewrite]) -> Conflict | None:
    """A conflict if new files in place of the old ones would change the order of a queue's rows.

    Readers order the files of a bucket by their first sequence number, then by commit. The new ones take the
    numbers of the old from the first on, so between them and what follows there must be no other.
    """
    queues = [rewrite for rewrite in rewrites if rewrite.task.total_buckets > 0]
    if not queues:
        return None
    live = base.live.df.select("partition", "bucket", "file_name", "min_sequence_number")
    for rewrite in queues:
        task = rewrite.task
        bucket = live.filter((pl.col("partition") == task.partition) & (pl.col("bucket") == task.bucket))
        ordered = bucket.sort("min_sequence_number", maintain_order=True)
        names, firsts = ordered["file_name"].to_list(), ordered["min_sequence_number"].to_list()
        wanted = [file.file_name for file in task.files]
        start = names.index(wanted[0]) if wanted[0] in names else 0
        end = start + len(wanted)
        shift = firsts[start]
        last = max((file.min_sequence_number + shift for file in rewrite.new_files), default=shift)
        if names[start:end] == wanted and (end == len(names) or last < firsts[end]):
            continue
        return Conflict(
            "ORDER_CHANGED",
            f"files of bucket {task.bucket} in partition {partition_text(task.partition, base.schema)} of "
            f"'{base.context.title}' no longer follow each other as when they were compacted",
            "plan the work again from the newest snapshot.",
        )
    return None


def _gone(base: Base, names: Sequence[str]) -> Conflict:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Conflict(
        "FILE_GONE",
        f"data file {names[0]}{more} of '{base.context.title}' was compacted or overwritten meanwhile",
        "plan the work again from the newest snapshot.",
    )


def _identity(entry: ManifestEntry) -> tuple[bytes, int, int, str]:
    return entry.partition, entry.bucket, entry.file.level, entry.file.file_name
