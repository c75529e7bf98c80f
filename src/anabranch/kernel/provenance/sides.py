"""The two sides of a merge: the changes of each since they last knew of each other, as far as still known.

Two reference points, because they move apart: *taken*, the head of the branch that main has already, moves with every
merge; *seen*, main as the branch knows it, stays at the fork, except for partitions in which a person chose the
branch's rows over main's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.expr.bind import bind
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.nodes import Column, ColumnExpression, all_of
from anabranch.expr.parse import parse
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.json_object import JsonObject
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance.births import live_partitions
from anabranch.kernel.provenance.carry import behind
from anabranch.kernel.provenance.classify import (
    ChangeKind,
    LastChanges,
    MarksReader,
    MergeMade,
    Span,
    WideOverwrite,
    joined,
    span_of,
)
from anabranch.kernel.provenance.past import Past, after
from anabranch.kernel.scan.partitions import PartitionKey, keys_of_rows
from anabranch.kernel.scan.pruning import partition_values

_NAMES: Final = ("kind", "partition", "bucket", "level", "file_name")

Names = Mapping[PartitionKey, frozenset[str]]
"""Names of files by partition."""


@dataclass(frozen=True, slots=True)
class Done:
    """Change in a partition."""

    work: ChangeKind = ChangeKind.NOTHING
    snapshots: tuple[int, ...] = ()
    """Ids of the newest snapshots that changed it."""


@dataclass(frozen=True)
class Side:
    """Changes of one side since a snapshot, the base."""

    context: TableContext
    left: Sequence[Snapshot]
    """Its retained snapshots after the base, oldest first."""
    span: Span | None
    """Known changes after the base, or after `gap_until`; None if there are none."""
    is_whole: bool = False
    """Whether none of its snapshots has expired."""
    merges: tuple[MergeMade, ...] = ()
    """Merges of the branch in effect among the known changes."""
    gap_until: Snapshot | None = None
    """If the span does not begin at the base: the state after the unknown changes."""
    is_other: bool = False
    """Whether history was rewritten below the base, so that it is not the past of this side."""

    def rows(self) -> set[bytes]:
        """Return rows of the partitions that changed, or may have."""
        found = set() if self.span is None else set(self.span.marks)
        if self.gap_until is not None:
            found |= live_partitions(self.context, self.gap_until)
        return found


def side_of(
    context: TableContext,
    branch: TableContext,
    past: Past,
    base: SnapshotRef,
    *,
    taken: SnapshotRef | None = None,
    marks_by: MarksReader | None = None,
) -> Side:
    """Compute the changes on main after `base`; or with `taken` on the branch itself.

    Args:
        branch: the merged branch, which keeps the records of expired snapshots.
        past: its retained snapshots after `base`.
        base: the fork snapshot.
        taken: the snapshot of the branch up to which main has it: earlier changes are not reported reliably.
        marks_by: reader that knows the changes of some of the snapshots.

    Raises `CorruptTableError` if something cannot be read.
    """
    if past.base_is_other:
        return Side(context, past.snapshots, None, is_other=True)
    told = partial(_told, context, branch.branch_uuid, None if taken is None else taken.id, marks_by)
    if past.reaches_base:
        span = told(past.snapshots)
        merges = () if span is None else span.merges
        return Side(context, past.snapshots, span, is_whole=True, merges=merges)
    carried, rest = behind(branch, past.snapshots, own=taken is not None)
    recorded = None if carried is None else carried.span
    whole = joined(span for span in (recorded, told(rest)) if span is not None)
    merges = () if whole is None else whole.merges
    if recorded is not None and _begins_after(recorded, taken or base):
        return Side(context, past.snapshots, whole, merges=merges)
    oldest, later = past.snapshots[0], past.snapshots[1:]
    return Side(context, past.snapshots, told(later), merges=merges, gap_until=oldest)


def _told(
    context: TableContext,
    branch_uuid: str,
    taken: int | None,
    marks_by: MarksReader | None,
    snapshots: Sequence[Snapshot],
) -> Span | None:
    """Return the changes of known snapshots; None if there are none."""
    if taken is None:
        return span_of(context, snapshots, besides=branch_uuid, marks_by=marks_by) if snapshots else None
    later = after(snapshots, taken)
    return span_of(context, later, undoing=True, marks_by=marks_by) if later else None


def _begins_after(span: Span, base: SnapshotRef) -> bool:
    if span.first <= base.id:
        return True
    return span.first == base.id + 1 and span.before in (None, base.stamp)


def works(
    side: Side,
    places: Mapping[PartitionKey, bytes],
    schema: TableSchema,
    *,
    since: Mapping[PartitionKey, int],
    before_gap: Names,
    besides: frozenset[str] = frozenset(),
) -> dict[PartitionKey, Done]:
    """Return a side's change in each of these partitions.

    Args:
        side: the side.
        places: the partitions, each with a row of it.
        schema: any with the same partition fields.
        since: for each partition the id of the snapshot after which changes count.
        before_gap: files of the partitions before the unknown changes.
        besides: names of files to ignore when files are compared.
    """
    done = _marks(side.span, places, schema)
    in_doubt = {key for key in places if side.gap_until is not None and since.get(key, 0) < side.gap_until.id}
    compared = _compared(side, in_doubt, schema, before_gap, besides)
    wide = _wide(side, places)
    return {
        key: _done(
            done.get(key, LastChanges()) | wide.get(key, LastChanges()), compared.get(key), since.get(key, 0)
        )
        for key in places
    }


def _done(marks: LastChanges, compared: ChangeKind | None, since: int) -> Done:
    if marks.overwritten > since:
        return Done(ChangeKind.OVERWRITTEN, (marks.overwritten,))
    if compared == ChangeKind.UNKNOWN:
        return Done(ChangeKind.UNKNOWN)
    if marks.appended > since:
        return Done(ChangeKind.APPENDED, (marks.appended,))
    return Done(compared or ChangeKind.NOTHING)


def _marks(
    span: Span | None, places: Mapping[PartitionKey, bytes], schema: TableSchema
) -> dict[PartitionKey, LastChanges]:
    found: dict[PartitionKey, LastChanges] = {}
    for key, row in keyed([] if span is None else span.marks, schema):
        if span is not None and key in places:
            found[key] = found.get(key, LastChanges()) | span.marks[row]
    return found


def _compared(
    side: Side,
    places: Collection[PartitionKey],
    schema: TableSchema,
    before: Names,
    besides: frozenset[str],
) -> dict[PartitionKey, ChangeKind]:
    """Compare live files to classify unrecorded changes; only certain results count."""
    if side.gap_until is None or not places:
        return {}
    after = live_names_of(side.context, side.gap_until, schema)
    found: dict[PartitionKey, ChangeKind] = {}
    for key in places:
        was, now = before.get(key, frozenset()) - besides, after.get(key, frozenset()) - besides
        if was == now:
            found[key] = ChangeKind.NOTHING
        else:
            found[key] = ChangeKind.APPENDED if was and was < now else ChangeKind.UNKNOWN
    return found


def _wide(side: Side, places: Mapping[PartitionKey, bytes]) -> dict[PartitionKey, LastChanges]:
    """Return the marks of overwrites that also cover partitions without files."""
    found: dict[PartitionKey, LastChanges] = {}
    for wide in () if side.span is None else side.span.wide:
        for key in covered(side.context, wide, places):
            found[key] = found.get(key, LastChanges()) | LastChanges(overwritten=wide.snapshot_id)
    return found


def covered(
    context: TableContext, wide: WideOverwrite, places: Mapping[PartitionKey, bytes]
) -> list[PartitionKey]:
    """Return the partitions that an overwrite replaced; all if its property cannot be parsed."""
    if wide.spec is None or not places:
        return [*places]
    try:
        spec = JsonObject.parse(wide.spec.encode(), path=f"snapshot {wide.snapshot_id}").values
        schema = context.schemas.get(wide.schema_id)
        if "where" in spec:
            condition = parse(spec["where"])
        elif spec["partition"]:
            named = spec["partition"].items()
            condition = all_of([ColumnExpression(Column((name,))).same_as(value) for name, value in named])
        else:
            return [*places]
        rows = pl.Series([*places.values()], dtype=pl.Binary)
        mask = filter_mask(bind(condition, schema.fields), partition_values(rows, schema))
    except (AnabranchError, KeyError, AttributeError):
        return [*places]
    return [key for key, inside in zip(places, mask.to_pylist(), strict=True) if inside]


def keyed(rows: Iterable[bytes], schema: TableSchema) -> list[tuple[PartitionKey, bytes]]:
    """Pair partition rows with their partition keys."""
    given = pl.Series([*rows], dtype=pl.Binary)
    return [*zip(keys_of_rows(given, schema), given, strict=True)]


def live_names_of(context: TableContext, snapshot: Snapshot, schema: TableSchema) -> Names:
    """Return the live file names of a snapshot by partition."""
    manifests = context.manifests
    live = manifests.entries(manifests.of_snapshot(snapshot), only=_NAMES).live().df
    return names_by_partition(live, schema)


def names_by_partition(files: pl.DataFrame, schema: TableSchema) -> Names:
    """Group file names by partition, from the columns `partition` and `file_name`."""
    grouped = files.group_by("partition", maintain_order=True).agg("file_name")
    found: dict[PartitionKey, frozenset[str]] = {}
    keys = keys_of_rows(grouped["partition"], schema)
    for key, names in zip(keys, grouped["file_name"].to_list(), strict=True):
        found[key] = found.get(key, frozenset()) | frozenset(names)
    return found
