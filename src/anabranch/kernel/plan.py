"""The result of planning: which files to read, packed into splits, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import polars as pl

from anabranch.kernel.split import Split, SplitFile
from anabranch.spec.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PlanStep:
    """What one pruning step left over."""

    name: str
    manifests: int
    """Manifests that remain after the step."""
    files: int | None
    """Data files that remain after the step; None while only manifests are known."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """How planning came to its files, step by step."""

    steps: tuple[PlanStep, ...]
    splits: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """Files to read of one snapshot, in order. A value: it stays true whatever is committed meanwhile."""

    snapshot: Snapshot | None
    """None for a table that was never written."""
    files: pl.DataFrame = field(repr=False)
    """One row a file: partition, bucket, path, file_size, row_count, schema_id, format."""
    starts: np.ndarray = field(repr=False)
    """Row in `files` at which each split begins."""
    steps: tuple[PlanStep, ...] = ()

    @cached_property
    def splits(self) -> list[Split]:
        """The files in units of work; files of one bucket keep their order."""
        if self.files.height == 0:
            return []
        first = self.files.select("partition", "bucket")[self.starts]
        ends = [*self.starts[1:].tolist(), self.files.height]
        return [
            Split(partition, bucket, partial(_files, self.files, start, end))
            for (partition, bucket), start, end in zip(
                first.iter_rows(), self.starts.tolist(), ends, strict=True
            )
        ]

    @property
    def row_count(self) -> int:
        """Rows in the planned files, before any row is filtered."""
        return int(self.files["row_count"].sum())

    @property
    def report(self) -> PlanReport:
        return PlanReport(self.steps, len(self.starts), self.row_count, int(self.files["file_size"].sum()))


def _files(files: pl.DataFrame, start: int, end: int) -> tuple[SplitFile, ...]:
    part = files.select("path", "file_size", "row_count", "schema_id", "format").slice(start, end - start)
    return tuple(map(SplitFile._make, part.iter_rows()))


def split_starts(group: np.ndarray, sizes: np.ndarray, *, target: int, open_cost: int) -> np.ndarray:
    """Where splits begin in files ordered by group.

    A split takes files of one group until the next one would make it heavier than `target` bytes; a file
    weighs at least `open_cost`, so that very small files do not pile up in one split.
    """
    if len(group) == 0:
        return np.empty(0, np.int64)
    edges = np.flatnonzero(np.diff(group)) + 1
    group_starts = np.concatenate(([0], edges))
    group_ends = np.concatenate((edges, [len(group)]))
    reached = np.concatenate(([0], np.cumsum(np.maximum(sizes, open_cost))))
    starts: list[int] = []
    for begin, end in zip(group_starts.tolist(), group_ends.tolist(), strict=True):
        start = begin
        while start < end:
            starts.append(start)
            fits = int(np.searchsorted(reached, reached[start] + target, side="right")) - 1
            start = max(fits, start + 1)
    return np.asarray(starts, np.int64)
