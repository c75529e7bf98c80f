"""Plans compaction tasks from the live files of a table. Works on columns until the tasks are built.

Files of a scalable table may go together whatever their order; those of a queue only where they follow each
other in their bucket. Files whose partition rows differ in bytes are never combined, even if they are of one
partition: a manifest entry must repeat the bytes of the one it takes back.

A column `fence` in the frame, of integers, narrows what may be combined: only files with the same value are, and
those where it is null are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Final

import numpy as np
import polars as pl

from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.kernel.compaction.packing import (
    LEFT_OUT,
    FileRun,
    PackingLimits,
    Queue,
    pack,
    pack_queue,
    pack_queue_end,
    pack_queue_fully,
    pack_rest,
)
from anabranch.kernel.provenance.fence import FENCE
from anabranch.kernel.scan.partitions import keys_of_rows

PLAN_COLUMNS: Final = (
    *("kind", "partition", "bucket", "total_buckets", "file_name", "file_size", "row_count"),
    *("min_sequence_number", "max_sequence_number", "schema_id", "level", "creation_time"),
    *("file_source", "external_path", "write_cols"),
)
"""Entry columns needed for planning; statistics, the slowest to decode, are left out."""

_OF_A_FILE: Final = (
    *("file_name", "file_size", "row_count", "min_sequence_number", "max_sequence_number"),
    *("schema_id", "level", "creation_time"),
)
_PLACE: Final = ("partition", "bucket", "total_buckets")

Rows = np.ndarray
"""Row numbers of files in a frame, in reading order."""


def plan_minor(live: EntryFrame, schema: TableSchema, options: Mapping[str, str]) -> list[CompactionTask]:
    """Plan tasks that join small files where it pays off.

    In each partition of a scalable table small files, the smallest first, become a task when they reach
    `target-file-size` and are at least `compaction.min.file-num`, or when they are `compaction.max.file-num`.
    In a queue the same goes for small files that follow each other.

    Args:
        live: live files, at least their `PLAN_COLUMNS`, in the order of their commits.
        schema: the table's newest.
        options: the table's, overridden by those of the job.

    Returns:
        Tasks without common files. Their files have no statistics.
    """
    return _tasks(live.df, minor_outline(live, schema, options))


def plan_full(live: EntryFrame, schema: TableSchema, options: Mapping[str, str]) -> list[CompactionTask]:
    """Plan tasks for all files that can be improved. Arguments and result are those of `plan_minor`.

    In a scalable table these are the small files of a partition from two on. In a queue, small files that follow
    each other, with the large ones among which more small ones lie; large ones at the start of a bucket stay. What was
    written under other names or types of columns is left to `plan_renewal`.
    """
    return _tasks(live.df, full_outline(live, schema, options))


def plan_renewal(
    live: EntryFrame, schema_ids: Sequence[int], planned: Sequence[CompactionTask]
) -> list[CompactionTask]:
    """Plan a task for each file that was written in one of these versions of the schema and is in no task yet.

    A file stays alone: it keeps its place in a queue. Small ones that this leaves are joined in the next round.
    """
    taken = [file.file_name for task in planned for file in task.files]
    mask = pl.col("schema_id").is_in(schema_ids) & ~pl.col("file_name").is_in(taken)
    if FENCE in live.df.columns:
        mask &= pl.col(FENCE).is_not_null()
    df = live.df.filter(mask)
    return _tasks(df, [np.array([row]) for row in range(df.height)])


def plan_rest(live: EntryFrame, schema: TableSchema, options: Mapping[str, str]) -> list[CompactionTask]:
    """Plan one task for the small files of a partition, however few; in a queue for those at the end of a bucket.

    Arguments and result are those of `plan_minor`.
    """
    limits = PackingLimits.of(options)
    outline = _in_partitions(live.df, limits, lambda sizes: pack_rest(sizes, limits))
    return _tasks(live.df, outline + _in_queues(live.df, schema, lambda queue: pack_queue_end(queue, limits)))


def plan_sort(live: EntryFrame) -> list[CompactionTask]:
    """Plan one task for each partition, with all of its live files that may be combined. Not for queues, whose order it
    would destroy.

    `live` and the result are those of `plan_minor`.
    """
    is_fenced = FENCE in live.df.columns
    mask = pl.col(FENCE).is_not_null() if is_fenced else None
    grouped = _grouped(live.df, (*_PLACE, FENCE) if is_fenced else _PLACE, mask)
    return _tasks(live.df, [_rows(grouped, run) for run in _groups(grouped)])


def minor_outline(live: EntryFrame, schema: TableSchema, options: Mapping[str, str]) -> list[Rows]:
    """Return the tasks of `plan_minor` as row numbers in the frame."""
    limits = PackingLimits.of(options)
    outline = _in_partitions(live.df, limits, lambda sizes: pack(sizes, limits))
    return outline + _in_queues(live.df, schema, lambda queue: pack_queue(queue, limits))


def full_outline(live: EntryFrame, schema: TableSchema, options: Mapping[str, str]) -> list[Rows]:
    """Return the tasks of `plan_full` as row numbers in the frame."""
    limits = PackingLimits.of(options)
    small = _small_files(live.df, limits)
    weight = limits.full_weight(1) - limits.full_weight(0)
    per_file = pl.col("file_size") * weight + limits.full_weight(0)
    # A partition is divided evenly: a remainder of a few files would make a small one.
    evenly = per_file.cum_sum().over("group") - per_file
    total = per_file.sum().over("group")
    parts = (total + 1e-9).floor().clip(lower_bound=1)
    small = small.with_columns(part=(evenly / total * parts).floor())
    runs = _groups(small, "group", "part")
    sizes = np.add.reduceat(small["file_size"].to_numpy(), [run.start for run in runs]) if runs else ()
    outline = [
        _rows(small, run)
        for run, size in zip(runs, sizes, strict=True)
        if limits.gains(run.end - run.start, int(size))
    ]
    return outline + _in_queues(live.df, schema, lambda queue: pack_queue_fully(queue, limits))


@dataclass(frozen=True, slots=True)
class Gain:
    """Estimated effect of carrying out an outline."""

    files_before: int
    files_after: int
    """An estimate, assuming that the bytes stay the same."""


def gain_of(live: EntryFrame, outline: Sequence[Rows], options: Mapping[str, str]) -> Gain:
    """Estimate the number of files an outline's tasks read and write."""
    limits = PackingLimits.of(options)
    sizes = live.df["file_size"].to_numpy()
    after = sum(limits.files_after(int(sizes[rows].sum())) for rows in outline)
    return Gain(sum(len(rows) for rows in outline), after)


def _in_partitions(
    df: pl.DataFrame, limits: PackingLimits, packed: Callable[[Sequence[int]], Sequence[FileRun]]
) -> list[Rows]:
    """Pack the small files of scalable tables by size, as row numbers in the frame."""
    small = _small_files(df, limits).sort("group", "file_size", maintain_order=True)
    sizes = small["file_size"].to_list()
    outline = []
    for group in _groups(small):
        runs = packed(sizes[group.start : group.end])
        # In the order of their commits: rows written together stay together.
        outline += [np.sort(_rows(small, run, group.start)) for run in runs]
    return outline


def _small_files(df: pl.DataFrame, limits: PackingLimits) -> pl.DataFrame:
    """Return small files of scalable tables that may be combined, by `group` and in commit order."""
    mask = (pl.col("total_buckets") <= 0) & (pl.col("file_size") < limits.small)
    if FENCE not in df.columns:
        return _grouped(df, _PLACE, mask)
    return _grouped(df, (*_PLACE, FENCE), mask & pl.col(FENCE).is_not_null())


def _grouped(df: pl.DataFrame, keys: Sequence[str], mask: pl.Expr | None = None) -> pl.DataFrame:
    """Return size and row number (`row`) of the files, sorted by the number (`group`) of their keys' values."""
    kept = df.select(*keys, "file_size").with_row_index("row")
    kept = kept if mask is None else kept.filter(mask)
    groups = kept.select(keys).unique(maintain_order=True).with_row_index("group")
    if groups.height <= 1:
        return kept.with_columns(group=pl.lit(0, pl.UInt32))
    return kept.join(groups, on=list(keys), maintain_order="left").sort("group", maintain_order=True)


def _groups(sorted_df: pl.DataFrame, *keys: str) -> list[FileRun]:
    """Return the bounds of each group."""
    if sorted_df.height == 0:
        return []
    changes = np.zeros(sorted_df.height - 1, dtype=bool)
    for key in keys or ("group",):
        changes |= np.diff(sorted_df[key].to_numpy()) != 0
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), sorted_df.height]
    return [FileRun(start, end) for start, end in pairwise(edges)]


def _rows(sorted_df: pl.DataFrame, run: FileRun, offset: int = 0) -> Rows:
    return sorted_df["row"][offset + run.start : offset + run.end].to_numpy().astype(np.int64)


def _in_queues(
    df: pl.DataFrame, schema: TableSchema, packed: Callable[[Queue], Sequence[FileRun]]
) -> list[Rows]:
    """Pack the buckets of queues, as row numbers in the frame."""
    ordered = _read_order(df, schema)
    if ordered.height == 0:
        return []
    sizes, firsts, rows, kinds = (
        ordered[name].to_list() for name in ("file_size", "min_sequence_number", "row_count", "kin")
    )
    outline = []
    for group in _groups(ordered):
        part = slice(group.start, group.end)
        queue = Queue(sizes[part], firsts[part], rows[part], kinds[part])
        outline += [_rows(ordered, run, group.start) for run in packed(queue)]
    return outline


def _read_order(df: pl.DataFrame, schema: TableSchema) -> pl.DataFrame:
    """Return files of queues, bucket by bucket in reading order, and which may be combined (`kin`)."""
    fence = pl.col(FENCE) if FENCE in df.columns else pl.lit(0)
    queues = (
        df.select(
            *(*_PLACE, "file_size", "row_count", "min_sequence_number"), fence.cast(pl.Int64).alias(FENCE)
        )
        .with_row_index("row")
        .filter(pl.col("total_buckets") > 0)
    )
    if queues.height == 0:
        return queues
    partitions = queues.select("partition").unique(maintain_order=True)
    numbers: dict[object, int] = {}
    keys = keys_of_rows(partitions["partition"], schema)
    partitions = partitions.with_columns(
        logical=pl.Series([numbers.setdefault(key, len(numbers)) for key in keys], dtype=pl.Int64)
    )
    kin = queues.select(*_PLACE, FENCE).unique(maintain_order=True).with_row_index("kin")
    kin = kin.with_columns(
        kin=pl.when(pl.col(FENCE).is_null()).then(LEFT_OUT).otherwise(pl.col("kin").cast(pl.Int64))
    )
    most = int(queues["bucket"].max()) + 1  # type: ignore[arg-type]
    return (
        queues.join(partitions, on="partition", maintain_order="left")
        .join(kin, on=[*_PLACE, FENCE], nulls_equal=True, maintain_order="left")
        .with_columns(group=pl.col("logical") * most + pl.col("bucket"))
        .sort("group", "min_sequence_number", maintain_order=True)
    )


def _tasks(df: pl.DataFrame, outline: Sequence[Rows]) -> list[CompactionTask]:
    if not outline:
        return []
    chosen = df.select(*_PLACE, *_OF_A_FILE)[np.concatenate(outline)]
    files = list(_files(chosen))
    ends = np.cumsum([len(rows) for rows in outline]).tolist()
    starts = [0, *ends[:-1]]
    places = chosen.select(_PLACE)[starts].iter_rows()
    return [
        CompactionTask(partition, bucket, total, tuple(files[start:end]))
        for (partition, bucket, total), start, end in zip(places, starts, ends, strict=True)
    ]


def _files(df: pl.DataFrame) -> Iterator[DataFileMeta]:
    """Build file metadata of the entries, without what rewriting does not need."""
    names, sizes, rows, firsts, lasts, schema_ids, levels, created = (
        df.get_column(name).to_list() for name in _OF_A_FILE
    )
    # In the order of the members of DataFileMeta: by keyword it takes twice as long.
    return map(
        DataFileMeta,
        *(names, sizes, rows, repeat(EMPTY_STATS), firsts, lasts, schema_ids, levels),
        *(repeat(()), created),
    )
