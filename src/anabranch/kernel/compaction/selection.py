"""Selects partitions to work on: named ones, those matching a condition, or idle ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from anabranch.errors import CorruptTableError, InvalidInputError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate, columns
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of, any_of
from anabranch.expr.parse import parse
from anabranch.format.records.data_file import FileKind, FileSource
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.compaction.planning import PLAN_COLUMNS
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import REWRITE_PROPERTY
from anabranch.kernel.provenance.fence import FENCE, fenced
from anabranch.kernel.scan.pruning import partitions_match
from anabranch.kernel.scan.request import check_supported
from anabranch.runtime import Clock

Partitions = str | Predicate | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Partitions as users name them: ``"dt < '2026-01-01'"``, the same as an expression, ``{"dt": "2026-01-01"}``, or
several of these dicts. A dict may leave out partition columns."""


def partition_predicate(partitions: Partitions, schema: TableSchema) -> BoundPredicate:
    """Return the partitions as a predicate on partition columns alone.

    Raises:
        InvalidInputError: columns other than partition columns are used.
        PredicateError: the condition cannot be read, or a value does not fit its column.
    """
    match partitions:
        case str():
            wanted = parse(partitions)
        case Predicate():
            wanted = partitions
        case Mapping():
            wanted = _same_as(partitions)
        case _:
            wanted = any_of([_same_as(one) for one in partitions])
    bound = bind(wanted, schema.fields)
    others = columns(bound) - {f.id for f in schema.partition_fields}
    if others:
        names = ", ".join(f"'{f.name}'" for f in schema.fields if f.id in others)
        raise InvalidInputError(
            f"partitions cannot be chosen by {names}, which is no partition column",
            hint=f"partition columns are: {', '.join(schema.partition_keys) or 'none'}.",
        )
    return bound


def select_partitions(live: EntryFrame, partitions: Partitions | None, schema: TableSchema) -> EntryFrame:
    """Return the files in these partitions; all if None. Raises like `partition_predicate`."""
    if partitions is None:
        return live
    predicate = partition_predicate(partitions, schema)
    return EntryFrame(partitions_match(live.df, predicate, schema)) if len(live) else live


def select_idle(live: EntryFrame, idle_millis: int | None, clock: Clock) -> EntryFrame:
    """Return the files of partitions whose newest file is at least that old; all if None.

    Files record their writer's local time, so writers in other time zones make partitions look
    younger or older. A file without a time counts as old.
    """
    if idle_millis is None:
        return live
    now = clock.now_millis()
    latest = now + clock.local_offset_millis(now) - idle_millis
    newest = pl.col("creation_time").max().over("partition")
    return live.filter((newest <= latest).fill_null(value=True))


def _same_as(values: Mapping[str, Any]) -> Predicate:
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError(
            f"{values!r} names no partition", hint="write {'dt': '2026-01-01'} or a condition as text."
        )
    return all_of([ColumnExpression(Column((name,))).same_as(value) for name, value in values.items()])


def live_files(context: TableContext, snapshot: Snapshot | None) -> EntryFrame:
    """Return the `PLAN_COLUMNS` of all live files, in commit order; on a branch with the column `fence`.

    Raises `CorruptTableError`, `UnsupportedFeatureError`, and `NotFoundError` if the table was replaced.
    """
    manifests = context.manifests
    if snapshot is None:
        return manifests.entries([], only=PLAN_COLUMNS)
    check_snapshot_readable(context, snapshot)
    live = manifests.entries(manifests.of_snapshot(snapshot), only=PLAN_COLUMNS).live()
    check_supported(live.df, context)
    return EntryFrame(fenced(context, snapshot, live.df))


# Detects rewrites that would repeat an earlier compaction of unchanged files.
#
# Every compaction records in its snapshot how it rewrote files. So if the files of a task are exactly those that one
# snapshot of the same description added to its place (a bucket of a partition), they need not be rewritten again. This
# works as long as history is retained; where it has expired the work is done again.

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
