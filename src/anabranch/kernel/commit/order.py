"""Sequence numbers for files that merges, rollbacks or replacements add to queues, keeping each bucket's row order.

Added files get numbers after the last of their bucket, as appended ones do. Where a partition is replaced,
files may be live on both sides and keep their numbers; then a file added before one of them must not get
a number after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.scan.partitions import (
    PartitionKey,
    key_of_row,
    keys_of_rows,
    of_partitions,
    partition_text,
)

# Queue state of a base: the end of each bucket, and the number of buckets of each partition.
#
# Sequence numbers are assigned by the commit, not by the writer, because only the commit knows its
# base. The state is kept between commits and brought up to date from the snapshots in between.

_WEIGHT = 200  # approximate bytes per bucket or partition


def continue_sequences(base: Base, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Shift the sequence numbers of added files to follow the last row of their bucket on `base`."""
    ends = dict(_queues(base).ends)
    shifted = []
    for entry in entries:
        if entry.kind != FileKind.ADD:
            shifted.append(entry)
            continue
        key = key_of_row(entry.partition, base.schema), entry.bucket
        first = ends.get(key, -1) + 1
        end = first + entry.file.row_count - 1
        ends[key] = max(end, first - 1)
        file = replace(entry.file, min_sequence_number=first, max_sequence_number=end)
        shifted.append(replace(entry, file=file))
    return shifted


def bucket_counts(base: Base) -> Mapping[PartitionKey, int]:
    """Return the number of buckets of each partition's newest files, live or not."""
    return _queues(base).counts


@dataclass(frozen=True, slots=True)
class _Queues:
    """Immutable queue state: never changed once it is in the cache."""

    ends: Mapping[tuple[PartitionKey, int], int] = field(default_factory=dict)
    """Highest sequence number ever used, by partition and bucket."""
    counts: Mapping[PartitionKey, int] = field(default_factory=dict)

    def with_files(self, added: pl.DataFrame, schema: TableSchema) -> _Queues:
        """Return the state with files that later snapshots added, in their order."""
        ends, counts = dict(self.ends), dict(self.counts)
        buckets = added.group_by("partition", "bucket", maintain_order=True).agg(
            pl.col("max_sequence_number").max(), pl.col("total_buckets").last()
        )
        for partition, bucket, last, count in buckets.iter_rows():
            key = key_of_row(partition, schema)
            ends[key, bucket] = max(ends.get((key, bucket), -1), last)
            counts[key] = count
        return _Queues(ends, counts)


@dataclass(frozen=True, slots=True)
class _Known:
    snapshot_id: int
    stamp: str
    queues: _Queues


def _queues(base: Base) -> _Queues:
    context, snapshot = base.context, base.snapshot
    if snapshot is None:
        return _Queues()
    cache_key = (context.storage.url, "queues", context.branch_uuid)
    known: _Known | None = context.cache.get(cache_key)
    queues = None if known is None else _advanced(base, known, snapshot)
    if queues is None:
        manifests = context.manifests
        added = manifests.entries(manifests.of_snapshot(snapshot)).adds().df
        queues = _Queues().with_files(added, base.schema)
    weight = _WEIGHT * (1 + len(queues.ends) + len(queues.counts))
    context.cache.put(cache_key, _Known(snapshot.id, snapshot.stamp, queues), weight)
    return queues


def _advanced(base: Base, known: _Known, snapshot: Snapshot) -> _Queues | None:
    """Bring cached state forward to `snapshot`; None if history does not lead there or expires meanwhile."""
    if known.snapshot_id > snapshot.id:
        return None
    context = base.context
    later = []
    for found in context.snapshots.down_to(snapshot, known.snapshot_id):
        if found.id == known.snapshot_id:
            if found.stamp != known.stamp:
                return None
            break
        later.append(found)
    else:
        return None
    queues = known.queues
    try:
        for delta in context.manifests.deltas(later[::-1]):
            queues = queues.with_files(delta.adds().df, base.schema)
    except CorruptTableError:
        return None
    return queues


Place = tuple[PartitionKey, int]


def in_order(base: Base, added: Sequence[ManifestEntry], keeping: Iterable[Place]) -> list[ManifestEntry]:
    """Renumber ADD entries of a queue on the base, bucket by bucket in the branch's order.

    Args:
        base: the base they are added to.
        added: with the branch's numbers.
        keeping: buckets whose entries keep their numbers.
    """
    kept = set(keeping)
    ordered = sorted(added, key=lambda entry: entry.file.min_sequence_number)
    moved: list[ManifestEntry] = []
    still: list[ManifestEntry] = []
    for entry in ordered:
        place = key_of_row(entry.partition, base.schema), entry.bucket
        (still if place in kept else moved).append(entry)
    return [*continue_sequences(base, moved), *still]


def ordered_as(
    base: Base, added: Sequence[ManifestEntry], wanted: pl.DataFrame
) -> list[ManifestEntry] | Conflict:
    """Number ADD entries so that each bucket of a queue, with its remaining files, has the order of a wanted state.

    Nearly always they keep their numbers from there. But remaining files may have got others, when they were removed
    and came back with a merge, or when they are a branch's.

    Args:
        base: the base they are added to.
        added: the files of the wanted state that the base lacks.
        wanted: all live files of that state.
    """
    queued = wanted.filter(pl.col("total_buckets") > 0)
    live = base.live.df.select(*IDENTITY, "min_sequence_number")
    stays = queued.join(live, on=IDENTITY, suffix="_now")
    moved = stays.filter(pl.col("min_sequence_number_now") != pl.col("min_sequence_number"))
    if moved.is_empty():
        return [*added]
    at_tail: set[Place] = set()
    keys = {*keys_of_rows(moved["partition"], base.schema)}
    for key, files in of_partitions(EntryFrame(queued), keys, base.schema).items():
        numbered = numbering(files, live)
        if None in numbered.values():
            return Conflict(
                "ORDER_CHANGED",
                f"the rows in {partition_text(files.item(0, 'partition'), base.schema)} cannot be brought into that order: "
                "files that stay have got other places since",
                "compact the table fully, which rewrites them, and do it again.",
            )
        at_tail |= {(key, bucket) for bucket, is_at_tail in numbered.items() if is_at_tail}
    places = {(key_of_row(entry.partition, base.schema), entry.bucket) for entry in added}
    return in_order(base, added, places - at_tail)


def numbering(branch: pl.DataFrame, main: pl.DataFrame) -> Mapping[int, bool | None]:
    """Decide per bucket how to number files added to a replaced partition of a queue; empty for other tables.

    Args:
        branch: the live files the partition will have, with their numbers on the branch.
        main: its live files on main, and perhaps others.

    Returns:
        True to number after the last, False to keep the branch's numbers; None if neither keeps the order.
    """
    ours = dict(main.select("file_name", "min_sequence_number").iter_rows())
    found: dict[int, bool | None] = {}
    branch = branch.filter(pl.col("total_buckets") > 0)
    for bucket in branch["bucket"].unique().to_list():
        files = branch.filter(pl.col("bucket") == bucket).sort("min_sequence_number", maintain_order=True)
        numbered = [*files.select("file_name", "min_sequence_number").iter_rows()]
        stays = [name in ours for name, _ in numbered]
        there = [ours[name] for name, _ in numbered if name in ours]
        if stays == sorted(stays, reverse=True) and there == sorted(there):
            found[bucket] = True
        else:
            alike = all(ours[name] == number for name, number in numbered if name in ours)
            found[bucket] = False if alike else None
    return found
