"""Queue state of a base: the end of each bucket, and the number of buckets of each partition.

Sequence numbers are assigned by the commit, not by the writer, because only the commit knows its
base. The state is kept between commits and brought up to date from the snapshots in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base
from anabranch.kernel.scan.partitions import PartitionKey, key_of_row

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
