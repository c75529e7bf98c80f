"""What a stream delivers between two positions in a branch's history.

APPEND snapshots deliver the files they added; COMPACT and ANALYZE snapshots change no rows and deliver
nothing; at a snapshot that takes rows away, `scan.on-overwrite` decides. Nothing is remembered between calls:
a position says everything, so a restarted query gets the same files for the same two positions.

Within one snapshot files have a fixed order, in which a position counts them: partitions in the order they
first appear, then buckets, then the order of writing. A predicate prunes files but never shifts that count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from anabranch.errors import AnabranchError, NotFoundError, OptionError
from anabranch.expr.bind import BoundPredicate
from anabranch.kernel.context import TableContext
from anabranch.kernel.guards import check_snapshot_readable
from anabranch.kernel.properties import PARENT_PROPERTY
from anabranch.kernel.scan.plan import Plan, split_starts
from anabranch.kernel.scan.request import ScanRequest
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.options import SPLIT_OPEN_FILE_COST, SPLIT_TARGET_SIZE
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import CommitKind, Snapshot
from anabranch.streaming.offsets import Position


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one step of a stream may take; None is no limit. At least one file is taken in any case."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True)
class Feed:
    """The history of one branch as a stream reads it."""

    context: TableContext
    schema: TableSchema
    on_overwrite: str = "fail"
    """``fail``, ``skip`` or ``added``, as in the option ``scan.on-overwrite``."""
    predicate: BoundPredicate | None = None

    def advance(self, start: Position, limits: Limits = UNLIMITED, *, until: int | None = None) -> Position:
        """How far a step from `start` goes: `start` itself if there is nothing new.

        Args:
            start: where the step begins.
            limits: how much it may take.
            until: the last snapshot it may take; the newest if None.

        Raises:
            NotFoundError: history does not go on from `start`: it was rewritten, or snapshots have expired.
            OptionError: the next snapshot takes rows away, and `scan.on-overwrite` is ``fail``.
        """
        position = start
        budget = _Budget(limits)
        for portion in self._portions(start, until):
            if portion.refusal is not None:
                if position == start:
                    raise portion.refusal
                return position
            if limits != UNLIMITED:
                taken = budget.take(self._files(portion), portion.first)
                if taken is not None:
                    return position if taken == portion.first else portion.after(taken)
            position = portion.end
        return position

    def rows_between(self, start: Position, end: Position) -> int:
        """How many rows the files between two positions hold, before any row is filtered."""
        return sum(f.file.row_count for f in self._wanted(start, end))

    def splits(self, start: Position, end: Position) -> list[Split]:
        """The files between two positions, in units of work.

        In a queue table all files of a bucket are one split, in the order of their commits; otherwise files
        of a bucket are packed up to `source.split.target-size`. Raises like `advance`.
        """
        by_folder: dict[str, list[_File]] = {}
        for f in self._wanted(start, end):
            by_folder.setdefault(f.file.path.rpartition("/")[0], []).append(f)
        groups = list(by_folder.values())
        if self.schema.bucket > 0:
            return [_split(group) for group in groups]
        return self._packed(groups)

    def _packed(self, groups: Sequence[Sequence[_File]]) -> list[Split]:
        files = [f for group in groups for f in group]
        starts = split_starts(
            np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
            np.array([f.file.size for f in files], np.int64),
            target=SPLIT_TARGET_SIZE.of(self.schema.options),
            open_cost=SPLIT_OPEN_FILE_COST.of(self.schema.options),
        ).tolist()
        return [_split(files[first:end]) for first, end in pairwise([*starts, len(files)])]

    def _wanted(self, start: Position, end: Position) -> Iterator[_File]:
        """Files between two positions that may hold rows of the predicate."""
        reached = start
        for portion in self._portions(start, end.snapshot):
            if portion.refusal is not None:
                raise portion.refusal
            last = None
            if portion.snapshot.id == end.snapshot:
                self._check_stamp(portion.snapshot, end)
                last = end.files if portion.full == end.full else None
            yield from (f for f in self._files(portion)[portion.first : last] if f.wanted)
            reached = portion.end
        if reached.snapshot < end.snapshot:
            raise self._gone(end)

    def _portions(self, start: Position, until: int | None) -> Iterator[_Portion]:
        """Snapshots from `start` on, the rest of a half delivered one first."""
        snapshot = self._verified(start)
        if start.files is not None and snapshot is not None:
            yield _Portion(snapshot, first=start.files, full=start.full)
        position = replace(start, files=None, full=False)
        while until is None or position.snapshot < until:
            found = self.context.snapshots.find(position.snapshot + 1)
            if found is None:
                self._check_no_gap(position.snapshot + 1)
                return
            self._check_parent(found, position)
            portion = self._portion(found)
            yield portion
            position = portion.end

    def _portion(self, snapshot: Snapshot) -> _Portion:
        if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
            return _Portion(snapshot, silent=True)
        check_snapshot_readable(self.context, snapshot)
        lists = self.context.manifests.read_list(snapshot.delta_manifest_list)
        # What was done counts, not what it was called: some writers put removals into an APPEND.
        if not any(meta.num_deleted_files for meta in lists):
            return _Portion(snapshot)
        match self.on_overwrite:
            case "added":
                return _Portion(snapshot)
            case "skip":
                return _Portion(snapshot, silent=True)
            case _:
                return _Portion(snapshot, refusal=self._overwritten(snapshot))

    def _files(self, portion: _Portion) -> list[_File]:
        """All files of the portion in their fixed order, those delivered before included."""
        if portion.silent:
            return []
        request = ScanRequest(self.context, portion.snapshot, self.schema)
        plan = _plan(request, full=portion.full)
        wanted = None
        if self.predicate is not None and plan.files.height:
            pruned = _plan(replace(request, predicate=self.predicate), full=portion.full)
            wanted = {f.path for split in pruned.splits for f in split.files}
        return [
            _File(split.partition, split.bucket, f, wanted is None or f.path in wanted)
            for split in plan.splits
            for f in split.files
        ]

    def _verified(self, position: Position) -> Snapshot | None:
        """The snapshot of a position, or None if it has rightly expired. Raises `NotFoundError`."""
        if position.snapshot == 0:
            return None
        snapshot = self.context.snapshots.find(position.snapshot)
        if snapshot is not None:
            self._check_stamp(snapshot, position)
            return snapshot
        head = self.context.snapshots.head()
        if head is None or head.id < position.snapshot:
            raise self._rewritten(
                position, f"the newest snapshot is {head.id}" if head else "it has no snapshots"
            )
        if position.files is not None:
            raise self._gone(position)
        return None

    def _check_stamp(self, snapshot: Snapshot, position: Position) -> None:
        if position.stamp is not None and snapshot.stamp != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} is another one now")

    def _check_parent(self, snapshot: Snapshot, position: Position) -> None:
        """Also where the position's own snapshot has expired, the one after it may say what it was built on."""
        parent = snapshot.properties.get(PARENT_PROPERTY)
        if parent is not None and position.stamp is not None and parent != position.stamp:
            raise self._rewritten(position, f"snapshot {snapshot.id} was built on another one")

    def _check_no_gap(self, missing: int) -> None:
        """Raises `NotFoundError` if history goes on behind the missing snapshot."""
        head = self.context.snapshots.head()
        if head is not None and head.id > missing and self.context.snapshots.find(missing) is None:
            raise self._gone(Position(missing, None))

    def _rewritten(self, position: Position, found: str) -> AnabranchError:
        return NotFoundError(
            f"HISTORY_REWRITTEN: the stream had read '{self.context.title}' up to snapshot {position.snapshot} "
            f"with stamp {position.stamp}, but {found}: the table was rolled back or replaced",
            hint="compare what was delivered with the table, then start with a new checkpoint location and "
            "scan.mode=from-snapshot, scan.snapshot-id=<first snapshot still wanted>.",
        )

    def _gone(self, position: Position) -> AnabranchError:
        earliest = self.context.snapshots.earliest_id()
        return NotFoundError(
            f"the stream needs snapshot {position.snapshot} of '{self.context.title}', which has expired; "
            f"the earliest is {earliest}",
            hint=f"what expired is lost to this stream. Start with a new checkpoint location and "
            f"scan.mode=latest-full (everything again), or scan.mode=from-snapshot, scan.snapshot-id={earliest}; "
            "a longer snapshot.time-retained keeps it from happening.",
        )

    def _overwritten(self, snapshot: Snapshot) -> AnabranchError:
        return OptionError(
            f"snapshot {snapshot.id} of '{self.context.title}' ({snapshot.commit_kind}) takes away rows that a "
            "stream may have delivered, and scan.on-overwrite is 'fail'",
            hint="set scan.on-overwrite=skip to pass over it, or scan.on-overwrite=added to deliver the rows "
            "it added, and restart the query from its checkpoint.",
        )


class _File(NamedTuple):
    partition: bytes
    bucket: int
    file: SplitFile
    wanted: bool
    """Whether it may hold rows of the predicate."""


@dataclass(frozen=True)
class _Portion:
    """One snapshot as a part of a stream."""

    snapshot: Snapshot
    first: int = 0
    """Files of it that were delivered before."""
    full: bool = False
    """All live files of the snapshot, not those it added."""
    silent: bool = False
    """It delivers nothing."""
    refusal: AnabranchError | None = None

    @property
    def end(self) -> Position:
        """With all of it delivered."""
        return Position(self.snapshot.id, self.snapshot.stamp)

    def after(self, files: int) -> Position:
        """With that many files of it delivered."""
        return replace(self.end, files=files, full=self.full)


@dataclass
class _Budget:
    """What a step may still take."""

    limits: Limits
    taken: Limits = field(default_factory=lambda: Limits(0, 0, 0))

    def take(self, files: Sequence[_File], first: int) -> int | None:
        """Take files from `first` on: the place of the one that does not fit any more, None if all do."""
        for place in range(first, len(files)):
            if files[place].wanted and not self._fits(files[place].file):
                return place
        return None

    def _fits(self, file: SplitFile) -> bool:
        used = self.taken
        more = Limits((used.files or 0) + 1, (used.bytes or 0) + file.size, (used.rows or 0) + file.row_count)
        pairs = (
            (more.files, self.limits.files),
            (more.bytes, self.limits.bytes),
            (more.rows, self.limits.rows),
        )
        if used.files and any(limit is not None and (value or 0) > limit for value, limit in pairs):
            return False
        self.taken = more
        return True


def _plan(request: ScanRequest, *, full: bool) -> Plan:
    return request.plan() if full else request.plan_delta()


def _split(files: Sequence[_File]) -> Split:
    return Split(files[0].partition, files[0].bucket, tuple(f.file for f in files))
