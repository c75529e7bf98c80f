"""From a snapshot and a predicate to the files that must be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bound import BoundPredicate
from anabranch.expr.prune import split_conjuncts
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.layout import file_format_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.rows.partition_path import partition_path
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.values import physical_values
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.scan.partitions import PartitionKey, in_order_of_values, partition_key
from anabranch.kernel.scan.plan import EMPTY_FILES, Plan, PlanStep, split_starts
from anabranch.kernel.scan.pruning import (
    buckets_match,
    files_may_match,
    manifests_may_match,
    partition_values,
    partitions_match,
)
from anabranch.options import (
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    SPLIT_OPEN_FILE_COST,
    SPLIT_TARGET_SIZE,
)

_FEW_MANIFESTS = 3
_JOINED_AT_ONCE = 100_000
FORMATS = ("parquet", "orc", "avro")
TO_LOCATE = (
    *("kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count"),
    *("min_sequence_number", "schema_id", "level", "external_path", "write_cols"),
)
"""Manifest entry columns that every plan needs."""
_TO_PRUNE = (*TO_LOCATE, "value_min", "value_max", "value_null_counts", "value_stats_cols")
"""The same and the statistics, which take as long to decode as all of them."""


class PartitionOrder(StrEnum):
    """Order of partitions in a plan."""

    APPEARANCE = "appearance"
    """In commit order, by the oldest entry of each partition."""
    CREATION = "creation"
    """By creation time of the oldest planned file, by its writer's clock."""
    VALUE = "value"
    """By partition value, nulls first."""


@dataclass(frozen=True)
class ScanRequest:
    """A scan to plan: rows of one snapshot (or only those it added) that may satisfy a predicate."""

    context: TableContext
    snapshot: Snapshot | None
    schema: TableSchema
    predicate: BoundPredicate | None = None
    limit: int | None = None
    """With no predicate, stop after files that hold this many rows."""
    options: Mapping[str, str] | None = None
    """Options of the read, overriding the table's."""
    partition_order: PartitionOrder = PartitionOrder.APPEARANCE

    def plan(self) -> Plan:
        """Plan all live files of the snapshot. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        if self.snapshot is None:
            return self._packed(EMPTY_FILES, [])
        check_snapshot_readable(self.context, self.snapshot)
        return self._plan(self.context.manifests.of_snapshot(self.snapshot), EntryFrame.live)

    def plan_delta(self, *, removed: bool = False) -> Plan:
        """Plan files that the snapshot added, or removed if `removed`; those it both added and removed are skipped."""
        if self.snapshot is None:
            return self._packed(EMPTY_FILES, [])
        check_snapshot_readable(self.context, self.snapshot)
        lists = self.context.manifests.read_list(self.snapshot.delta_manifest_list)
        return self._plan(lists, _removed if removed else _added)

    def live_files(self, *, statistics: bool) -> pl.DataFrame:
        """Return the entries of the live files in the partitions that the predicate asks for.

        Args:
            statistics: whether with those of the columns.
        """
        columns = _TO_PRUNE if statistics else TO_LOCATE
        if self.snapshot is None:
            return EntryFrame.empty().df.select(columns)
        check_snapshot_readable(self.context, self.snapshot)
        metas = self.context.manifests.of_snapshot(self.snapshot)
        frame = EntryFrame(self._entries(metas, self._conjuncts[0], columns, [])).live().df
        check_supported(frame, self.context)
        return frame

    def _plan(self, metas: Sequence[ManifestFileMeta], kept: Callable[[EntryFrame], EntryFrame]) -> Plan:
        steps = [PlanStep("snapshot", len(metas), None)]
        on_partitions, on_rows = self._conjuncts
        columns = TO_LOCATE if on_rows is None else _TO_PRUNE
        if self.partition_order is PartitionOrder.CREATION:
            columns = (*columns, "creation_time")
        frame = self._entries(metas, on_partitions, columns, steps)
        if self.predicate is not None and frame.height and self.schema.bucket_follows_from_keys:
            frame = buckets_match(frame, self.predicate, self.schema, self.context.schemas)
            steps.append(PlanStep("buckets", steps[-1].manifests, frame.height))
        frame = kept(EntryFrame(frame)).df
        steps.append(PlanStep("live", steps[-1].manifests, frame.height))
        # Before pruning by statistics: where rows are split over files, those of one file say nothing.
        check_supported(frame, self.context)
        if on_rows is not None and self.predicate is not None and frame.height:
            frame = files_may_match(frame, self.predicate, self.schema, self.context.schemas)
            steps.append(PlanStep("statistics", steps[-1].manifests, frame.height))
        return self._packed(frame, steps)

    @property
    def _conjuncts(self) -> tuple[BoundPredicate | None, BoundPredicate | None]:
        """The part of the predicate that is about partitions, and the rest."""
        if self.predicate is None:
            return None, None
        return split_conjuncts(self.predicate, {f.id for f in self.schema.partition_fields})

    def _entries(
        self,
        metas: Sequence[ManifestFileMeta],
        on_partitions: BoundPredicate | None,
        columns: tuple[str, ...],
        steps: list[PlanStep],
    ) -> pl.DataFrame:
        """Return the entries of the partitions that are asked for; adds to the steps how they were found."""
        if on_partitions is not None and metas:
            metas = manifests_may_match(metas, on_partitions, self.schema)
            steps.append(PlanStep("manifests", len(metas), None))
        metas = self._enough(metas)
        frame = self.context.manifests.entries(metas, only=columns).df
        steps.append(PlanStep("entries", len(metas), frame.height))
        if on_partitions is not None and frame.height:
            frame = partitions_match(frame, on_partitions, self.schema)
            steps.append(PlanStep("partitions", len(metas), frame.height))
        return frame

    def _enough(self, metas: Sequence[ManifestFileMeta]) -> Sequence[ManifestFileMeta]:
        """The first of the manifests, as many as have the rows of the limit; all where their order is not that of the plan.

        It is where files are not grouped by bucket, and partitions come in the order of their first files: then a plan
        begins with the files of the first entry's partition, in the order of their entries. Where nothing was ever deleted,
        what is added in the first manifests is live.
        """
        is_parted = bool(self.schema.partition_keys)
        is_ordered = not is_parted or self.partition_order is PartitionOrder.APPEARANCE
        if self.limit is None or self.predicate is not None or not is_ordered or self.schema.bucket > 0:
            return metas
        if len(metas) < _FEW_MANIFESTS or any(meta.num_deleted_files for meta in metas):
            return metas
        columns = ("partition", "row_count") if is_parted else ("row_count",)
        rows, taken, first = 0, 0, None
        while taken < len(metas) and rows < self.limit:
            more = metas[taken : 2 * taken + 1]
            frame = self.context.manifests.entries(more, only=columns).df
            if is_parted and frame.height:
                first = frame["partition"][0] if first is None else first
                frame = frame.filter(pl.col("partition") == first)
            rows += int(frame["row_count"].sum())
            taken += len(more)
        return metas[: max(taken, 1)]

    def _packed(self, frame: pl.DataFrame, steps: list[PlanStep]) -> Plan:
        options = {**self.schema.options, **(self.options or {})}
        if frame.height == 0:
            return Plan(self.snapshot, EMPTY_FILES, (), np.empty(0, np.int64), tuple(steps))
        frame, folders = self._located(frame, options)
        if self.limit is not None and self.predicate is None:
            enough = int(np.searchsorted(np.cumsum(frame["row_count"].to_numpy()), self.limit)) + 1
            frame = frame.head(enough if self.limit > 0 else 0)
        buckets = frame["bucket"].to_numpy().astype(np.int64)
        starts = split_starts(
            frame["folder"].to_numpy() * (int(buckets.max(initial=0)) + 1) + buckets,
            frame["file_size"].to_numpy(),
            target=SPLIT_TARGET_SIZE.of(options),
            open_cost=SPLIT_OPEN_FILE_COST.of(options),
        )
        return Plan(self.snapshot, frame, folders, starts, tuple(steps))

    def _located(
        self, frame: pl.DataFrame, options: Mapping[str, str]
    ) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """Order files by partition, bucket and sequence number; return them with the partitions' folders."""
        partitions, folders = partition_folders(self.schema, self._partitions(frame), options)
        frame = frame.select(*EMPTY_FILES.columns[1:], "min_sequence_number", "total_buckets")
        if partitions.height == 1:
            frame = frame.with_columns(folder=pl.lit(0, pl.Int64))
        else:
            frame = frame.with_columns(_numbered(frame["partition"], partitions))
        if (frame["total_buckets"] > 0).any():
            frame = frame.sort("folder", "bucket", "min_sequence_number", maintain_order=True)
        elif not frame["folder"].is_sorted():
            frame = frame.sort("folder", maintain_order=True)
        return frame.select(EMPTY_FILES.columns), folders

    def _partitions(self, frame: pl.DataFrame) -> pl.Series:
        """Return the distinct partition rows of files, in plan order."""
        match self.partition_order:
            case PartitionOrder.CREATION:
                created = frame.group_by("partition", maintain_order=True).agg(pl.col("creation_time").min())
                return created.sort("creation_time", maintain_order=True)["partition"]
            case PartitionOrder.VALUE:
                return in_order_of_values(frame["partition"].unique(maintain_order=True), self.schema)
            case PartitionOrder.APPEARANCE:
                return frame["partition"].unique(maintain_order=True)


def _numbered(partitions: pl.Series, folders: pl.DataFrame) -> pl.Series:
    """Return the folder of each partition row, in chunks as these are: Polars copies a frame whose columns differ in it.

    Joined is this column alone, some rows at a time: a join copies what it joins, and the other columns of a plan may
    stay those of the cache.
    """
    parts = partitions.to_frame("partition").iter_slices(max(_JOINED_AT_ONCE, folders.height))
    joined = [
        part.join(folders, on="partition", how="left", maintain_order="left")["folder"] for part in parts
    ]
    numbers = pl.concat(joined, rechunk=True)
    ends = np.cumsum(partitions.chunk_lengths())
    starts = [0, *ends[:-1].tolist()]
    chunks = [numbers[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
    return pl.concat(chunks, rechunk=False)


def partition_folders(
    schema: TableSchema, partitions: pl.Series, options: Mapping[str, str]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Number the folders of partition rows; return the numbers and the folders."""
    fields = schema.partition_fields
    columns = partition_values(partitions, schema)
    arrays = [physical_values(c, f.type) for c, f in zip(columns, fields, strict=True)]
    values = [*zip(*arrays, strict=True)] if fields else [()] * len(partitions)
    spelled: dict[PartitionKey, Sequence[Any]] = {}
    for row in values:
        spelled.setdefault(partition_key(row), row)
    numbers = {key: number for number, key in enumerate(spelled)}
    rows = [numbers[partition_key(row)] for row in values]
    folders = tuple(
        partition_path(
            fields,
            row,
            legacy_names=PARTITION_LEGACY_NAME.of(options),
            default_name=PARTITION_DEFAULT_NAME.of(options),
        )
        for row in spelled.values()
    )
    return pl.DataFrame({"partition": partitions, "folder": pl.Series(rows, dtype=pl.Int64)}), folders


def _added(delta: EntryFrame) -> EntryFrame:
    return _without(delta.adds(), delta.deletes())


def _removed(delta: EntryFrame) -> EntryFrame:
    return _without(delta.deletes(), delta.adds())


def _without(entries: EntryFrame, others: EntryFrame) -> EntryFrame:
    if not len(others):
        return entries
    return EntryFrame(
        entries.df.join(others.df.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left")
    )


def check_supported(frame: pl.DataFrame, context: TableContext) -> None:
    """Refuse files whose rows do not follow from their entries alone. Raises `UnsupportedFeatureError`."""
    if frame.height == 0:
        return
    refusals = (
        ("external_path", "data-file.external-paths", "data files outside of the table's folder"),
        ("write_cols", "data-evolution", "data evolution (rows split over several files)"),
    )
    for column, feature, what in refusals:
        if frame[column].null_count() != frame.height:
            raise UnsupportedFeatureError(
                f"table '{context.title}' has {what}, which Anabranch does not read",
                feature=feature,
                hint="read it with the engine that wrote it.",
            )
    if not frame["file_name"].str.ends_with(".parquet").all():
        formats = {file_format_of(name) for name in frame["file_name"].to_list()}
        for unknown in sorted(formats - set(FORMATS)):
            raise UnsupportedFeatureError(
                f"table '{context.title}' has data files of format '{unknown}'",
                feature="file-format",
                hint=f"formats that are read: {', '.join(FORMATS)}.",
            )
    schema_ids = frame["schema_id"].unique(maintain_order=True).to_list()
    context.schemas.fetch(schema_ids)
    for schema_id in schema_ids:
        context.schemas.get(schema_id)
