"""Detects rewrites that would repeat an earlier compaction of unchanged files.

Every compaction records in its snapshot how it rewrote files. So if the files of a task are exactly those that one
snapshot of the same description added to its place (a bucket of a partition), they need not be rewritten again. This
works as long as history is retained; where it has expired the work is done again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import FileKind, FileSource
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import REWRITE_PROPERTY
from anabranch.kernel.provenance.fence import FENCE

_LOOK_BACK: Final = 1_000
"""Most snapshots to search; going further costs more than a small sort."""
_AT_ONCE: Final = 50
_PLACE: Final = ("partition", "bucket", "total_buckets")

Names = frozenset[str]
"""Of files."""


def made_before(
    context: TableContext, live: EntryFrame, schema: TableSchema, description: Mapping[str, Any]
) -> set[Names]:
    """Return the places (or their fenced parts) whose files one compaction of this description made, as sets of names.

    Args:
        context: the branch.
        live: live files, at least their `PLAN_COLUMNS`.
        schema: the table's newest. Files of another one are ignored: options and columns may have changed since.
        description: how files would be rewritten, as recorded in the snapshot.
    """
    wanted = _rewritten(live, schema)
    found: set[Names] = set()
    for snapshot in _newest_first(context) if wanted else ():
        if found == wanted or snapshot.schema_id < schema.id:
            break
        if not _is_described(snapshot, description):
            continue
        try:
            found |= wanted & _added(context, snapshot)
        except CorruptTableError:
            break  # it has just expired
    return found


def _rewritten(live: EntryFrame, schema: TableSchema) -> set[Names]:
    """Return the files of places that consist only of compacted files in the current schema."""
    ours = (pl.col("file_source") == int(FileSource.COMPACT)) & (pl.col("schema_id") == schema.id)
    keys = (*_PLACE, FENCE) if FENCE in live.df.columns else _PLACE
    places = live.df.group_by(keys).agg("file_name", is_rewritten=ours.fill_null(value=False).all())
    return set(map(frozenset, places.filter("is_rewritten")["file_name"].to_list()))


def _added(context: TableContext, snapshot: Snapshot) -> set[Names]:
    manifests = context.manifests
    metas = manifests.read_list(snapshot.delta_manifest_list)
    entries = manifests.entries(metas, only=("kind", *_PLACE, "file_name")).df
    places = entries.filter(kind=int(FileKind.ADD)).group_by(_PLACE).agg("file_name")
    return set(map(frozenset, places["file_name"].to_list()))


def _newest_first(context: TableContext) -> Iterator[Snapshot]:
    """Yield the newest snapshots, as far back as history goes without a gap."""
    head = context.snapshots.head()
    newest = 0 if head is None else head.id
    for last in range(newest, max(newest - _LOOK_BACK, 0), -_AT_ONCE):
        for snapshot in each(context.snapshots.find, range(last, max(last - _AT_ONCE, 0), -1)):
            if snapshot is None:
                return
            yield snapshot


def _is_described(snapshot: Snapshot, description: Mapping[str, Any]) -> bool:
    if snapshot.commit_kind != CommitKind.COMPACT:
        return False
    try:
        said = json.loads(snapshot.properties.get(REWRITE_PROPERTY, "null"))
    except ValueError:
        return False
    return bool(said == description)
