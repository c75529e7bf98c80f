"""Plans the added files of many snapshots together.

One snapshot of a stream adds a file or two. Decoding its manifest, ordering its files and finding their folders costs a
hundred times what one more file costs, so the snapshots of a backlog are planned as one, and their files split then.
Each snapshot's files are those of `ScanRequest.plan_delta`, in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.layout import Layout, file_format_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.partitions import in_order_of_values
from anabranch.kernel.scan.request import TO_LOCATE, PartitionOrder, check_supported, partition_folders
from anabranch.kernel.scan.split import SplitFile


class AddedFile(NamedTuple):
    """A file in its partition and bucket."""

    partition: bytes
    bucket: int
    file: SplitFile


def added_files(
    context: TableContext, schema: TableSchema, snapshots: Sequence[Snapshot], order: PartitionOrder
) -> list[list[AddedFile]]:
    """Return the files that each snapshot added, in plan order.

    Raises `CorruptTableError`, `UnsupportedFeatureError` as a plan of one of them does.
    """
    manifests = context.manifests
    lists = [manifests.read_list(snapshot.delta_manifest_list) for snapshot in snapshots]
    metas = [meta for found in lists for meta in found]
    frame = manifests.entries(metas, only=(*TO_LOCATE, "creation_time")).df
    counts = [sum(m.num_added_files + m.num_deleted_files for m in found) for found in lists]
    numbers = np.repeat(np.arange(len(snapshots), dtype=np.int64), counts)
    frame = frame.with_columns(snapshot=pl.Series(numbers))
    is_add = pl.col("kind") == int(FileKind.ADD)
    deleted, frame = frame.filter(~is_add), frame.filter(is_add)
    if deleted.height:
        same = ["snapshot", *IDENTITY]
        frame = frame.join(deleted.select(same), on=same, how="anti", maintain_order="left")
    files: list[list[AddedFile]] = [[] for _ in snapshots]
    if not frame.height:
        return files
    check_supported(frame, context)
    frame, folders = _in_order(frame, schema, order)
    paths: dict[tuple[int, int], str] = {}
    columns = (
        "snapshot",
        "folder",
        "partition",
        "bucket",
        "file_name",
        "file_size",
        "row_count",
        "schema_id",
    )
    for number, folder, partition, bucket, name, size, rows, schema_id in frame.select(columns).iter_rows():
        path = paths.get((folder, bucket))
        if path is None:
            path = paths[folder, bucket] = Layout().bucket_path(folders[folder], bucket)
        file = SplitFile(f"{path}/{name}", size, rows, schema_id, file_format_of(name))
        files[number].append(AddedFile(partition, bucket, file))
    return files


def _in_order(
    frame: pl.DataFrame, schema: TableSchema, order: PartitionOrder
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Order files by snapshot, then as `ScanRequest` does; add folder numbers, and return the folders."""
    rows = frame["partition"].unique(maintain_order=True)
    if order is PartitionOrder.VALUE:
        rows = in_order_of_values(rows, schema)
    numbered, folders = partition_folders(schema, rows, schema.options)
    frame = frame.join(numbered, on="partition", how="left", maintain_order="left")
    places = frame.group_by("snapshot", "partition", maintain_order=True).agg(
        pl.col("folder").first(), pl.col("creation_time").min()
    )
    if order is PartitionOrder.CREATION:
        places = places.sort("snapshot", "creation_time", maintain_order=True)
    elif order is PartitionOrder.VALUE:
        places = places.sort("snapshot", "folder", maintain_order=True)
    places = places.unique(["snapshot", "folder"], keep="first", maintain_order=True).with_row_index("place")
    frame = frame.join(
        places.select("snapshot", "folder", "place"),
        on=["snapshot", "folder"],
        how="left",
        maintain_order="left",
    )
    is_queue = (pl.col("total_buckets") > 0).any().over("snapshot")
    frame = frame.with_columns(
        by_bucket=pl.when(is_queue).then("bucket").otherwise(0),
        by_sequence=pl.when(is_queue).then("min_sequence_number").otherwise(0),
    )
    return frame.sort("snapshot", "place", "by_bucket", "by_sequence", maintain_order=True), folders
