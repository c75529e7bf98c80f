"""Delivery of a stream between two positions in a branch's history.

APPEND snapshots deliver the files they added; COMPACT and ANALYZE snapshots change no rows and deliver
nothing; at a snapshot that takes rows away, `scan.on-overwrite` decides. Nothing is remembered between calls:
a position says everything, so a restarted query gets the same files for the same two positions.

Files of one bucket come in the order in which they were written, across steps and within one. Partitions come in
the order of their creation, or of their values with `scan.plan-sort-partition`; in a step of several snapshots, in
that in which they first appear. For the order within a snapshot see `anabranch.streaming.portion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import polars as pl

from anabranch.errors import AnabranchError, OptionError
from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.properties import EXPIRED_PARTITIONS_PROPERTY
from anabranch.kernel.log.seals import is_replaced_by
from anabranch.kernel.scan.partitions import in_order_of_values
from anabranch.kernel.scan.plan import split_starts
from anabranch.lazy import lazy
from anabranch.options import (
    FILE_CHECKSUM,
    SCAN_BOUNDED_WATERMARK,
    SCAN_LATE_ROWS,
    SCAN_ON_OVERWRITE,
    SCAN_PLAN_SORT_PARTITION,
    SPLIT_OPEN_FILE_COST,
    SPLIT_TARGET_SIZE,
)
from anabranch.streaming.ahead import Ahead, PortionPlanner
from anabranch.streaming.difference import Crossing
from anabranch.streaming.history import History
from anabranch.streaming.late_rows import event_time_of
from anabranch.streaming.limits import UNLIMITED, Budget, Limits, WatermarkBound
from anabranch.streaming.offsets import FeedFile, FeedSplit, Position
from anabranch.streaming.portion import Listing, Portion, PortionFile, is_rewrite


@dataclass(frozen=True)
class Feed:
    """History of one branch as a stream reads it."""

    context: TableContext
    schema: TableSchema
    on_overwrite: str = "fail"
    """Policy for snapshots that remove rows: ``fail``, ``skip``, ``added`` or ``changes`` (``scan.on-overwrite``)."""
    predicate: BoundPredicate | None = None
    sort_partitions: bool = False
    """Whether partitions are ordered by their values instead of their creation."""
    late_rows: str = "keep"
    """Policy for late rows: ``keep``, ``drop`` or ``only``; files without any wanted row are skipped."""
    bounded_watermark: int | None = None
    """Bound: the stream ends before the first snapshot with a larger watermark, in epoch milliseconds."""
    verify: bool = True
    """Whether reading checks the checksums of pages."""

    @classmethod
    def of(
        cls,
        context: TableContext,
        schema: TableSchema,
        options: Mapping[str, str],
        predicate: BoundPredicate | None = None,
    ) -> Self:
        """Create the feed for options of a read, which override the table's. Raises `OptionError`."""
        asked = {**schema.options, **options}
        feed = cls(
            context,
            schema,
            SCAN_ON_OVERWRITE.of(asked),
            predicate,
            SCAN_PLAN_SORT_PARTITION.of(asked),
            SCAN_LATE_ROWS.of(asked),
            SCAN_BOUNDED_WATERMARK.of(asked),
            FILE_CHECKSUM.of(asked),
        )
        _ = feed.event_time  # late rows of a table that cannot have any are refused before anything is read
        return feed

    def advance(
        self,
        start: Position,
        limits: Limits = UNLIMITED,
        *,
        until: int | None = None,
        most: int | None = None,
    ) -> Position:
        """Return the end of a step from `start`: `start` itself if there is nothing new.

        Args:
            start: where the step begins.
            limits: how much it may take.
            until: the last snapshot it may take; the newest if None.
            most: how many snapshots it may take.

        Raises:
            NotFoundError: history does not go on from `start`: it was rewritten, or snapshots have expired.
            OptionError: the next snapshot takes rows away, and `scan.on-overwrite` is ``fail``.
        """
        position = start
        budget = Budget(limits)
        is_limited = limits != UNLIMITED
        portions = self._portions(start, until, bound=self._bound, files=is_limited)
        planned = self._planned.with_files(portions) if is_limited else ((p, []) for p in portions)
        for number, (portion, files) in enumerate(planned):
            if number == most:
                return position
            if portion.refusal is not None:
                if position == start:
                    raise portion.refusal
                return position
            if is_limited and portion.since is not None:
                if position != start and position.snapshot != portion.since.held.id:
                    return position
                return portion.end
            if is_limited:
                rest = files[portion.first :]
                taken = budget.take([f.file if f.wanted else None for f in rest])
                if taken == 0:
                    return position
                if taken is not None:
                    return portion.after(portion.first + taken, self._listing.name(portion))
            position = portion.end
        return position

    def is_ended(self, position: Position) -> bool:
        """Whether a bounded stream has delivered everything within its bound; always False without a bound.

        It has if the next snapshot is there and its watermark is above the bound. Raises as `advance` does.
        """
        if self._bound is None:
            return False
        snapshot = self._history.verified(position)
        if snapshot is not None and self._bound.excludes(snapshot):
            return True
        if position.files is not None:
            return False
        following = self.context.snapshots.find(position.snapshot + 1)
        return following is not None and self._bound.excludes(following)

    def is_replaced_at(self, snapshot: Snapshot) -> bool:
        """Whether this stream is of main, and the snapshot is where another branch replaced it."""
        if self.context.main_generation is None:
            return False
        return is_replaced_by(self.context, snapshot) is not None

    def rows_between(self, start: Position, end: Position) -> int:
        """Return the number of rows in the files between two positions, before filters."""
        return sum(f.file.row_count for _, files in self._wanted(start, end) for f in files)

    def splits(self, start: Position, end: Position) -> list[FeedSplit]:
        """Return the files between two positions as splits.

        In a queue table all files of a bucket are one split, in the order of their commits; otherwise files
        of a bucket are packed up to `source.split.target-size`. Raises like `advance`.
        """
        watermark: int | None = None
        wanted: list[PortionFile] = []
        for portion, files in self._wanted(start, end):
            is_whole = portion.snapshot.id < end.snapshot or end.files is None
            watermark = portion.snapshot.watermark if is_whole else portion.late_before
            wanted += files
        return self.as_splits(wanted, watermark)

    def steps(self, start: Position, end: Position) -> Iterator[tuple[Snapshot, int]]:
        """Yield the snapshots between two positions, with the number of files that may hold wanted rows. Raises like `advance`."""
        for portion, files in self._wanted(start, end):
            yield portion.snapshot, len(files)

    def all_files(self, snapshot: Snapshot) -> list[PortionFile]:
        """Return all live files of a snapshot, in the order of a stream that begins with all rows."""
        return self._listing.files(Portion(snapshot, full=True))

    def as_splits(self, files: Sequence[PortionFile], watermark: int | None) -> list[FeedSplit]:
        """Pack files into splits: one per bucket for a queue, else by size."""
        by_folder: dict[str, list[PortionFile]] = {}
        for f in files:
            by_folder.setdefault(f.file.path.rpartition("/")[0], []).append(f)
        groups = self._in_order(list(by_folder.values()))
        if self.schema.bucket <= 0:
            groups = self._packed(groups)
        return [self._split(group, watermark) for group in groups]

    def _split(self, files: Sequence[PortionFile], watermark: int | None) -> FeedSplit:
        marked = tuple(FeedFile(f.file, f.removed, f.late_before, watermark) for f in files)
        return FeedSplit(files[0].partition, files[0].bucket, marked, self.context.branch)

    def _in_order(self, groups: list[list[PortionFile]]) -> list[list[PortionFile]]:
        """Order the files of each partition: as they come, or partitions by value."""
        if not self.sort_partitions or len(groups) < 2:
            return groups
        rows = pl.Series([group[0].partition for group in groups], dtype=pl.Binary).unique(
            maintain_order=True
        )
        places = {row: i for i, row in enumerate(in_order_of_values(rows, self.schema))}
        return sorted(groups, key=lambda group: places[group[0].partition])

    def _packed(self, groups: Sequence[Sequence[PortionFile]]) -> list[list[PortionFile]]:
        files = [f for group in groups for f in group]
        starts = split_starts(
            np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
            np.array([f.file.size for f in files], np.int64),
            target=SPLIT_TARGET_SIZE.of(self.schema.options),
            open_cost=SPLIT_OPEN_FILE_COST.of(self.schema.options),
        ).tolist()
        return [files[first:end] for first, end in pairwise([*starts, len(files)])]

    def _wanted(self, start: Position, end: Position) -> Iterator[tuple[Portion, list[PortionFile]]]:
        """Yield the portions between two positions, each with those files that may hold wanted rows.

        There is nothing before the start, for which Spark asks where it repeats the empty first batch of a query.
        What was planned is delivered, wherever the stream is to end by now.
        """
        if start == end or start.snapshot > end.snapshot:
            return
        reached = start
        for portion, files in self._planned.with_files(self._portions_to(start, end)):
            if portion.refusal is not None:
                raise portion.refusal
            is_part = portion.snapshot.id == end.snapshot and portion.full == end.full
            last = end.files if is_part else None
            yield portion, [f for f in files[portion.first : last] if f.wanted]
            reached = portion.end
        if reached.snapshot < end.snapshot:
            raise self._history.gone(end)

    def _portions_to(self, start: Position, end: Position) -> Iterator[Portion]:
        """Yield the portions between two positions, with the files of the last one listed as for `end`."""
        for portion in self._portions(start, end.snapshot):
            if portion.snapshot.id == end.snapshot:
                self._history.check_stamp(portion.snapshot, end)
                if end.files is not None and portion.full == end.full:
                    yield self._counted_as(portion, end)
                    continue
            yield portion

    def _portions(
        self,
        start: Position,
        until: int | None,
        *,
        bound: WatermarkBound | None = None,
        files: bool = True,
    ) -> Iterator[Portion]:
        """Yield the snapshots from `start` on within the bound, beginning with the rest of a partly delivered one.

        Args:
            start: where to begin.
            until: the last snapshot; the newest if None.
            bound: of the watermark.
            files: whether the files of the portions will be asked for.
        """
        history = History(self.context, Ahead(self.context, until, files=files).find)
        snapshot = self._history.verified(start)
        watermark = start.watermark if snapshot is None else snapshot.watermark
        if start.files is not None and snapshot is not None:
            if bound is not None and bound.excludes(snapshot):
                return
            yield self._rest(snapshot, start)
        position, last = replace(start, files=None, full=False), snapshot
        while until is None or position.snapshot < until:
            if last is not None and self.is_replaced_at(last):
                return  # main goes on elsewhere; what other engines put here since is in no main
            following = history.following(position)
            if following is None:
                return
            if isinstance(following, Crossing):
                found = following.left
                is_bounded = bound is not None and bound.excludes(found)
                if is_bounded or self.late_rows != "keep" or (until is not None and found.id > until):
                    raise self._history.gone(Position(position.snapshot + 1, None))
                yield Portion(found, since=following, late_before=watermark)
            else:
                found = following
                if bound is not None and bound.excludes(found):
                    return
                yield self._portion(found, watermark)
            position, watermark, last = Position.after(found), found.watermark, found

    def _portion(self, snapshot: Snapshot, watermark: int | None) -> Portion:
        """Return a snapshot as a portion with nothing delivered; `watermark` is that of the snapshot before it."""
        if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
            return Portion(snapshot, silent=True)
        check_snapshot_readable(self.context, snapshot)
        portion = Portion(snapshot, late_before=watermark)
        lists = self.context.manifests.read_list(snapshot.delta_manifest_list)
        # Decided by content, not by commit kind: some writers put removals into an APPEND.
        if not any(meta.num_deleted_files for meta in lists):
            return portion
        if is_rewrite(self.context, snapshot):
            return replace(portion, silent=True)
        match self.on_overwrite:
            case "added":
                return portion
            case "changes":
                return replace(portion, removed=True)
            case "fail" if EXPIRED_PARTITIONS_PROPERTY in snapshot.properties:
                return replace(portion, silent=True)  # age took them away, and no reader has to know
            case "skip":
                return replace(portion, silent=True)
            case _:
                return replace(portion, refusal=self._overwritten(snapshot))

    def _rest(self, snapshot: Snapshot, position: Position) -> Portion:
        """Return the remaining portion of a snapshot from a position inside of it."""
        assert position.files is not None
        if position.full:
            portion = Portion(snapshot, full=True)
        else:
            before = position.watermark
            if before is None and snapshot.id > 1:
                previous = self.context.snapshots.find(snapshot.id - 1)
                before = None if previous is None else previous.watermark
            portion = self._portion(snapshot, before)
        return replace(self._counted_as(portion, position), first=position.files)

    def _counted_as(self, portion: Portion, position: Position) -> Portion:
        """Return a portion whose files are listed as in a position inside of it. Raises `OptionError`."""
        if not position.files:
            return portion
        # Under another policy it may be silent or refused, but a portion once begun is finished.
        portion = replace(portion, silent=False, refusal=None)
        if position.listing is None and self.schema.partition_keys:
            portion = replace(portion, begun_unordered=True)
        if position.listing != self._listing.name(portion):
            raise OptionError(
                f"the stream stands inside of snapshot {position.snapshot} of '{self.context.title}', whose files were "
                f"counted as '{position.listing or 'usual'}' and would now be as '{self._listing.name(portion) or 'usual'}'",
                hint=f"go on with the {SCAN_ON_OVERWRITE.key} and {SCAN_PLAN_SORT_PARTITION.key} that it was begun with "
                "until it has delivered that snapshot.",
            )
        return portion

    @lazy
    def event_time(self) -> Field | None:
        """Column by which rows are late; None if it does not matter. Raises `OptionError`."""
        if self.late_rows == "keep":
            return None
        return event_time_of(self.schema, wanted_for=f"{SCAN_LATE_ROWS.key}={self.late_rows}")

    @lazy
    def _listing(self) -> Listing:
        return Listing(
            self.context, self.schema, self.predicate, self.sort_partitions, self.late_rows, self.event_time
        )

    @lazy
    def _planned(self) -> PortionPlanner:
        return PortionPlanner(self._listing)

    @property
    def _history(self) -> History:
        return History(self.context)

    @property
    def _bound(self) -> WatermarkBound | None:
        return (
            None if self.bounded_watermark is None else WatermarkBound(self.context, self.bounded_watermark)
        )

    def _overwritten(self, snapshot: Snapshot) -> AnabranchError:
        return OptionError(
            f"snapshot {snapshot.id} of '{self.context.title}' ({snapshot.commit_kind}) takes away rows that a "
            "stream may have delivered, and scan.on-overwrite is 'fail'",
            hint="set scan.on-overwrite=skip to pass over it, scan.on-overwrite=added to deliver the rows it added, "
            "or scan.on-overwrite=changes to deliver what it took away as well, and restart the query from its "
            "checkpoint.",
        )
