"""From a snapshot and a predicate to the files that must be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bind import BoundPredicate
from anabranch.expr.prune import split_conjuncts
from anabranch.kernel.context import TableContext
from anabranch.kernel.plan import Plan, PlanStep, split_starts
from anabranch.kernel.pruning import (
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
from anabranch.spec.data_file import ManifestFileMeta
from anabranch.spec.entry_frame import EntryFrame
from anabranch.spec.partition_path import partition_path
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot
from anabranch.spec.values import physical_values

FORMATS = ("parquet", "orc", "avro")


@dataclass(frozen=True)
class ScanRequest:
    """What to plan: rows of one snapshot (or only those it added) that may satisfy a predicate."""

    context: TableContext
    snapshot: Snapshot | None
    schema: TableSchema
    predicate: BoundPredicate | None = None
    limit: int | None = None
    """With no predicate, stop after files that hold this many rows."""
    options: Mapping[str, str] | None = None
    """Options of the read, over the table's."""

    def plan(self) -> Plan:
        """All live files of the snapshot. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        if self.snapshot is None:
            return self._packed(_no_files(), [])
        return self._plan(self.context.manifests.of_snapshot(self.snapshot), delta=False)

    def plan_delta(self) -> Plan:
        """Only the files that the snapshot itself added."""
        if self.snapshot is None:
            return self._packed(_no_files(), [])
        return self._plan(self.context.manifests.read_list(self.snapshot.delta_manifest_list), delta=True)

    def _plan(self, metas: Sequence[ManifestFileMeta], *, delta: bool) -> Plan:
        steps = [PlanStep("snapshot", len(metas), None)]
        on_partitions, predicate = None, self.predicate
        if predicate is not None:
            on_partitions, _ = split_conjuncts(predicate, {f.id for f in self.schema.partition_fields})
            if on_partitions is not None and metas:
                metas = manifests_may_match(metas, on_partitions, self.schema)
                steps.append(PlanStep("manifests", len(metas), None))
        entries = self.context.manifests.entries(metas)
        frame = entries.df
        steps.append(PlanStep("entries", len(metas), frame.height))
        if on_partitions is not None and frame.height:
            frame = partitions_match(frame, on_partitions, self.schema)
            steps.append(PlanStep("partitions", len(metas), frame.height))
        if predicate is not None and frame.height and self.schema.bucket_follows_from_keys:
            frame = buckets_match(frame, predicate, self.schema, self.context.schemas)
            steps.append(PlanStep("buckets", len(metas), frame.height))
        kept = EntryFrame(frame)
        frame = (kept.adds() if delta else kept.live()).df
        steps.append(PlanStep("live", len(metas), frame.height))
        if predicate is not None and frame.height:
            frame = files_may_match(frame, predicate, self.schema, self.context.schemas)
            steps.append(PlanStep("statistics", len(metas), frame.height))
        _check_supported(frame, self.context)
        return self._packed(frame, steps)

    def _packed(self, frame: pl.DataFrame, steps: list[PlanStep]) -> Plan:
        options = {**self.schema.options, **(self.options or {})}
        if frame.height == 0:
            return Plan(self.snapshot, _no_files(), np.empty(0, np.int64), tuple(steps))
        frame = self._located(frame, options)
        if self.limit is not None and self.predicate is None:
            enough = int(np.searchsorted(np.cumsum(frame["row_count"].to_numpy()), self.limit)) + 1
            frame = frame.head(enough if self.limit > 0 else 0)
        starts = split_starts(
            frame["group"].to_numpy(),
            frame["file_size"].to_numpy(),
            target=SPLIT_TARGET_SIZE.of(options),
            open_cost=SPLIT_OPEN_FILE_COST.of(options),
        )
        return Plan(self.snapshot, frame.drop("group"), starts, tuple(steps))

    def _located(self, frame: pl.DataFrame, options: Mapping[str, str]) -> pl.DataFrame:
        """Files with their paths, ordered by partition (oldest first), bucket and sequence number."""
        folders = self._partition_folders(frame["partition"].unique(maintain_order=True), options)
        return (
            frame.select(
                "partition",
                "bucket",
                "file_name",
                "file_size",
                "row_count",
                "schema_id",
                "min_sequence_number",
            )
            .join(folders, on="partition", how="left", maintain_order="left")
            .sort("order", "bucket", "min_sequence_number", maintain_order=True)
            .select(
                "partition",
                "bucket",
                pl.concat_str(
                    pl.col("folder"),
                    pl.lit("bucket-"),
                    pl.col("bucket").cast(pl.String),
                    pl.lit("/"),
                    "file_name",
                ).alias("path"),
                "file_size",
                "row_count",
                "schema_id",
                pl.col("file_name").str.extract(r"\.([A-Za-z0-9]+)$").fill_null("").alias("format"),
                pl.struct("order", "bucket").rle_id().cast(pl.Int64).alias("group"),
            )
        )

    def _partition_folders(self, partitions: pl.Series, options: Mapping[str, str]) -> pl.DataFrame:
        """Folder and order of each partition row; rows that spell the same values share an order."""
        fields = self.schema.partition_fields
        columns = partition_values(partitions, self.schema)
        values = [
            *zip(*(physical_values(c, f.type) for c, f in zip(columns, fields, strict=True)), strict=True)
        ]
        if not fields:
            values = [()] * len(partitions)
        orders: dict[tuple[object, ...], int] = {}
        folders = [
            partition_path(
                fields,
                row,
                legacy_names=PARTITION_LEGACY_NAME.of(options),
                default_name=PARTITION_DEFAULT_NAME.of(options),
            )
            for row in values
        ]
        return pl.DataFrame(
            {
                "partition": partitions,
                "folder": [f"{folder}/" if folder else "" for folder in folders],
                "order": [orders.setdefault(row, len(orders)) for row in values],
            },
            schema={"partition": pl.Binary, "folder": pl.String, "order": pl.Int64},
        )


def _no_files() -> pl.DataFrame:
    return pl.DataFrame(
        schema={
            "partition": pl.Binary,
            "bucket": pl.Int32,
            "path": pl.String,
            "file_size": pl.Int64,
            "row_count": pl.Int64,
            "schema_id": pl.Int64,
            "format": pl.String,
        }
    )


def _check_supported(frame: pl.DataFrame, context: TableContext) -> None:
    """Refuse files whose rows cannot be told from this entry alone."""
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
    formats = frame["file_name"].str.extract(r"\.([A-Za-z0-9]+)$").fill_null("").unique().to_list()
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise UnsupportedFeatureError(
            f"table '{context.title}' has data files of format {unknown[0]!r}",
            feature="file-format",
            hint=f"formats that are read: {', '.join(FORMATS)}.",
        )
    for schema_id in frame["schema_id"].unique().to_list():
        context.schemas.get(schema_id)
