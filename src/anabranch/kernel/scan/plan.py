"""The result of planning: which files to read, packed into splits, and how they were chosen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

import numpy as np
import polars as pl

from anabranch.format.records.layout import Layout, file_format_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.lazy import lazy
from anabranch.tabular import Glance, Shown, size_text

EMPTY_FILES = pl.DataFrame(
    schema={
        "folder": pl.Int64,
        "partition": pl.Binary,
        "bucket": pl.Int32,
        "file_name": pl.String,
        "file_size": pl.Int64,
        "row_count": pl.Int64,
        "schema_id": pl.Int64,
    }
)
"""Empty frame of planned files, for its columns."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Result of one pruning step."""

    name: str
    manifests: int
    """Manifests that remain after the step."""
    files: int | None
    """Data files that remain after the step; None while only manifests are known."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Statistics of planning, step by step."""

    steps: tuple[PlanStep, ...]
    splits: int
    rows: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Files to read of one snapshot, in order. Immutable: stays valid whatever is committed meanwhile.

    Example:
        >>> plan = table.scan("day = '2026-01-02'").plan()
        >>> plan.row_count, len(plan.splits)
        (2, 1)
        >>> [file.row_count for split in plan.splits for file in split.files]
        [2]
    """

    snapshot: Snapshot | None
    """None for a table that was never written."""
    files: pl.DataFrame = field(repr=False)
    """One row per file, with the columns of `EMPTY_FILES`."""
    folders: tuple[str, ...] = field(repr=False)
    """Folders of the partitions, by the number in column `folder`; empty text without partitions."""
    starts: np.ndarray = field(repr=False)
    """Row in `files` at which each split begins."""
    steps: tuple[PlanStep, ...] = ()

    def _glance(self) -> Glance:
        of = "a table that was never written" if self.snapshot is None else f"snapshot {self.snapshot.id}"
        size = size_text(int(self.files["file_size"].sum()))
        fact = f"{self.files.height:,} files in {len(self.starts):,} splits, {self.row_count:,} rows, {size}"
        rows = [(step.name, step.manifests, step.files) for step in self.steps]
        return Glance(f"Plan of {of}", [fact], ("step", "manifests", "files"), rows)

    @lazy
    def formats(self) -> frozenset[str]:
        """Formats of the files, by their names."""
        return frozenset(self.files["file_name"].str.extract(r"\.([^.]*)$").fill_null("").unique())

    @lazy
    def schema_ids(self) -> frozenset[int]:
        """Schemas that the files were written with."""
        return frozenset(self.files["schema_id"].unique())

    @lazy
    def splits(self) -> list[Split]:
        """The files in units of work; files of one bucket keep their order."""
        if self.files.height == 0:
            return []
        first = self.files.select("partition", "bucket", "folder")[self.starts]
        ends = [*self.starts[1:].tolist(), self.files.height]
        return [
            Split(partition, bucket, partial(self._split_files, folder, bucket, start, end))
            for (partition, bucket, folder), start, end in zip(
                first.iter_rows(), self.starts.tolist(), ends, strict=True
            )
        ]

    def _split_files(self, folder: int, bucket: int, start: int, end: int) -> tuple[SplitFile, ...]:
        path = Layout().bucket_path(self.folders[folder], bucket)
        return tuple(
            SplitFile(f"{path}/{name}", size, rows, schema_id, file_format_of(name))
            for name, size, rows, schema_id in self._rows(start, end)
        )

    def _rows(self, start: int, end: int) -> Iterator[tuple[str, int, int, int]]:
        """Name, size, rows and schema of some files."""
        starts, chunks = self._chunks
        at = bisect_right(starts, start) - 1
        while start < end:
            part = chunks[at][start - starts[at] : end - starts[at]]
            yield from part.iter_rows()
            start, at = start + part.height, at + 1

    @lazy
    def _chunks(self) -> tuple[list[int], list[pl.DataFrame]]:
        """The files in frames of one chunk each, and the row at which each begins.

        A plan of many manifests has as many chunks, in the memory of the cache. To slice the whole for each split would
        take time for each of them.
        """
        columns = self.files.select("file_name", "file_size", "row_count", "schema_id")
        lengths = [length for length in columns["file_name"].chunk_lengths() if length]
        starts = [*accumulate(lengths, initial=0)][:-1]
        return starts, [columns[start : start + n] for start, n in zip(starts, lengths, strict=True)]

    def restricted_to(self, files: pl.DataFrame) -> Plan:
        """Keep only these files, given by partition, bucket and name; splits keep their bounds."""
        numbers = np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, self.files.height]))
        kept = self.files.with_columns(split=pl.Series(numbers, dtype=pl.Int64)).join(
            files, on=["partition", "bucket", "file_name"], how="semi", maintain_order="left"
        )
        is_first = kept["split"].diff().fill_null(1).to_numpy() != 0
        steps = (*self.steps, PlanStep("chosen", self.steps[-1].manifests if self.steps else 0, kept.height))
        return replace(self, files=kept.drop("split"), starts=np.flatnonzero(is_first), steps=steps)

    @property
    def row_count(self) -> int:
        """Rows in the planned files, before any row is filtered."""
        return int(self.files["row_count"].sum())

    @property
    def report(self) -> PlanReport:
        return PlanReport(self.steps, len(self.starts), self.row_count, int(self.files["file_size"].sum()))


def split_starts(group: np.ndarray, sizes: np.ndarray, *, target: int, open_cost: int) -> np.ndarray:
    """Return where splits begin in files ordered by group, the bucket of a partition.

    A split takes files of one bucket until the next one would make it heavier than `target` bytes; a file
    weighs at least `open_cost`, so that very small files do not pile up in one split.
    """
    if len(sizes) == 0:
        return np.empty(0, np.int64)
    edges = np.flatnonzero(np.diff(group)) + 1
    group_starts = np.concatenate(([0], edges))
    group_ends = np.concatenate((edges, [len(sizes)]))
    reached = np.concatenate(([0], np.cumsum(np.maximum(sizes, open_cost))))
    starts: list[int] = []
    for begin, end in zip(group_starts.tolist(), group_ends.tolist(), strict=True):
        start = begin
        while start < end:
            starts.append(start)
            fits = int(np.searchsorted(reached, reached[start] + target, side="right")) - 1
            start = max(fits, start + 1)
    return np.asarray(starts, np.int64)
