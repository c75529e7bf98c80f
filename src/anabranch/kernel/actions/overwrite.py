"""Replace rows: of the whole table, of one partition, or of the partitions present in the new rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.errors import CorruptTableError, InvalidInputError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate, columns
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of, any_of
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.actions.append import added_entries
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.conflicts import bucket_count_conflict
from anabranch.kernel.commit.order import continue_sequences
from anabranch.kernel.log.properties import OVERWRITE_PROPERTY
from anabranch.kernel.scan.partitions import key_of_row
from anabranch.kernel.scan.pruning import partition_values

_FEW_PARTITIONS = 64


@dataclass(frozen=True)
class Overwrite:
    """Remove every live file of the target partitions and add the files of these messages.

    Only manifests that may contain these partitions are read; see `Base.live_where`.

    The files to remove are those of the base it lands on, so rows appended meanwhile to a target
    partition are replaced as well: the overwrite comes last. With `unchanged_since` that is a conflict.
    """

    messages: Sequence[CommitMessage]
    target: BoundPredicate | None = None
    """Partitions to replace; None with `dynamic` False for the whole table."""
    dynamic: bool = False
    """Replace exactly the partitions that occur in `messages`."""
    description: Mapping[str, Any] | None = None
    """The partition as the user named it."""
    condition: str | None = None
    """The condition that selects the partitions, if the user gave one instead."""
    unchanged_since: SnapshotRef | None = None
    """A snapshot since which the rows to be replaced must not have changed."""

    @classmethod
    def of_partition(
        cls, messages: Sequence[CommitMessage], partition: Mapping[str, Any], schema: TableSchema
    ) -> Overwrite:
        """Replace the partitions with these values, all rows of which `messages` must hold.

        Raises `InvalidInputError` if a column is no partition column or a new row lies outside.
        """
        unknown = sorted(set(partition) - set(schema.partition_keys))
        if unknown or not partition:
            raise InvalidInputError(
                f"cannot overwrite partition {dict(partition)}: "
                + (f"'{unknown[0]}' is no partition column" if unknown else "it names no column"),
                hint=f"partition columns are: {', '.join(schema.partition_keys) or 'none'}.",
            )
        wanted = [ColumnExpression(Column((name,))).same_as(value) for name, value in partition.items()]
        target = bind(all_of(wanted), schema.fields)
        _check_inside(messages, target, schema, f"partition {dict(partition)}")
        return cls(messages, target=target, description=partition)

    @classmethod
    def where(cls, messages: Sequence[CommitMessage], condition: Predicate, schema: TableSchema) -> Overwrite:
        """Replace the partitions for which a condition holds, all rows of which `messages` must hold.

        Raises `PredicateError` if it does not fit the columns, `InvalidInputError` if it is about others than the
        partition columns or a new row lies outside.
        """
        target = bind(condition, schema.fields)
        others = sorted(
            f.name for f in schema.fields if f.id in columns(target) and f not in schema.partition_fields
        )
        if others:
            raise InvalidInputError(
                f"cannot overwrite the rows with {condition}: '{others[0]}' is no partition column",
                hint=f"whole partitions are replaced; partition columns are: {', '.join(schema.partition_keys) or 'none'}.",
            )
        _check_inside(messages, target, schema, f"the partitions with {condition}")
        return cls(messages, target=target, condition=str(condition))

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        conflict = bucket_count_conflict(base, self.messages)
        if conflict is not None:
            return conflict
        if self.unchanged_since is not None:
            conflict = changed_conflict(base, self.unchanged_since, lambda e: self._replaced(base, e))
            if conflict is not None:
                return conflict
        live = base.live_where(self._where(base.schema))
        replaced = self._replaced(base, live.df)
        removed = EntryFrame(replaced).with_kind(FileKind.DELETE).to_entries()
        added = added_entries(self.messages)
        if any(message.total_buckets > 0 for message in self.messages):
            added = continue_sequences(base, added)
        said = {OVERWRITE_PROPERTY: self._described(base)}
        return Change(CommitKind.OVERWRITE, [*removed, *added], said, live=live)

    def _where(self, schema: TableSchema) -> BoundPredicate | None:
        """Return a predicate that the target partitions satisfy, to skip manifests; None if all must be read."""
        if not self.dynamic:
            return self.target
        rows = pl.Series(sorted({m.partition for m in self.messages}), dtype=pl.Binary)
        if not schema.partition_fields or not 0 < len(rows) <= _FEW_PARTITIONS:
            return None
        values = partition_values(rows, schema)
        if not all(map(_is_exact, values.schema.types)):
            return None
        names = [ColumnExpression(Column((field.name,))) for field in schema.partition_fields]
        try:
            columns = [column.to_pylist() for column in values.columns]
        except (OverflowError, ValueError):  # Python has no dates beyond the year 9999
            return None
        wanted = [
            all_of([name.same_as(value) for name, value in zip(names, row, strict=True)])
            for row in zip(*columns, strict=True)
        ]
        return bind(any_of(wanted), schema.fields)

    def _replaced(self, base: Base, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the entries that are in the target partitions."""
        if frame.height == 0 or (self.target is None and not self.dynamic):
            return frame
        unique = frame["partition"].unique()
        if self.dynamic:
            wanted = {key_of_row(message.partition, base.schema) for message in self.messages}
            mask = np.asarray([key_of_row(row, base.schema) in wanted for row in unique], dtype=bool)
        else:
            assert self.target is not None
            mask = np.asarray(filter_mask(self.target, partition_values(unique, base.schema)), dtype=bool)
        kept = unique.filter(pl.Series(mask, dtype=pl.Boolean))
        return frame.filter(pl.col("partition").is_in(kept.implode()))

    def _described(self, base: Base) -> str:
        if self.dynamic and (base.schema.partition_keys or not self.messages):
            return json.dumps({"dynamic": True})
        if self.condition is not None:
            return json.dumps({"where": self.condition})
        return json.dumps({"partition": dict(self.description or {})}, default=str)


def _is_exact(kind: pa.DataType) -> bool:
    """Whether values of a type convert to Python exactly, so that a predicate can be made of them."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_boolean(kind)) or bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_decimal(kind)
    )


def _check_inside(
    messages: Sequence[CommitMessage], target: BoundPredicate, schema: TableSchema, what: str
) -> None:
    rows = pl.Series(sorted({message.partition for message in messages}), dtype=pl.Binary)
    if len(rows) and not all(filter_mask(target, partition_values(rows, schema)).to_pylist()):
        raise InvalidInputError(
            f"some of the new rows lie outside of {what}",
            hint="pass only rows of that partition, or overwrite without naming one.",
        )


def changed_conflict(
    base: Base, since: SnapshotRef, replaced: Callable[[pl.DataFrame], pl.DataFrame]
) -> Conflict | None:
    """Return a conflict if rows to be replaced changed after a snapshot, or if that cannot be told.

    Compactions change no rows.

    Args:
        since: the snapshot that was read; number 0 for a table that had none.
        replaced: selects, from manifest entries, those of the partitions to be replaced.
    """
    if base.snapshot is None:
        return None if since.id == 0 else _untold(base, since)
    lowest = None
    for snapshot in base.context.snapshots.down_to(base.snapshot, since.id):
        if snapshot.id <= since.id:
            return None if snapshot.stamp == since.stamp else _untold(base, since)
        try:
            if _changes(base, snapshot, replaced):
                return _changed(base, since, snapshot)
        except CorruptTableError:  # it is expiring just now
            return _untold(base, since)
        lowest = snapshot.id
    return None if since.id == 0 and lowest == 1 else _untold(base, since)


def _changes(base: Base, snapshot: Snapshot, replaced: Callable[[pl.DataFrame], pl.DataFrame]) -> bool:
    if snapshot.commit_kind == CommitKind.COMPACT and not snapshot.delta_record_count:
        return False
    manifests = base.context.manifests
    delta = manifests.entries(manifests.read_list(snapshot.delta_manifest_list))
    return bool(replaced(delta.df).height)


def _changed(base: Base, since: SnapshotRef, snapshot: Snapshot) -> Conflict:
    return Conflict(
        "CHANGED_SINCE",
        f"rows of '{base.context.title}' that are to be replaced were changed after snapshot {since.id}: snapshot "
        f"{snapshot.id} ({snapshot.commit_kind.value} of commit user '{snapshot.commit_user}') did it",
        "nothing was replaced: read the newest snapshot and write again, or overwrite without if_unchanged_since.",
    )


def _untold(base: Base, since: SnapshotRef) -> Conflict:
    return Conflict(
        "CHANGED_SINCE",
        f"it cannot be told whether rows of '{base.context.title}' were changed after snapshot {since.id}: history "
        "does not lead back to it any more",
        "nothing was replaced: read the newest snapshot and write again. Let a consumer or snapshot.num-retained.min "
        "keep the snapshots for as long as the work takes.",
    )
