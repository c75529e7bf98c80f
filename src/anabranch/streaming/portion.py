"""Portion of a stream: the files of one snapshot that are delivered, and their order.

Files have a fixed order within a snapshot, in which a position counts them: rows that the snapshot took away
before rows that it added, partitions by when they were created or by their values, then buckets, then the order of
writing. A predicate prunes files but never shifts that count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.data_file import FileKind, FileSource
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.kernel.scan.deltas import added_files
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import PartitionOrder, ScanRequest
from anabranch.kernel.scan.split import SplitFile
from anabranch.streaming.difference import Crossing
from anabranch.streaming.late_rows import late
from anabranch.streaming.offsets import Position


@dataclass(frozen=True)
class Portion:
    """Part of one snapshot that a stream delivers."""

    snapshot: Snapshot
    first: int = 0
    """Number of its files that were delivered before."""
    full: bool = False
    """Whether it is all live files of the snapshot instead of those it added."""
    since: Crossing | None = None
    """Jump over expired snapshots: all rows added since an earlier one. Delivered as a whole."""
    removed: bool = False
    """Whether it includes the files that it removed, before those it added."""
    silent: bool = False
    """Whether it delivers nothing."""
    late_before: int | None = None
    """Watermark of the table before the snapshot: added rows with earlier event times are late."""
    refusal: AnabranchError | None = None
    begun_unordered: bool = False
    """Whether an earlier release began it, whose positions count partitions in commit order."""

    @property
    def end(self) -> Position:
        """Return the position after all of it."""
        return Position.after(self.snapshot)

    def after(self, files: int, listing: str | None) -> Position:
        """Return the position after that many of its files."""
        return replace(
            self.end,
            files=files,
            full=self.full,
            listing=listing if files else None,
            watermark=self.late_before,
        )


class PortionFile(NamedTuple):
    """A file with its place within a snapshot."""

    partition: bytes
    bucket: int
    file: SplitFile
    wanted: bool
    """Whether it may hold rows to be delivered."""
    removed: bool = False
    late_before: int | None = None


@dataclass(frozen=True)
class Listing:
    """Order in which the files of a snapshot are listed."""

    context: TableContext
    schema: TableSchema
    predicate: BoundPredicate | None = None
    sort_partitions: bool = False
    """Whether partitions are ordered by their values instead of their creation."""
    late_rows: str = "keep"
    event_time: Field | None = None
    """Column by which rows are late; needed unless they are kept."""

    def name(self, portion: Portion) -> str | None:
        """Return the name of the portion's file order in positions; None for the order of the commit."""
        words = ["removed"] if portion.removed else []
        match self._order(portion):
            case PartitionOrder.VALUE:
                words.append("by-partition")
            case PartitionOrder.CREATION if self.schema.partition_keys:
                words.append("by-creation")
        return "-".join(words) or None

    def files(self, portion: Portion) -> list[PortionFile]:
        """Return all files of a portion in their fixed order, including those delivered before."""
        if portion.silent:
            return []
        request = ScanRequest(
            self.context, portion.snapshot, self.schema, partition_order=self._order(portion)
        )
        if portion.full:
            return self._listed(request, ScanRequest.plan)
        if portion.since is not None:
            new = portion.since.added
            live = self._listed(request, ScanRequest.plan, late_before=portion.late_before)
            return [f for f in live if (f.partition, f.bucket, f.file.path.rpartition("/")[2]) in new]
        added = self._listed(request, ScanRequest.plan_delta, late_before=portion.late_before)
        return [*self._listed(request, _plan_removed, removed=True), *added] if portion.removed else added

    def files_of(self, portions: Sequence[Portion]) -> list[list[PortionFile]]:
        """Return the files of each portion, as `files` does; added files of several snapshots are planned at once."""
        found: list[list[PortionFile]] = []
        for (is_plain, order), group in groupby(portions, key=lambda p: (self._is_plain(p), self._order(p))):
            together = [*group]
            if not is_plain or len(together) == 1:
                found += map(self.files, together)
                continue
            added = added_files(self.context, self.schema, [p.snapshot for p in together], order)
            found += [
                [PortionFile(*file, wanted=True, late_before=portion.late_before) for file in files]
                for portion, files in zip(together, added, strict=True)
            ]
        return found

    def _is_plain(self, portion: Portion) -> bool:
        """Whether it delivers exactly the files that its snapshot added."""
        is_other = portion.silent or portion.full or portion.removed or portion.since is not None
        return not is_other and self.predicate is None and self.late_rows == "keep"

    def _order(self, portion: Portion) -> PartitionOrder:
        if portion.begun_unordered:
            return PartitionOrder.APPEARANCE
        return PartitionOrder.VALUE if self.sort_partitions else PartitionOrder.CREATION

    def _listed(
        self,
        request: ScanRequest,
        plan: Callable[[ScanRequest], Plan],
        *,
        removed: bool = False,
        late_before: int | None = None,
    ) -> list[PortionFile]:
        found = plan(request)
        if not found.files.height:
            return []
        wanted = None if self.predicate is None else _paths(plan(replace(request, predicate=self.predicate)))
        if self.late_rows != "keep" and self.event_time is not None and late_before is not None:
            tardy = _paths(plan(replace(request, predicate=late(self.event_time, late_before))))
        else:
            tardy = None
        files = []
        for split in found.splits:
            for file in split.files:
                before = late_before if tardy is None or file.path in tardy else None
                is_wanted = wanted is None or file.path in wanted
                if self.late_rows == "only" and before is None:
                    is_wanted = False
                files.append(PortionFile(split.partition, split.bucket, file, is_wanted, removed, before))
        return files


def is_rewrite(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether a commit of another engine provably only rewrote rows, like a compaction.

    As many rows were added as taken away in every partition, and all of them into files that a compaction made.
    """
    if WRITER_PROPERTY in snapshot.properties:
        return False  # ours are called what they are: a rollback may well bring back compacted files
    lists = context.manifests.read_list(snapshot.delta_manifest_list)
    delta = context.manifests.entries(lists, only=("kind", "partition", "row_count", "file_source")).df
    added = delta.filter(pl.col("kind") == int(FileKind.ADD))
    if added.is_empty() or not (added["file_source"] == int(FileSource.COMPACT)).fill_null(value=False).all():
        return False
    rows = pl.when(pl.col("kind") == int(FileKind.ADD)).then("row_count").otherwise(-pl.col("row_count"))
    return bool((delta.group_by("partition").agg(rows.sum().alias("rows"))["rows"] == 0).all())


def _plan_removed(request: ScanRequest) -> Plan:
    return request.plan_delta(removed=True)


def _paths(plan: Plan) -> set[str]:
    return {file.path for split in plan.splits for file in split.files}
