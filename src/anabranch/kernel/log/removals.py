"""Records of destructive rollbacks, by which a snapshot built on a removed one is recognised as a leftover.

A record is written before the first snapshot is removed, never changed, and small: the stamps of removed snapshots,
names of their manifests and of a few of their data files. It lies beside the archive, for all branches of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from anabranch.errors import CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.layout import HISTORY_FOLDER, Layout
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.json_object import check_version
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.storage.protocol import Storage

UNKNOWABLE: Final = (CorruptTableError, NotFoundError, UnsupportedFeatureError)
"""Errors of files that are gone or damaged, so that nobody can say more. A store that does not answer is another matter: whoever
took that for an answer would build on what is no history, and everybody after it."""

_PREFIX = "removed-"
REMOVAL_VERSION = 1
_FILES = 64
"""Most data file names that a record holds, those of the newest removed snapshots."""


def record_removal(
    storage: Storage, layout: Layout, manifests: ManifestStore, target: Snapshot, removed: Sequence[Snapshot]
) -> None:
    """Record which snapshots are about to be removed for good. Idempotent.

    Args:
        target: the newest snapshot that stays.
        removed: newest first, at least one.
    """
    metas = [meta for snapshot in removed for meta in _delta(manifests, snapshot)]
    content = {
        "version": REMOVAL_VERSION,
        "branch": layout.branch_root,
        "target": {"id": target.id, "stamp": target.stamp},
        "removed": [{"id": snapshot.id, "stamp": snapshot.stamp} for snapshot in removed],
        "lists": [name for s in removed for name in (s.base_manifest_list, s.delta_manifest_list)],
        "manifests": [meta.file_name for meta in metas],
        "files": _file_names(manifests, metas),
    }
    name = f"{_PREFIX}{target.id}-{removed[0].stamp[:16]}"
    storage.put_if_absent(layout.history_path(name), json.dumps(content, indent=2).encode())


def is_after_removed(storage: Storage, manifests: ManifestStore, snapshot: Snapshot) -> bool:
    """Whether a snapshot was built on one that a destructive rollback removed."""
    parent = snapshot.properties.get(PARENT_PROPERTY)
    records = list(_records(storage))
    if not records:
        return False
    if parent is not None:
        return any(parent == one.get("stamp") for record in records for one in _list(record, "removed"))
    try:
        metas = manifests.read_list(snapshot.base_manifest_list)
        names = {meta.file_name for meta in metas}
        if any(name in names for record in records for name in _list(record, "manifests")):
            return True
        files = {name for record in records for name in _list(record, "files") if isinstance(name, str)}
        entries = manifests.entries(metas, only=("file_name",)).df
        return bool(entries["file_name"].is_in(sorted(files)).any())
    except UNKNOWABLE:
        return False


def was_removed(storage: Storage, layout: Layout, snapshot_id: int, newest: int) -> bool:
    """Whether a rollback is why a snapshot of that number of the branch is not there.

    A rollback leaves what it goes to. Where even that is not there, and was not removed by another, numbers were used again
    since, and what had them is gone for another reason.

    Args:
        storage: where the records are. Old ones do not name the branch.
        layout: of the branch.
        snapshot_id: the number.
        newest: that of the newest snapshot that is there; 0 if there is none.
    """
    root = layout.branch_root
    records = [record for record in _records(storage) if record.get("branch", root) == root]
    removed = {one.get("stamp") for record in records for one in _list(record, "removed")}
    return any(
        one.get("id") == snapshot_id
        for record in records
        if _is_target_there(record, newest, removed)
        for one in _list(record, "removed")
    )


def _is_target_there(record: dict[str, Any], newest: int, removed: set[Any]) -> bool:
    """Whether what a rollback went to may be there, or another rollback took it away."""
    target = record.get("target")
    if not isinstance(target, dict) or not isinstance(number := target.get("id"), int):
        return True  # what cannot be read tells nothing
    return number <= newest or target.get("stamp") in removed


def removed_stamps(storage: Storage) -> set[str]:
    """Return the stamps of the snapshots that rollbacks removed."""
    return {str(one.get("stamp")) for record in _records(storage) for one in _list(record, "removed")}


def removed_lists(storage: Storage) -> set[str]:
    """Return the names of manifest lists of snapshots that rollbacks removed, and which are not to be recovered."""
    return {name for record in _records(storage) for name in _list(record, "lists")}


def is_removal(path: str) -> bool:
    """Whether a file beside the archive is a removal record."""
    return path.rpartition("/")[2].startswith(_PREFIX)


def _records(storage: Storage) -> Iterator[dict[str, Any]]:
    for info in storage.list(HISTORY_FOLDER):
        if not is_removal(info.path):
            continue
        try:
            content = json.loads(storage.get(info.path))
        except (*UNKNOWABLE, ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            check_version(content.get("version"), REMOVAL_VERSION, path=info.path)
            yield content


def _list(record: dict[str, Any], key: str) -> list[Any]:
    found = record.get(key)
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, str if key != "removed" else dict)]


def _delta(manifests: ManifestStore, snapshot: Snapshot) -> Sequence[ManifestFileMeta]:
    try:
        return manifests.read_list(snapshot.delta_manifest_list)
    except UNKNOWABLE:
        return ()


def _file_names(manifests: ManifestStore, metas: Sequence[ManifestFileMeta]) -> list[str]:
    names: list[str] = []
    for meta in metas:
        if len(names) >= _FILES:
            break
        try:
            frame = manifests.entries([meta], only=("kind", "file_name")).df
        except UNKNOWABLE:
            continue
        names += frame.filter(frame["kind"] == 0)["file_name"].head(_FILES - len(names)).to_list()
    return names


# Whether one snapshot was built on another, checked by content rather than by consecutive ids.
#
# Our snapshots name the stamp of their parent. Those of other engines do not, but what they took over is
# in their base manifest list: exactly the live files of the snapshot before. Engines rewrite manifests when they commit,
# so the files count, not the manifests' names; the names only spare reading them.

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
    except UNKNOWABLE:
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
    except UNKNOWABLE:
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
