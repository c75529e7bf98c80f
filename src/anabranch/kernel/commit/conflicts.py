"""Conflicts between concurrent commits. One table, one test per row. Those of merges are in `kernel/merge/cases.py`.

| commit             | meanwhile                           | outcome                                   |
|--------------------|-------------------------------------|-------------------------------------------|
| append             | append, compaction, overwrite       | replayed on the newest snapshot           |
| compaction         | append                              | replayed; what was appended stays         |
| compaction         | compaction or overwrite of its files| conflict FILE_GONE                        |
| compaction         | either one of other files           | replayed on the newest snapshot           |
| compaction         | files came between those of a queue | conflict ORDER_CHANGED                    |
| compaction         | a merge of the branch parted them   | conflict FENCE_CROSSED                    |
| compaction         | schema change                       | replayed; files keep their own schema     |
| overwrite          | compaction                          | replayed: the compacted files are removed |
| append             | schema change                       | replayed; files keep their own schema     |
| append, overwrite  | number of buckets changed           | conflict BUCKET_COUNT_CHANGED             |
| append             | partition has another number        | conflict BUCKET_COUNT_CHANGED             |
| append, overwrite  | bucket-key or folder names changed  | conflict PLACEMENT_CHANGED                |
| append, overwrite  | main replaced by a commit, without  | conflict SCHEMA_CHANGED                   |
|                    | columns that the rows have          |                                           |
| overwrite          | append, compaction, overwrite       | replayed: it replaces what is there now   |
| rollback           | append, compaction, overwrite       | replayed: it takes away what is there now |
| append             | rollback                            | replayed: what was appended stays         |
| compaction         | rollback took its files away        | conflict FILE_GONE                        |
| rollback           | files of its target are not there   | conflict FILE_GONE                        |
| any                | schema gone with a backup put back  | conflict SCHEMA_CHANGED                   |
| any                | table dropped and created again     | conflict TABLE_REPLACED                   |
| any                | another branch put in its place     | conflict BRANCH_REPLACED                  |
| adds a file        | that file is live already           | conflict FILE_ADDED_TWICE                 |
| removes a file     | that file is gone                   | conflict FILE_GONE                        |
| overwrite that says| rows it replaces were changed       | conflict CHANGED_SINCE                    |
| since when         | (`actions/overwrite.py`)            |                                           |
| schema change      | one that it does not fit            | conflict SCHEMA_CHANGED                   |
|                    | (`actions/alter.py`)                |                                           |
| adds files, late   | they were cleaned away as orphans   | conflict FILES_CLEANED_AWAY               |
|                    | (`presence.py`)                     |                                           |
| brings files back  | the tag that held them was removed  | conflict FILES_LET_GO                     |
|                    | (`presence.py`)                     |                                           |

The rows "adds a file" and "removes a file" are checked for changes that remove files; a plain append adds files under fresh names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import polars as pl

from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.entry_frame import COLUMNS, IDENTITY
from anabranch.format.records.snapshot import CommitKind
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.format.types.widening import is_wider
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.commit_message import CommitMessage, Rewrite
from anabranch.kernel.commit.gates import crossing
from anabranch.kernel.commit.in_history import placement_conflict
from anabranch.kernel.commit.order import bucket_counts
from anabranch.kernel.log.field_ids import begins_block
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.scan.partitions import PartitionKey, key_of_row, keys_of_rows, partition_text
from anabranch.options import BUCKET


def bucket_count_conflict(base: Base, messages: Sequence[CommitMessage]) -> Conflict | None:
    """A conflict if rows were spread over other buckets than the table has now, or written for columns it has not."""
    now = BUCKET.of(base.schema.options)
    other = next((m.total_buckets for m in messages if m.total_buckets != now), now)
    if other == now:
        schema_ids = {file.schema_id for m in messages for file in m.new_files}
        return (
            stored_schema_conflict(base, schema_ids - {base.schema.id})
            or placement_conflict(base, schema_ids)
            or lost_columns_conflict(base, schema_ids)
        )
    return Conflict(
        "BUCKET_COUNT_CHANGED",
        f"rows were written for {other} buckets, but '{base.context.title}' has {now} now",
        "write the rows again.",
    )


def partition_buckets_conflict(base: Base, messages: Sequence[CommitMessage]) -> Conflict | None:
    """Return a conflict if a partition holds rows spread over another number of buckets than the new ones."""
    spread = {key_of_row(m.partition, base.schema): m.total_buckets for m in messages if m.total_buckets > 0}
    counts = bucket_counts(base) if spread else {}
    if all(counts.get(key, count) == count for key, count in spread.items()):
        return None
    # The newest files are not what was expected, but they may have been overwritten since.
    held = base.live.df.select("partition", "total_buckets").unique(maintain_order=True)
    for partition, count in held.iter_rows():
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
    """Return a conflict if the table or branch under this name is not the one the rows were written for.

    Raises `NotFoundError` if it no longer exists.
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
    if base.snapshot is not None and context.is_forked(base.snapshot):
        return None
    return Conflict(
        "BRANCH_REPLACED",
        f"the newest snapshot of '{context.title}' was made on another branch: another engine put it there",
        "compare the two branches; rows committed here since they parted may be gone.",
    )


def stored_schema_conflict(base: Base, schema_ids: Collection[int]) -> Conflict | None:
    """A conflict if one of these versions of the schema, which were read before, is not what is stored now."""
    for schema_id in sorted(schema_ids):
        if not base.context.schemas.look_again(schema_id):
            return Conflict(
                "SCHEMA_CHANGED",
                f"version {schema_id} of the schema of '{base.context.title}' is not there any more, or says something "
                "else than when it was read: a backup from before it may have been put back",
                "look at the schema that the table has now, and write the rows again.",
            )
    return None


def file_conflict(base: Base, change: Change) -> Conflict | None:
    """Return a conflict if the change adds a live file or removes one that is not live."""
    is_append = change.kind == CommitKind.APPEND
    if not change.entries or (is_append and not any(e.kind == FileKind.DELETE for e in change.entries)):
        return None
    changed = pl.DataFrame(
        [(int(entry.kind), *_identity(entry)) for entry in change.entries],
        schema={name: COLUMNS[name] for name in ("kind", *IDENTITY)},
        orient="row",
    )
    is_add = pl.col("kind") == int(FileKind.ADD)
    live = (base.live if change.live is None else change.live).df.select(IDENTITY)
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
    """Return a conflict if a rewritten file is no longer live."""
    gone = [name for rewrite in rewrites for name in _gone_files(rewrite, live)]
    return _gone(base, gone) if gone else None


def order_conflict(base: Base, rewrites: Sequence[Rewrite]) -> Conflict | None:
    """Return a conflict if replacing the old files would change the order of a queue's rows.

    Readers order the files of a bucket by their first sequence number, then by commit. The new ones take over
    the old numbers from the first on, so no other file may lie between them and what follows.
    """
    misplaced = _misplaced(base, rewrites)
    if not misplaced:
        return None
    task = misplaced[0].task
    return Conflict(
        "ORDER_CHANGED",
        f"files of bucket {task.bucket} in partition {partition_text(task.partition, base.schema)} of "
        f"'{base.context.title}' no longer follow each other as when they were compacted",
        "plan the work again from the newest snapshot.",
    )


def outdated(base: Base, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the rewrites that cannot be made on this base because their files are no longer as they were."""
    names = pl.Series([f.file_name for r in rewrites for f in r.task.files], dtype=pl.String)
    live = set(base.live.df.select(IDENTITY).filter(pl.col("file_name").is_in(names.implode())).iter_rows())
    gone: list[Rewrite] = []
    there: list[Rewrite] = []
    for rewrite in rewrites:
        (gone if any(_gone_files(rewrite, live)) else there).append(rewrite)
    misplaced = _misplaced(base, there)
    lost = {id(rewrite) for rewrite in misplaced}
    return [*gone, *misplaced, *crossing(base, [rewrite for rewrite in there if id(rewrite) not in lost])]


def _gone_files(rewrite: Rewrite, live: Collection[tuple[bytes, int, int, str]]) -> Iterator[str]:
    task = rewrite.task
    return (
        file.file_name
        for file in task.files
        if (task.partition, task.bucket, file.level, file.file_name) not in live
    )


def _misplaced(base: Base, rewrites: Sequence[Rewrite]) -> list[Rewrite]:
    """Return the rewrites of queues whose new files would take another position than the old ones."""
    queues = [rewrite for rewrite in rewrites if rewrite.task.total_buckets > 0]
    if not queues:
        return []
    keys = [(key_of_row(rewrite.task.partition, base.schema), rewrite.task.bucket) for rewrite in queues]
    buckets = _buckets_in_order(base, set(keys))
    empty: tuple[list[str], list[int]] = ([], [])
    return [
        rewrite
        for rewrite, key in zip(queues, keys, strict=True)
        if not _stands_alike(rewrite, *buckets.get(key, empty))
    ]


def _stands_alike(rewrite: Rewrite, names: list[str], firsts: list[int]) -> bool:
    wanted = [file.file_name for file in rewrite.task.files]
    if wanted[0] not in names:
        return False
    start = names.index(wanted[0])
    end = start + len(wanted)
    last = max((file.min_sequence_number for file in rewrite.new_files), default=0) + firsts[start]
    return names[start:end] == wanted and (end == len(names) or last < firsts[end])


def _buckets_in_order(
    base: Base, wanted: Collection[tuple[PartitionKey, int]]
) -> dict[tuple[PartitionKey, int], tuple[list[str], list[int]]]:
    """Return names and first sequence numbers of the files of these buckets, in reading order.

    Rows of one partition may differ in bytes, so partitions are compared by value.
    """
    live = base.live.df.select("partition", "bucket", "file_name", "min_sequence_number")
    partitions = live["partition"].unique(maintain_order=True)
    keys = keys_of_rows(partitions, base.schema)
    numbers = {key: number for number, (key, _) in enumerate(wanted)}
    known = [numbers.get(key, -1) for key in keys]
    places = pl.DataFrame({"partition": partitions, "number": pl.Series(known, dtype=pl.Int64)})
    chosen = live.join(places.filter(pl.col("number") >= 0), on="partition", maintain_order="left")
    ordered = chosen.sort("number", "bucket", "min_sequence_number", maintain_order=True)
    files = ordered.group_by("number", "bucket", maintain_order=True).agg("file_name", "min_sequence_number")
    by_number = {number: key for key, number in numbers.items()}
    return {
        (by_number[number], bucket): (names, firsts) for number, bucket, names, firsts in files.iter_rows()
    }


def _gone(base: Base, names: Sequence[str]) -> Conflict:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Conflict(
        "FILE_GONE",
        f"data file {names[0]}{more} of '{base.context.title}' was compacted or overwritten meanwhile",
        "plan the work again from the newest snapshot.",
    )


def _identity(entry: ManifestEntry) -> tuple[bytes, int, int, str]:
    return entry.partition, entry.bucket, entry.file.level, entry.file.file_name


# Columns of rows that were being written while a branch's schema was put in the place of the table's.
#
# A writer's files keep the schema they were written with, so a column that somebody drops meanwhile is dropped from its
# rows too: as if they had been written before. A replacement of main by a commit is another matter. It would have
# replaced rows that came before it, and rows that come after it are checked against the new columns, so rows that were
# written for the old columns and lost some of them fit in neither order.


def lost_columns_conflict(base: Base, schema_ids: set[int]) -> Conflict | None:
    """A conflict if files of these schemas have columns that a replacement of main took away, or made narrower."""
    schemas = base.context.schemas
    for schema_id in sorted(schema_ids - {base.schema.id}):
        written = schemas.get(schema_id)
        if not any(_lost(written, written, base.schema)):
            continue
        numbers = range(schema_id + 1, base.schema.id + 1)
        schemas.fetch(numbers)
        before = written
        for after in filter(None, map(schemas.find, numbers)):
            # Whoever takes in a branch's schema goes on numbering in a fresh block; who drops columns does not.
            lost = next(_lost(written, before, after), None) if begins_block(before, after) else None
            if lost is not None:
                return Conflict(
                    "SCHEMA_CHANGED",
                    f"rows were written in version {schema_id} of the schema of '{base.context.title}', and a branch's "
                    f"schema took its place with version {after.id}, which does not hold their column '{lost.name}'",
                    "write the rows again, in the schema that the table has now.",
                )
            before = after
    return None


def _lost(written: TableSchema, before: TableSchema, after: TableSchema) -> Iterator[Field]:
    """The columns of a file that a version holds, and the next one not any more."""
    ours = {f.id for f in written.fields}
    there = {f.id: f for f in after.fields}
    for f in before.fields:
        kept = there.get(f.id)
        if f.id in ours and (kept is None or not is_wider(f.type, kept.type)):
            yield f
