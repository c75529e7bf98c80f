"""Encodes the entries of a commit into manifests and manifest lists, ready to be stored, and keeps their number bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from anabranch.format.records.data_file import FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.layout import manifest_list_name, manifest_name
from anabranch.format.records.manifest import concat_manifests, encode_manifest, roll_frame
from anabranch.format.records.manifest_list import encode_manifest_list
from anabranch.format.records.stats import partition_stats
from anabranch.format.rows.binary_row import arity, decode_row
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import DataType
from anabranch.kernel.log.context import TableContext
from anabranch.options import (
    MANIFEST_COMPRESSION,
    MANIFEST_FULL_COMPACTION_SIZE,
    MANIFEST_MERGE_MIN_COUNT,
    MANIFEST_TARGET_SIZE,
)

_FEW_ENTRIES = 2_000
_CODECS = {"zstd": "zstandard"}


@dataclass
class ManifestWriter:
    """Names and encodes the metadata files of one commit attempt.

    Nothing is stored until the caller passes `objects` to the storage.
    """

    context: TableContext
    schema: TableSchema
    options: Mapping[str, str]
    objects: dict[str, bytes] = field(default_factory=dict)
    """Encoded files by path."""

    def __post_init__(self) -> None:
        self._uuid = self.context.runtime.ids.uuid()
        self._manifests = 0
        self._lists = 0
        codec = MANIFEST_COMPRESSION.of(self.options)
        self._codec = _CODECS.get(codec, codec)

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Encode the entries of a commit, in order, into as few manifests as the target size allows."""
        if not entries:
            return []
        if len(entries) > _FEW_ENTRIES:
            return self.manifests_of(EntryFrame.from_entries(entries))
        data = encode_manifest(entries, codec=self._codec)
        return [
            self._describe(
                data,
                Counter(entry.partition for entry in entries),
                added=sum(entry.kind == FileKind.ADD for entry in entries),
                schema_id=max(entry.file.schema_id for entry in entries),
                buckets=[entry.bucket for entry in entries],
                levels=[entry.file.level for entry in entries],
            )
        ]

    def manifests_of(self, frame: EntryFrame) -> list[ManifestFileMeta]:
        """Encode many entries, in order, rolling at the target size."""
        target = MANIFEST_TARGET_SIZE.of(self.options)
        metas = []
        for part, data in roll_frame(frame, target_size=target, codec=self._codec):
            df = part.df
            partitions = df["partition"].value_counts()
            metas.append(
                self._describe(
                    data,
                    Counter(dict(zip(partitions["partition"], partitions["count"], strict=True))),
                    added=len(part.adds()),
                    schema_id=df["schema_id"].to_numpy().max().item(),
                    buckets=df["bucket"].unique().to_list(),
                    levels=df["level"].unique().to_list(),
                )
            )
        return metas

    def joined(self, metas: Sequence[ManifestFileMeta]) -> ManifestFileMeta:
        """Join manifests without deletions into one, without decoding entries."""
        names = [meta.file_name for meta in metas]
        raw = [self.context.manifests.raw(name) for name in names]
        return replace(
            self._store(concat_manifests(raw, paths=names, codec=self._codec), metas[0]),
            num_added_files=sum(meta.num_added_files for meta in metas),
            num_deleted_files=0,
            partition_stats=self._joined_stats(metas),
            schema_id=max(meta.schema_id for meta in metas),
            min_bucket=_bound(min, [meta.min_bucket for meta in metas]),
            max_bucket=_bound(max, [meta.max_bucket for meta in metas]),
            min_level=_bound(min, [meta.min_level for meta in metas]),
            max_level=_bound(max, [meta.max_level for meta in metas]),
            extra_files=(),
        )

    def manifest_list(self, metas: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Encode a manifest list and return its name and its size in bytes."""
        kept = tuple(metas)
        data = encode_manifest_list(kept, codec=self._codec)
        name = manifest_list_name(self._uuid, self._lists)
        self._lists += 1
        self.objects[self.context.layout.manifest_path(name)] = data
        self.context.manifests.remember_list(name, kept)
        return name, len(data)

    def _describe(
        self,
        data: bytes,
        partitions: Counter[bytes],
        *,
        added: int,
        schema_id: int,
        buckets: Sequence[int],
        levels: Sequence[int],
    ) -> ManifestFileMeta:
        types = [f.type for f in self.schema.partition_fields]
        rows = [decode_row(types, row, where=self.context.name) for row in partitions]
        nulls = tuple(
            sum(count for row, count in zip(rows, partitions.values(), strict=True) if row[i] is None)
            for i in range(len(types))
        )
        meta = ManifestFileMeta(
            file_name="",
            file_size=0,
            num_added_files=added,
            num_deleted_files=partitions.total() - added,
            partition_stats=replace(partition_stats(types, rows), null_counts=nulls),
            schema_id=schema_id,
            min_bucket=min(buckets),
            max_bucket=max(buckets),
            min_level=min(levels),
            max_level=max(levels),
        )
        return self._store(data, meta)

    def _store(self, data: bytes, meta: ManifestFileMeta) -> ManifestFileMeta:
        name = manifest_name(self._uuid, self._manifests)
        self._manifests += 1
        self.objects[self.context.layout.manifest_path(name)] = data
        self.context.manifests.remember(name, data)
        return replace(meta, file_name=name, file_size=len(data))

    def _joined_stats(self, metas: Sequence[ManifestFileMeta]) -> SimpleStats:
        types = [f.type for f in self.schema.partition_fields]
        slots = [_slots(meta, types, where=self.context.name) for meta in metas]
        joined = [_joined_slot(column) for column in zip(*slots, strict=True)]
        stats = partition_stats(types, [[slot.low for slot in joined], [slot.high for slot in joined]])
        return replace(stats, null_counts=tuple(slot.nulls for slot in joined))


@dataclass(frozen=True, slots=True)
class _Slot:
    """Statistics of one partition column in a manifest list; None is unknown."""

    low: Any = None
    high: Any = None
    nulls: int | None = None
    all_null: bool = False
    """No bounds because all values are null."""


def _slots(meta: ManifestFileMeta, types: Sequence[DataType], *, where: str) -> list[_Slot]:
    stats = meta.partition_stats
    if {arity(stats.min_values), arity(stats.max_values), len(stats.null_counts)} != {len(types)}:
        return [_Slot() for _ in types]
    lows, highs = (decode_row(types, row, where=where) for row in (stats.min_values, stats.max_values))
    entries = meta.num_added_files + meta.num_deleted_files
    return [
        _Slot(low, high, nulls, all_null=nulls == entries)
        for low, high, nulls in zip(lows, highs, stats.null_counts, strict=True)
    ]


def _joined_slot(slots: Sequence[_Slot]) -> _Slot:
    """Merge the statistics of several manifests; what is unknown in one is unknown in the result."""
    counts = [slot.nulls for slot in slots]
    nulls = None if None in counts else sum(count or 0 for count in counts)
    bounds = [bound for slot in slots if not slot.all_null for bound in (slot.low, slot.high)]
    if not bounds or any(bound is None or bound != bound for bound in bounds):  # noqa: PLR0124 - NaN
        return _Slot(nulls=nulls)
    return _Slot(min(bounds), max(bounds), nulls)


def _bound(choose: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None


# Keeps the number of manifests bounded by merging old ones when a commit writes its base list.
#
# Merging is what keeps planning and committing at constant cost over thousands of commits. Two ways, as
# in Paimon: small manifests are joined once there are enough of them (*minor*), and once enough
# bytes of small or deletion-carrying manifests have piled up, deleted entries are dropped for good (*full*).


def merge_manifests(metas: Sequence[ManifestFileMeta], writer: ManifestWriter) -> list[ManifestFileMeta]:
    """Return the manifests to put into the base list in place of `metas`, with entries in the same order."""
    target = MANIFEST_TARGET_SIZE.of(writer.options)
    pending = sum(meta.file_size for meta in metas if not _is_settled(meta, target))
    has_deletions = any(meta.num_deleted_files for meta in metas)
    if has_deletions and pending >= MANIFEST_FULL_COMPACTION_SIZE.of(writer.options):
        return _full(metas, writer, target)
    return _minor(metas, writer, target, MANIFEST_MERGE_MIN_COUNT.of(writer.options))


def without_files(
    metas: Sequence[ManifestFileMeta], entries: Sequence[ManifestEntry], writer: ManifestWriter
) -> list[ManifestFileMeta]:
    """Return the manifests that replace `metas` in a commit that adds previously deleted files again.

    Some readers treat a file as live if it is added anywhere and deleted nowhere. So the old entries of these files go,
    and base and delta list together add each file once. Other manifests stay as they are.
    """
    added = [entry for entry in entries if entry.kind == FileKind.ADD]
    again = EntryFrame.from_entries(added).df.select(IDENTITY)
    kept: list[ManifestFileMeta] = []
    for meta in metas:
        frame = writer.context.manifests.entries([meta]).df
        left = frame.join(again, on=IDENTITY, how="anti", maintain_order="left")
        if left.height == frame.height:
            kept.append(meta)
        elif left.height:
            kept += writer.manifests_of(EntryFrame(left))
    return kept


def _is_settled(meta: ManifestFileMeta, target: int) -> bool:
    """Whether merging would not improve the manifest."""
    return meta.file_size >= target and not meta.num_deleted_files


def _minor(
    metas: Sequence[ManifestFileMeta], writer: ManifestWriter, target: int, min_count: int
) -> list[ManifestFileMeta]:
    merged: list[ManifestFileMeta] = []
    group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        group.append(meta)
        size += meta.file_size
        if size >= target:
            merged += _join(group, writer)
            group, size = [], 0
    return merged + (_join(group, writer) if len(group) >= min_count else group)


def _join(group: Sequence[ManifestFileMeta], writer: ManifestWriter) -> list[ManifestFileMeta]:
    if len(group) == 1:
        return [*group]
    if not any(meta.num_deleted_files for meta in group):
        return [writer.joined(group)]
    return writer.manifests_of(writer.context.manifests.entries(group).merged())


def _full(metas: Sequence[ManifestFileMeta], writer: ManifestWriter, target: int) -> list[ManifestFileMeta]:
    """Drop every deleted entry; settled manifests with only live files stay as they are."""
    origins = [
        i for i, meta in enumerate(metas) for _ in range(meta.num_added_files + meta.num_deleted_files)
    ]
    entries = writer.context.manifests.entries(metas).df.with_columns(
        origin=pl.Series(origins, dtype=pl.Int64)
    )
    # Decided in entry order: a file may have been deleted and later added again.
    live = EntryFrame(entries).live().df
    left = dict(live["origin"].value_counts().iter_rows())
    result: list[ManifestFileMeta] = []
    remaining: list[int] = []

    def flush() -> None:
        rest = live.filter(pl.col("origin").is_in(remaining)).drop("origin")
        result.extend(writer.manifests_of(EntryFrame(rest)))
        remaining.clear()

    for i, meta in enumerate(metas):
        if _is_settled(meta, target) and left.get(i, 0) == meta.num_added_files:
            flush()
            result.append(meta)
        else:
            remaining.append(i)
    flush()
    return result
