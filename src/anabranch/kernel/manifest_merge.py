"""Keeping the number of manifests bounded: old ones are merged when a commit writes its base list.

Merging is what keeps planning and committing at constant cost over thousands of commits. Two ways, as
Paimon has them: small manifests are joined once there are enough of them (*minor*), and once enough
bytes of small or deletion-carrying manifests have piled up, deleted entries are dropped for good (*full*).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.kernel.manifest_writer import ManifestWriter
from anabranch.options import MANIFEST_FULL_COMPACTION_SIZE, MANIFEST_MERGE_MIN_COUNT, MANIFEST_TARGET_SIZE
from anabranch.spec.data_file import ManifestFileMeta
from anabranch.spec.entry_frame import IDENTITY, EntryFrame
from anabranch.spec.manifest import concat_manifests


def merge_manifests(metas: Sequence[ManifestFileMeta], writer: ManifestWriter) -> list[ManifestFileMeta]:
    """The manifests to put into the base list in place of `metas`, in the same order of entries."""
    target = MANIFEST_TARGET_SIZE.of(writer.options)
    settled = 0
    while (
        settled < len(metas) and metas[settled].file_size >= target and not metas[settled].num_deleted_files
    ):
        settled += 1
    pending = sum(meta.file_size for meta in metas[settled:])
    has_deletions = any(meta.num_deleted_files for meta in metas)
    if has_deletions and pending >= MANIFEST_FULL_COMPACTION_SIZE.of(writer.options):
        return _full(metas, writer)
    return _minor(metas, writer, target, MANIFEST_MERGE_MIN_COUNT.of(writer.options))


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
    manifests = writer.context.manifests
    if not any(meta.num_deleted_files for meta in group):
        names = [meta.file_name for meta in group]
        return [writer.merged(concat_manifests([manifests.raw(name) for name in names], paths=names), group)]
    return writer.manifests_of(manifests.entries(group).merged())


def _full(metas: Sequence[ManifestFileMeta], writer: ManifestWriter) -> list[ManifestFileMeta]:
    """Drop every deleted entry; large manifests that hold none of them stay as they are."""
    manifests = writer.context.manifests
    target = MANIFEST_TARGET_SIZE.of(writer.options)
    deletes = manifests.entries([meta for meta in metas if meta.num_deleted_files]).deletes().df
    result: list[ManifestFileMeta] = []
    remaining: list[EntryFrame] = []

    def flush() -> None:
        result.extend(writer.manifests_of(EntryFrame.concat(remaining)))
        remaining.clear()

    for meta in metas:
        adds = manifests.entries([meta]).adds().df
        kept = adds.join(deletes, on=IDENTITY, how="anti", maintain_order="left")
        if meta.file_size >= target and not meta.num_deleted_files and kept.height == adds.height:
            flush()
            result.append(meta)
        else:
            remaining.append(EntryFrame(kept))
    flush()
    return result
