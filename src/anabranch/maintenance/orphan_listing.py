"""Lists a table's files that may be orphans: where a table keeps files, and which of them may never be removed.

Listed are the bucket folders at the depth of the table's partitions, and the folders of manifests,
index files and statistics. Of the ref folders, only what no engine reads: unfinished writes, and in ``snapshot/``
what is neither a snapshot nor a hint. Anything else in the table's folder belongs to somebody else; so does a file
in these folders whose name no engine of the format uses. Linked folders are not followed: their targets
need not be the table's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.engine import Engine
from anabranch.forked import may_use_polars
from anabranch.format.records.layout import (
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
from anabranch.format.rows.partition_path import escape
from anabranch.kernel.expiry.candidates import COLUMNS, DATA, INDEX, MANIFEST, STATISTICS
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import stream
from anabranch.storage.links import is_link
from anabranch.storage.names import is_temporary
from anabranch.storage.protocol import ObjectInfo, Storage

SNAPSHOT, TEMPORARY = "snapshot", "temporary"

_FOLDERS_AT_ONCE = 256
_HINTS = ("LATEST", "EARLIEST")
_OTHERS: Final = ("schema", "tag", "consumer", "savepoint", "ledger")
"""Folders of a branch in which only temporary files may be orphans."""

FOREIGN = "foreign"
"""Kind of the files and linked folders that are left alone."""

_NAMES: Final = {
    DATA: re.compile(r"\.?(data|changelog)-.+"),
    MANIFEST: re.compile(r"\.?(index-)?manifest-.+"),
    INDEX: re.compile(r"\.?index-.+|.*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.*"),
    STATISTICS: re.compile(r"\.?stat(istic)?s?-.+"),
    SNAPSHOT: re.compile(r"\.?snapshot-.+|\.?(LATEST|EARLIEST).+"),
}
"""Names that engines of the format use; with a dot, Hadoop's checksum files."""


def old_files(
    context: TableContext, partition_keys: Sequence[str], modified_until: int, engine: Engine
) -> pl.DataFrame:
    """Return all files that may be orphans and were stored until a moment, with the columns of `COLUMNS`.

    Files that are left alone are included, under the kind `FOREIGN`.

    Args:
        partition_keys: the table's, in order.
        modified_until: epoch milliseconds.
        engine: lists the folders of partitions.
    """
    may_use_polars()
    rows = _old_metadata(context, modified_until)
    prefixes = [f"{escape(key)}=" for key in partition_keys]
    top = _children(context.storage, "", prefixes[0]) if prefixes else [""]
    rows += [_left_alone(folder) for folder in top if is_link(context.storage, folder)]
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
    """Partition folders to list, with the prefixes of the names of the folders below them."""

    storage: Storage
    folders: tuple[str, ...]
    prefixes: tuple[str, ...]
    modified_until: int


def _list_data(part: _Part) -> pl.DataFrame:
    rows: list[tuple[str, str, str, int]] = []

    def own(folders: Iterable[str]) -> list[str]:
        found = {folder: is_link(part.storage, folder) for folder in folders}
        rows.extend(_left_alone(folder) for folder, is_link in found.items() if is_link)
        return [folder for folder, is_link in found.items() if not is_link]

    folders = [folder for folder in part.folders if not is_link(part.storage, folder)]
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


def _left_alone(folder: str) -> tuple[str, str, str, int]:
    return folder, folder.rpartition("/")[2], FOREIGN, 0


def _old_metadata(context: TableContext, modified_until: int) -> list[tuple[str, str, str, int]]:
    """The files besides data files, of all branches; one listing a branch."""
    storage = context.storage

    def old(
        folder: str, kinds: Mapping[str, str], *, recursive: bool = False
    ) -> list[tuple[str, str, str, int]]:
        """Files in a folder, and below it, by the kind of the folder they lie in; links are left alone."""
        links = [_left_alone(inner) for inner in kinds if is_link(storage, inner)]
        if folder in kinds and is_link(storage, folder):
            return links
        by_kind: dict[str, list[ObjectInfo]] = {}
        for info in storage.list(folder, recursive=recursive, include_temporary=True):
            kind = kinds.get(info.path.rpartition("/")[0])
            if kind is not None:
                by_kind.setdefault(kind, []).append(info)
        return [
            *links,
            *(row for kind, infos in by_kind.items() for row in _rows(infos, kind, modified_until)),
        ]

    def of_branch(layout: Layout) -> list[tuple[str, str, str, int]]:
        return old(layout.branch_root, {**_folders(layout), layout.branch_root: TEMPORARY}, recursive=True)

    own = {
        MANIFEST_FOLDER: MANIFEST,
        INDEX_FOLDER: INDEX,
        STATISTICS_FOLDER: STATISTICS,
        BRANCH_FOLDER: TEMPORARY,
        HISTORY_FOLDER: TEMPORARY,
        **_folders(Layout()),
    }
    rows = [row for folder, kind in own.items() for row in old(folder, {folder: kind})]
    if is_link(storage, BRANCH_FOLDER):
        return rows
    names = (
        branch_name_of(folder)
        for folder in storage.list_folders(BRANCH_FOLDER)
        if not is_link(storage, folder)
    )
    branches = [Layout(name) for name in names if name is not None]
    return [*rows, *(row for found in stream(of_branch, branches) for row in found)]


def _folders(layout: Layout) -> dict[str, str]:
    """The folders of a branch by path, and the kind of the files in each that may be orphans."""
    others = {layout.branch_file_path(name): TEMPORARY for name in _OTHERS}
    return {layout.snapshot_folder: SNAPSHOT, **others}


def _rows(infos: Iterable[ObjectInfo], kind: str, modified_until: int) -> list[tuple[str, str, str, int]]:
    """Return the files that may be orphans and are old enough."""
    return [
        (info.path, info.path.rpartition("/")[2], found, info.size)
        for info in infos
        if info.modified_millis <= modified_until and (found := _kind_of(info.path, kind)) is not None
    ]


def _kind_of(path: str, kind: str) -> str | None:
    """Return the kind of a file in a folder of that kind; None if it belongs to the table, or to somebody else."""
    if is_temporary(path):
        return TEMPORARY
    if kind == TEMPORARY:
        return None
    name = path.rpartition("/")[2]
    if kind == SNAPSHOT and (snapshot_id_of(path) is not None or name in _HINTS):
        return None
    return kind if _NAMES[kind].fullmatch(name) else FOREIGN
