"""Selects partitions to work on: named ones, those matching a condition, or idle ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anabranch.errors import InvalidInputError
from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.bound import columns
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of, any_of
from anabranch.expr.parse import parse
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.compaction.planning import PLAN_COLUMNS
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.guards import check_snapshot_readable
from anabranch.kernel.provenance.fence import fenced
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
