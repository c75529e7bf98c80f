"""The files of a table that may be orphans: where a table keeps files, and which of them may never go.

Looked at are the folders of buckets at the depth of the table's partitions, and the folders of manifests,
index files and statistics. Of the folders of refs only what no engine reads: unfinished writes, and in ``snapshot/``
what is neither a snapshot nor a hint. Whatever else lies in the table's folder is somebody's own business; so is a file
in these folders whose name no engine of the format gives. Folders that are links are not followed: what they lead to
need not be the table's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.arrow.files import native_path
from anabranch.engine import Engine
from anabranch.kernel.context import TableContext
from anabranch.kernel.expiry.candidates import COLUMNS, DATA, INDEX, MANIFEST, STATISTICS
from anabranch.spec.layout import (
    BRANCH_FOLDER,
    HISTORY_FOLDER,
    INDEX_FOLDER,
    MANIFEST_FOLDER,
    STATISTICS_FOLDER,
    Layout,
    branch_name_of,
    bucket_of_folder,
    snapshot_id_of,
)
from anabranch.spec.partition_path import escape
from anabranch.storage.names import is_temporary
from anabranch.storage.protocol import ObjectInfo, Storage

SNAPSHOT, TEMPORARY = "snapshot", "temporary"

_FOLDERS_AT_ONCE = 256
_HINTS = ("LATEST", "EARLIEST")

FOREIGN = "foreign"
"""Kind of files, and of folders that are links, which are left alone."""

_NAMES: Final = {
    DATA: re.compile(r"\.?(data|changelog)-.+"),
    MANIFEST: re.compile(r"\.?(index-)?manifest-.+"),
    INDEX: re.compile(r"\.?index-.+|.*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*"),
    STATISTICS: re.compile(r"\.?stat(istic)?s?-.+"),
    SNAPSHOT: re.compile(r"\.?snapshot-.+|\.?(LATEST|EARLIEST).+"),
}
"""Names that engines of the format give; with a dot those of checksums that Hadoop puts beside files."""


def old_files(
    context: TableContext, partition_keys: Sequence[str], modified_until: int, engine: Engine
) -> pl.DataFrame:
    """All files that may be orphans and were stored until a moment, with the columns of `COLUMNS`.

    What is left alone is among them, under the kind `FOREIGN`.

    Args:
        context: the table.
        partition_keys: its partition columns, in order.
        modified_until: epoch milliseconds.
        engine: what lists the folders of partitions.
    """
    rows: list[tuple[str, str, str, int]] = []
    for folder, kind in _metadata_folders(context):
        if _is_link(context.storage, folder):
            rows.append(_left_alone(folder))
            continue
        infos = context.storage.list(folder, include_temporary=True)
        rows += _rows(infos, kind, modified_until)
    prefixes = [f"{escape(key)}=" for key in partition_keys]
    top = _children(context.storage, "", prefixes[0]) if prefixes else [""]
    rows += [_left_alone(folder) for folder in top if _is_link(context.storage, folder)]
    parts = [
        _Part(
            context.storage, tuple(top[start : start + _FOLDERS_AT_ONCE]), tuple(prefixes[1:]), modified_until
        )
        for start in range(0, len(top), _FOLDERS_AT_ONCE)
    ]
    frames = [pl.DataFrame(rows, schema=COLUMNS, orient="row")]
    frames += engine.map(_list_data, parts, name=f"list files of {context.title}")
    return pl.concat(frames)


@dataclass(frozen=True, slots=True)
class _Part:
    """Partition folders to list, with the beginnings of the names of the folders below them."""

    storage: Storage
    folders: tuple[str, ...]
    prefixes: tuple[str, ...]
    modified_until: int


def _list_data(part: _Part) -> pl.DataFrame:
    rows: list[tuple[str, str, str, int]] = []

    def own(folders: Iterable[str]) -> list[str]:
        found = {folder: _is_link(part.storage, folder) for folder in folders}
        rows.extend(_left_alone(folder) for folder, is_link in found.items() if is_link)
        return [folder for folder, is_link in found.items() if not is_link]

    folders = [folder for folder in part.folders if not _is_link(part.storage, folder)]
    for prefix in part.prefixes:
        folders = own(child for folder in folders for child in _children(part.storage, folder, prefix))
    buckets = own(
        bucket
        for folder in folders
        for bucket in part.storage.list_folders(folder)
        if bucket_of_folder(bucket) is not None
    )
    for bucket in buckets:
        infos = part.storage.list(bucket, include_temporary=True)
        rows += _rows(infos, DATA, part.modified_until)
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _children(storage: Storage, folder: str, prefix: str) -> list[str]:
    return [child for child in storage.list_folders(folder) if child.rpartition("/")[2].startswith(prefix)]


def _is_link(storage: Storage, folder: str) -> bool:
    """Whether a folder is a link: where it leads, others may keep their files."""
    path = native_path(storage, folder) if folder else None
    return path is not None and os.path.islink(path)  # noqa: PTH114 - no Path here


def _left_alone(folder: str) -> tuple[str, str, str, int]:
    return folder, folder.rpartition("/")[2], FOREIGN, 0


def _metadata_folders(context: TableContext) -> Iterator[tuple[str, str]]:
    """Each folder, and the kind of the files in it that may be orphans."""
    yield MANIFEST_FOLDER, MANIFEST
    yield INDEX_FOLDER, INDEX
    yield STATISTICS_FOLDER, STATISTICS
    yield BRANCH_FOLDER, TEMPORARY
    yield HISTORY_FOLDER, TEMPORARY
    if _is_link(context.storage, BRANCH_FOLDER):
        return
    folders = context.storage.list_folders(BRANCH_FOLDER)
    folders = (folder for folder in folders if not _is_link(context.storage, folder))
    branches = [name for folder in folders if (name := branch_name_of(folder)) is not None]
    for layout in (Layout(), *map(Layout, branches)):
        yield layout.snapshot_folder, SNAPSHOT
        for name in ("schema", "tag", "consumer", "savepoint", "ledger"):
            yield layout.branch_file_path(name), TEMPORARY
        if layout.branch_root:
            yield layout.branch_root, TEMPORARY


def _rows(infos: Iterable[ObjectInfo], kind: str, modified_until: int) -> list[tuple[str, str, str, int]]:
    """Those of the files that may be orphans and are old enough."""
    return [
        (info.path, info.path.rpartition("/")[2], found, info.size)
        for info in infos
        if info.modified_millis <= modified_until and (found := _kind_of(info.path, kind)) is not None
    ]


def _kind_of(path: str, kind: str) -> str | None:
    """What a file in a folder of that kind is; None if it is part of the table, or none of our business."""
    if is_temporary(path):
        return TEMPORARY
    if kind == TEMPORARY:
        return None
    name = path.rpartition("/")[2]
    if kind == SNAPSHOT and (snapshot_id_of(path) is not None or name in _HINTS):
        return None
    return kind if _NAMES[kind].fullmatch(name) else FOREIGN
