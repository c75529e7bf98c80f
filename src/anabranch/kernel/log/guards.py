"""Checks that refuse tables and snapshots that use unsupported features, before anything is read or written."""

from __future__ import annotations

import polars as pl

from anabranch.errors import CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.avro.files import read_frame
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_main_known
from anabranch.kernel.log.main_pointer import seal_of

_MAIN_POINTER = "MAIN-BRANCH"


def check_main_readable(context: TableContext) -> None:
    """Refuse a table with a Paimon main-branch pointer file.

    Only snapshots of Paimon 0.9 before its release wrote that; no release reads it. Raises `UnsupportedFeatureError`.
    """
    if context.storage.exists(_MAIN_POINTER):
        raise UnsupportedFeatureError(
            f"table '{context.title}' has a {_MAIN_POINTER} file, which names another branch as main",
            feature="main-branch-pointer",
            hint="bring the branch into main with the engine that wrote the file.",
        )


def check_snapshot_readable(context: TableContext, snapshot: Snapshot) -> None:
    """Refuse a snapshot that would give wrong rows if read by its data files alone, or in the schemas of this context.

    Raises:
        CorruptTableError: it is the seal of a former main, and the record of the current main was lost.
        UnsupportedFeatureError: an index says that some rows are deleted or replaced.
        NotFoundError: the table was dropped and created again since it was opened.
    """
    if context.is_replaced(snapshot):
        raise NotFoundError(
            f"'{context.title}' was dropped and created again since it was opened",
            hint="open the table again to read the new one.",
        )
    check_main_known(context, seal_of(snapshot))
    _check_no_row_index(context, snapshot)


def check_snapshot_writable(context: TableContext, snapshot: Snapshot) -> None:
    """Raise `UnsupportedFeatureError` if a commit would leave an index behind that no longer fits."""
    _check_no_row_index(context, snapshot)
    for kind in _live_index_types(context, snapshot):
        raise UnsupportedFeatureError(
            f"snapshot {snapshot.id} of '{context.title}' has an index of type {kind}, which a commit would "
            "make stale",
            feature="index-manifest",
            hint="drop the index with the engine that made it, or write with that engine.",
        )


def _check_no_row_index(context: TableContext, snapshot: Snapshot) -> None:
    """Refuse indexes that mark rows as deleted or replaced."""
    for kind in _live_index_types(context, snapshot):
        if kind == "DELETION_VECTORS":
            raise UnsupportedFeatureError(
                f"snapshot {snapshot.id} of '{context.title}' has deletion vectors: some rows of its data "
                "files are deleted",
                feature="deletion-vectors",
                hint="compact the table fully with the engine that wrote it, then read it here.",
            )
        if kind == "HASH":
            raise UnsupportedFeatureError(
                f"snapshot {snapshot.id} of '{context.title}' has a hash index, which belongs to primary-key tables",
                feature="primary-key",
                hint="read it with the engine that wrote it.",
            )


def _live_index_types(context: TableContext, snapshot: Snapshot) -> list[str]:
    """Return the types in the index manifest, which lists all live index files."""
    if snapshot.index_manifest is None:
        return []
    path = context.layout.manifest_path(snapshot.index_manifest)
    index_files = read_frame(context.manifests.raw(snapshot.index_manifest), path=path)
    if not {"_KIND", "_INDEX_TYPE"} <= set(index_files.columns):
        raise CorruptTableError("is no index manifest: it lacks _KIND or _INDEX_TYPE", path=path)
    live = index_files.filter(pl.col("_KIND") == 0)["_INDEX_TYPE"]
    return sorted(str(kind) for kind in live.unique())
