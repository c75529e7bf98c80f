"""Whether one snapshot was built on another, checked by content rather than by consecutive ids.

Our snapshots name the stamp of their parent. Those of other engines do not, but what they took over is
in their base manifest list: exactly the live files of the snapshot before. Engines rewrite manifests when they commit,
so the files count, not the manifests' names; the names only spare reading them.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.properties import PARENT_PROPERTY

_COLUMNS = ("kind", *IDENTITY)


def is_built_on(manifests: ManifestStore, newer: Snapshot, older: Snapshot) -> bool:
    """Whether `newer` continues `older`.

    If the files that would tell are missing or damaged the answer is True, unless what `older` added is not in what
    `newer` took over: only the ids are left to go by.
    """
    if newer.id != older.id + 1:
        return False
    parent = newer.properties.get(PARENT_PROPERTY)
    if parent is not None:
        return parent == older.stamp
    try:
        before = manifests.of_snapshot(older)
        taken_over = manifests.read_list(newer.base_manifest_list)
        return hold_the_same(manifests, before, taken_over)
    except AnabranchError:
        return has_taken_over(manifests, newer, older) is not False


def has_taken_over(manifests: ManifestStore, newer: Snapshot, older: Snapshot) -> bool | None:
    """Whether the files that `older` added were there when `newer` was made; None if that cannot be told.

    It can where the snapshot before `older` is gone with its manifests: what is read is the delta of the one and
    the base of the other.
    """
    try:
        added = manifests.entries(manifests.read_list(older.delta_manifest_list), only=_COLUMNS).live()
        if not len(added):
            return None
        base = manifests.entries(manifests.read_list(newer.base_manifest_list), only=_COLUMNS).live()
    except AnabranchError:
        return None
    held = added.df.join(base.df, on=IDENTITY, how="semi").height
    return held == len(added) if held in (0, len(added)) else None


def hold_the_same(
    manifests: ManifestStore, left: Sequence[ManifestFileMeta], right: Sequence[ManifestFileMeta]
) -> bool:
    """Whether both sets of manifests have the same live files. Raises `CorruptTableError`."""
    names = {meta.file_name for meta in left}, {meta.file_name for meta in right}
    if names[0] == names[1]:
        return True
    only_left = [meta for meta in left if meta.file_name not in names[1]]
    only_right = [meta for meta in right if meta.file_name not in names[0]]
    if _sums(manifests, only_left).equals(_sums(manifests, only_right)):
        return True
    live_left, live_right = (
        manifests.entries(metas, only=_COLUMNS).live().df.select(IDENTITY).sort(IDENTITY)
        for metas in (left, right)
    )
    return live_left.equals(live_right)


def _sums(manifests: ManifestStore, metas: Sequence[ManifestFileMeta]) -> pl.DataFrame:
    """Return per file the number of ADDs minus DELETEs, where that is not zero."""
    entries = manifests.entries(metas, only=_COLUMNS).df
    sums = entries.group_by(IDENTITY).agg(count=(1 - 2 * pl.col("kind").cast(pl.Int64)).sum())
    return sums.filter(pl.col("count") != 0).sort(IDENTITY)
