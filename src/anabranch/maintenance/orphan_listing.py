"""The files of a table that may be orphans: where a table keeps files, and which of them may never go.

Looked at are the folders of buckets at the depth of the table's partitions, and the folders of manifests,
index files and statistics: every file in them is the table's. Of the folders of refs only what no engine
reads: unfinished writes, and in ``snapshot/`` everything that is neither a snapshot nor a hint. Whatever else lies
in the table's folder is somebody's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

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


def old_files(
    context: TableContext, partition_keys: Sequence[str], modified_until: int, engine: Engine
) -> pl.DataFrame:
    """All files that may be orphans and were stored until a moment, with the columns of `COLUMNS`.

    Args:
        context: the table.
        partition_keys: its partition columns, in order.
        modified_until: epoch milliseconds.
        engine: what lists the folders of partitions.
    """
    rows: list[tuple[str, str, str, int]] = []
    for folder, kind, is_orphan in _metadata_folders(context):
        infos = context.storage.list(folder, include_temporary=True)
        rows += _rows([info for info in infos if is_orphan(info.path)], kind, modified_until)
    prefixes = [f"{escape(key)}=" for key in partition_keys]
    top = _children(context.storage, "", prefixes[0]) if prefixes else [""]
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
    folders = [*part.folders]
    for prefix in part.prefixes:
        folders = [child for folder in folders for child in _children(part.storage, folder, prefix)]
    buckets = [
        bucket
        for folder in folders
        for bucket in part.storage.list_folders(folder)
        if bucket_of_folder(bucket) is not None
    ]
    rows: list[tuple[str, str, str, int]] = []
    for bucket in buckets:
        infos = part.storage.list(bucket, include_temporary=True)
        rows += _rows(infos, DATA, part.modified_until)
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _children(storage: Storage, folder: str, prefix: str) -> list[str]:
    return [child for child in storage.list_folders(folder) if child.rpartition("/")[2].startswith(prefix)]


def _metadata_folders(context: TableContext) -> Iterator[tuple[str, str, Callable[[str], bool]]]:
    """Each folder, the kind of its files, and which of them may be orphans."""
    for folder, kind in (
        (MANIFEST_FOLDER, MANIFEST),
        (INDEX_FOLDER, INDEX),
        (STATISTICS_FOLDER, STATISTICS),
    ):
        yield folder, kind, _is_any
    yield BRANCH_FOLDER, TEMPORARY, is_temporary
    yield HISTORY_FOLDER, TEMPORARY, is_temporary
    folders = context.storage.list_folders(BRANCH_FOLDER)
    branches = [name for folder in folders if (name := branch_name_of(folder)) is not None]
    for layout in (Layout(), *map(Layout, branches)):
        yield layout.snapshot_folder, SNAPSHOT, _is_no_snapshot
        for name in ("schema", "tag", "consumer", "savepoint", "ledger"):
            yield layout.branch_file_path(name), TEMPORARY, is_temporary
        if layout.branch_root:
            yield layout.branch_root, TEMPORARY, is_temporary


def _is_any(_: str) -> bool:
    return True


def _is_no_snapshot(path: str) -> bool:
    return snapshot_id_of(path) is None and path.rpartition("/")[2] not in _HINTS


def _rows(infos: Iterable[ObjectInfo], kind: str, modified_until: int) -> list[tuple[str, str, str, int]]:
    """Those of the files that are old enough."""
    return [
        (info.path, info.path.rpartition("/")[2], TEMPORARY if is_temporary(info.path) else kind, info.size)
        for info in infos
        if info.modified_millis <= modified_until
    ]
