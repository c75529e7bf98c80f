"""Deletes many files, and folders that become empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.engine import Engine
from anabranch.kernel.log.context import TableContext
from anabranch.storage.protocol import Storage

_FILES_AT_ONCE = 1_000


def delete_files(context: TableContext, paths: Sequence[str], engine: Engine) -> None:
    """Delete files in bounded batches, in any order; missing ones are skipped."""
    batches = [
        (context.storage, tuple(paths[start : start + _FILES_AT_ONCE]))
        for start in range(0, len(paths), _FILES_AT_ONCE)
    ]
    for _ in engine.map(_delete, batches, name=f"delete files of {context.title}"):
        continue


def delete_empty_folders(context: TableContext, data_files: Iterable[str], depth: int) -> None:
    """Remove the folders of buckets, and of partitions above them, that became empty.

    Args:
        data_files: paths of files that were deleted.
        depth: number of partition keys.
    """
    folders = {path.rpartition("/")[0] for path in data_files}
    for _ in range(depth + 1):
        for folder in sorted(folders):
            context.storage.delete_empty_folder(folder)
        folders = {folder.rpartition("/")[0] for folder in folders} - {""}


def _delete(batch: tuple[Storage, tuple[str, ...]]) -> int:
    storage, paths = batch
    storage.delete_many(paths)
    return len(paths)
