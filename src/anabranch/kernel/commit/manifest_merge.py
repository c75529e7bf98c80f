"""Keeps the number of manifests bounded by merging old ones when a commit writes its base list.

Merging is what keeps planning and committing at constant cost over thousands of commits. Two ways, as
in Paimon: small manifests are joined once there are enough of them (*minor*), and once enough
bytes of small or deletion-carrying manifests have piled up, deleted entries are dropped for good (*full*).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.format.records.data_file import FileKind, ManifestEntry, ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.kernel.commit.manifest_writer import ManifestWriter
from anabranch.options import MANIFEST_FULL_COMPACTION_SIZE, MANIFEST_MERGE_MIN_COUNT, MANIFEST_TARGET_SIZE


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
