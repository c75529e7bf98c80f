"""Sequence numbers of queue tables: each commit continues where the bucket ends on its base.

They are assigned by the commit, not by the writer, because only the commit knows what it lands on. The
ends of all buckets are kept between commits and brought up to date from the snapshots in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.kernel.base import Base
from anabranch.kernel.context import TableContext
from anabranch.spec.binary_row import decode_row
from anabranch.spec.data_file import FileKind, ManifestEntry
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot

BucketKey = tuple[tuple[Any, ...], int]
"""Partition values and bucket: byte-different rows may spell the same partition."""


@dataclass(frozen=True, slots=True)
class _Ends:
    snapshot_id: int
    stamp: str
    last: dict[BucketKey, int]


def continue_sequences(base: Base, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Shift the sequence numbers of added files to follow the last row of their bucket on `base`."""
    last = dict(_bucket_ends(base))
    shifted = []
    for entry in entries:
        if entry.kind != FileKind.ADD:
            shifted.append(entry)
            continue
        key = _key(base.schema, entry.partition, entry.bucket)
        first = last.get(key, -1) + 1
        end = first + entry.file.row_count - 1
        last[key] = max(end, first - 1)
        file = replace(entry.file, min_sequence_number=first, max_sequence_number=end)
        shifted.append(replace(entry, file=file))
    return shifted


def _bucket_ends(base: Base) -> dict[BucketKey, int]:
    context, snapshot = base.context, base.snapshot
    if snapshot is None:
        return {}
    cache_key = (context.storage.url, "bucket-ends", context.branch_uuid)
    known: _Ends | None = context.cache.get(cache_key)
    ends = None if known is None else _advanced(context, base, known, snapshot)
    if ends is None:
        manifests = context.manifests
        ends = _raised({}, base.schema, manifests.entries(manifests.of_snapshot(snapshot)).adds().df)
    context.cache.put(cache_key, _Ends(snapshot.id, snapshot.stamp, ends), 100 * (1 + len(ends)))
    return ends


def _advanced(
    context: TableContext, base: Base, known: _Ends, snapshot: Snapshot
) -> dict[BucketKey, int] | None:
    """The ends brought from the snapshot they are known at to `snapshot`; None if history does not lead there."""
    if known.snapshot_id > snapshot.id:
        return None
    ends = known.last
    for later in context.snapshots.backwards(snapshot):
        if later.id == known.snapshot_id:
            return ends if later.stamp == known.stamp else None
        delta = context.manifests.entries(context.manifests.read_list(later.delta_manifest_list))
        ends = _raised(ends, base.schema, delta.adds().df)
    return None


def _raised(ends: dict[BucketKey, int], schema: TableSchema, frame: pl.DataFrame) -> dict[BucketKey, int]:
    raised = dict(ends)
    for partition, bucket, last in (
        frame.group_by("partition", "bucket").agg(pl.col("max_sequence_number").max()).iter_rows()
    ):
        key = _key(schema, partition, bucket)
        raised[key] = max(raised.get(key, -1), last)
    return raised


def _key(schema: TableSchema, partition: bytes, bucket: int) -> BucketKey:
    types = [f.type for f in schema.partition_fields]
    return decode_row(types, partition, where="a manifest entry's partition"), bucket
