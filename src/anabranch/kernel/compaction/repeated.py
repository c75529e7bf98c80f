"""Rewrites that would only repeat an earlier one: what a compaction made of a place, and nobody has touched since.

Every compaction says in its snapshot how it rewrote files. So a place (a bucket of a partition) whose live files are
exactly those that one snapshot of the same description added to it need not be rewritten again. History tells that as
long as it is retained; where it has expired the work is done again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.kernel.context import TableContext
from anabranch.kernel.parallel import each
from anabranch.kernel.properties import REWRITE_PROPERTY
from anabranch.spec.data_file import FileKind, FileSource
from anabranch.spec.entry_frame import EntryFrame
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import CommitKind, Snapshot

_LOOK_BACK: Final = 1_000
"""Snapshots to look through; looking further costs more than a small sort."""
_AT_ONCE: Final = 50
_PLACE: Final = ("partition", "bucket", "total_buckets")

Place = tuple[bytes, int, int]
"""Partition, bucket and number of buckets, as a `CompactionTask` has them."""


def made_before(
    context: TableContext, live: EntryFrame, schema: TableSchema, description: Mapping[str, Any]
) -> set[Place]:
    """The places whose live files are what the newest compaction of this description made of them.

    Args:
        context: the branch.
        live: live files, at least their `PLAN_COLUMNS`.
        schema: the table's newest. Files of another one do not count: options and columns may have changed since.
        description: how files would be rewritten, as it would stand in the snapshot.
    """
    open_places = _rewritten(live, schema)
    found = set()
    for snapshot in _newest_first(context) if open_places else ():
        if not open_places or snapshot.schema_id < schema.id:
            break
        if not _is_described(snapshot, description):
            continue
        try:
            made = _added(context, snapshot)
        except CorruptTableError:
            break  # it has just expired
        for place, names in made.items():
            if open_places.pop(place, None) == names:
                found.add(place)
    return found


def _rewritten(live: EntryFrame, schema: TableSchema) -> dict[Place, frozenset[str]]:
    """Names of the files of the places in which compactions wrote all there is, in today's schema."""
    ours = (pl.col("file_source") == int(FileSource.COMPACT)) & (pl.col("schema_id") == schema.id)
    places = live.df.group_by(_PLACE).agg("file_name", is_rewritten=ours.fill_null(value=False).all())
    return _by_place(places.filter("is_rewritten"))


def _added(context: TableContext, snapshot: Snapshot) -> dict[Place, frozenset[str]]:
    manifests = context.manifests
    metas = manifests.read_list(snapshot.delta_manifest_list)
    entries = manifests.entries(metas, only=("kind", *_PLACE, "file_name")).df
    return _by_place(entries.filter(kind=int(FileKind.ADD)).group_by(_PLACE).agg("file_name"))


def _by_place(places: pl.DataFrame) -> dict[Place, frozenset[str]]:
    rows = places.select(*_PLACE, "file_name").iter_rows()
    return {(partition, bucket, total): frozenset(names) for partition, bucket, total, names in rows}


def _newest_first(context: TableContext) -> Iterator[Snapshot]:
    """The newest snapshots, as far back as history goes without a gap."""
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
