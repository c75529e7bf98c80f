"""The compaction coordinator: plans compaction over the lifetime of a job that writes or compacts a table.

A coordinator remembers the small files of a branch, learns of new ones from each snapshot, and packs
them into tasks. It does no work itself, has no thread, and holds no more of a file than packing needs.

    coordinator = Coordinator(context, options)
    while True:  # once a batch, or every ten seconds
        coordinator.observe()
        for task in coordinator.tasks():
            ...  # rewrite, commit
            coordinator.done(task, TaskEnd.COMMITTED)

A partition without a task for a while gets one for whatever it has; if only one small file
is left, or rewriting gains nothing, it is forgotten, so that memory is used for partitions being written. Forgotten
files are found again by a full round, by a restart, and whenever history makes the coordinator start over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.entry_frame import COLUMNS, EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.kernel.compaction.packing import PackingLimits
from anabranch.kernel.compaction.planning import PLAN_COLUMNS, plan_full, plan_minor, plan_rest
from anabranch.kernel.compaction.selection import live_files
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_writable
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.provenance.fence import FENCE, fenced
from anabranch.kernel.scan.request import check_supported
from anabranch.options import FULL_COMPACTION_DELTA_COMMITS, FULL_COMPACTION_SCALABLE

_ROUNDS_TO_REST: Final = 5
"""Rounds without a task after which a partition gets one for all of its small files."""
_ROUNDS_TO_FORGET: Final = 10
_MOST_SNAPSHOTS: Final = 256
"""Number of snapshots behind the newest from which starting over is cheaper."""
_LONGEST_PENALTY: Final = 256

Place = tuple[bytes, int]
"""Partition row and bucket."""


class TaskEnd(StrEnum):
    """Outcome of a task."""

    COMMITTED = "committed"
    GIVEN_UP = "given up"
    """Its files had changed since planning."""
    FAILED = "failed"
    """Retried later, with growing delays."""


@dataclass(slots=True)
class _Penalty:
    failures: int
    until: int
    """Round until which nothing is tried."""


class Coordinator:
    """Plans the compaction of one branch, round by round."""

    def __init__(self, context: TableContext, options: Mapping[str, str]) -> None:
        """Initialize without reading anything.

        Args:
            options: the job's, overriding the table's. With `full-compaction.delta-commits`, there is a round of full
                compaction every so many commits.
        """
        self._context = context
        self._job_options = dict(options)
        self._schema: TableSchema | None = None
        self._known: Snapshot | None = None
        self._is_lost = True
        self._files = _NO_FILES
        self._ages: dict[Place, int] = {}
        self._penalties: dict[Place, _Penalty] = {}
        self._backlog: list[CompactionTask] = []
        self._in_flight: dict[int, CompactionTask] = {}
        self._committed: list[CompactionTask] = []
        self._round = 0
        self._commits = 0

    @property
    def files(self) -> int:
        """Number of files it remembers."""
        return self._files.height

    @property
    def in_flight(self) -> tuple[CompactionTask, ...]:
        """Tasks that were handed out and are not done."""
        return tuple(self._in_flight.values())

    def observe(self) -> None:
        """Process the commits since the last call; on the first, all small files.

        Raises:
            NotFoundError: the table no longer exists.
            UnsupportedFeatureError: the table must not be written to.
        """
        schema = self._schema = self._context.schemas.latest()
        if schema is None:
            raise NotFoundError(f"table '{self._context.title}' does not exist any more")
        check_writable(schema, path=self._context.layout.schema_path(schema.id))
        head = self._context.snapshots.head(self._known)
        if head is not None:
            check_snapshot_writable(self._context, head)
        later = None if self._is_lost else self._since_known(head)
        try:
            if later is not None:
                self._take_in(later[::-1])
        except CorruptTableError:  # usually a snapshot that expired while it was read
            later = None
        if later is None:
            self._start_over()

    def tasks(self, limit: int | None = None) -> list[CompactionTask]:
        """Plan one round of tasks. Until `done` is called for a task, its files are in no other.

        Args:
            limit: the most tasks to return; the others come first in later rounds.
        """
        if self._schema is None or self._is_lost:
            return []
        self._round += 1
        self._files = self._files.filter(~_is_of(self._committed))
        self._committed.clear()
        if self._is_full_due:
            self._commits = 0
            self._plan(plan_full, live_files(self._context, self._known).df)
        else:
            self._plan(plan_minor, self._files)
        self._grow_older()
        self._files = _unsettled(self._files, self._limits)
        self._backlog.sort(key=lambda task: -len(task.files))
        given_out = self._backlog[:limit]
        del self._backlog[:limit]
        self._in_flight |= {id(task): task for task in given_out}
        return given_out

    def done(self, task: CompactionTask, end: TaskEnd) -> None:
        """Report the outcome of a task."""
        self._in_flight.pop(id(task), None)
        place = _place(task)
        match end:
            case TaskEnd.COMMITTED:
                self._penalties.pop(place, None)
                # Its files go before the next round; the new ones come with the snapshot that added them.
                self._committed.append(task)
            case TaskEnd.GIVEN_UP:
                self._is_lost = True  # its files return with all there is now
            case TaskEnd.FAILED:
                self._is_lost = True
                failures = 1 + (self._penalties[place].failures if place in self._penalties else 0)
                self._penalties[place] = _Penalty(failures, self._round + min(2**failures, _LONGEST_PENALTY))

    @property
    def _options(self) -> dict[str, str]:
        assert self._schema is not None
        return {**self._schema.options, **self._job_options}

    @property
    def _limits(self) -> PackingLimits:
        return PackingLimits.of(self._options)

    @property
    def _is_full_due(self) -> bool:
        every = FULL_COMPACTION_DELTA_COMMITS.of(self._options) or FULL_COMPACTION_SCALABLE.of(self._options)
        return every is not None and self._commits >= every

    # Following the history

    def _since_known(self, head: Snapshot | None) -> list[Snapshot] | None:
        """Return the snapshots after the known one, newest first; None if history does not lead there."""
        known = self._known
        if head is None or known is None:
            return [] if head is known else None
        later: list[Snapshot] = []
        for found in self._context.snapshots.backwards(head):
            if found.id == known.id:
                return later if found.stamp == known.stamp else None
            later.append(found)
            if found.id == known.id + 1 and found.properties.get(PARENT_PROPERTY) == known.stamp:
                return later
            if len(later) > _MOST_SNAPSHOTS:
                return None
        return None

    def _start_over(self) -> None:
        self._known = self._context.snapshots.head()
        self._files = self._worth_remembering(live_files(self._context, self._known).df.select(PLAN_COLUMNS))
        self._ages.clear()
        self._backlog.clear()
        self._is_lost = False

    def _take_in(self, later: Sequence[Snapshot]) -> None:
        """Apply the files added and removed by these snapshots, oldest first."""
        if not later:
            return
        manifests = self._context.manifests
        metas = [meta for found in later for meta in manifests.read_list(found.delta_manifest_list)]
        changes = manifests.entries(metas, only=PLAN_COLUMNS)
        check_supported(changes.df, self._context)
        files = EntryFrame(pl.concat([self._files, changes.df])).merged(strict=False).adds().df
        self._files = self._worth_remembering(files)
        added = changes.adds().df.filter(pl.col("file_size") < self._limits.small)
        for place in added.select(_PLACE).unique().iter_rows():
            self._ages.pop(place, None)
        self._commits += sum(
            found.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE) for found in later
        )
        self._known = later[-1]

    def _worth_remembering(self, files: pl.DataFrame) -> pl.DataFrame:
        """Keep small files; in queues also the large ones between them."""
        return files.filter((pl.col("total_buckets") > 0) | (pl.col("file_size") < self._limits.small))

    # A round

    def _plan(self, plan: Planner, files: pl.DataFrame) -> None:
        """Add tasks for these files to the backlog, skipping files in a task or under a penalty."""
        assert self._schema is not None
        self._backlog += plan(EntryFrame(self._fenced(files)), self._schema, self._options)

    def _fenced(self, files: pl.DataFrame) -> pl.DataFrame:
        resting = [place for place, penalty in self._penalties.items() if penalty.until > self._round]
        is_free = ~_is_of([*self.in_flight, *self._backlog])
        for partition, bucket in resting:
            is_free &= (pl.col("partition") != partition) | (pl.col("bucket") != bucket)
        if FENCE not in files.columns:
            files = fenced(self._context, self._known, files)
        fence = pl.col(FENCE) if FENCE in files.columns else pl.lit(0)
        return files.with_columns(pl.when(is_free).then(fence).otherwise(None).alias(FENCE))

    def _grow_older(self) -> None:
        """Give long-waiting partitions a task for what they have, and forget those without a gain."""
        free = self._fenced(self._files).filter(
            pl.col(FENCE).is_not_null() & (pl.col("file_size") < self._limits.small)
        )
        busy = {_place(task) for task in (*self.in_flight, *self._backlog)}
        busy |= {place for place, penalty in self._penalties.items() if penalty.until > self._round}
        ages = dict.fromkeys(busy, 0)
        waiting: list[Place] = []
        for partition, bucket, count in free.group_by(_PLACE).len().iter_rows():
            place = (partition, bucket)
            if place in busy:
                continue
            age = self._ages.get(place, 0) + 1
            if age <= _ROUNDS_TO_FORGET:
                ages[place] = age
            if count > 1 and age > _ROUNDS_TO_REST:
                waiting.append(place)
        self._ages = ages
        if waiting:
            self._plan(plan_rest, _in_places(self._files, waiting))
            ages.update((_place(task), 0) for task in self._backlog)
        self._files = _in_places(self._files, ages)


Planner = Callable[[EntryFrame, TableSchema, Mapping[str, str]], list[CompactionTask]]

_PLACE: Final = ("partition", "bucket")
_NO_FILES: Final = pl.DataFrame(schema={name: COLUMNS[name] for name in PLAN_COLUMNS})


def _place(task: CompactionTask) -> Place:
    return task.partition, task.bucket


def _is_of(tasks: Sequence[CompactionTask]) -> pl.Expr:
    """Whether a file belongs to one of the tasks."""
    names = pl.Series([file.file_name for task in tasks for file in task.files], dtype=pl.String)
    return pl.col("file_name").is_in(names.implode())


def _in_places(files: pl.DataFrame, places: Iterable[Place]) -> pl.DataFrame:
    """Return the files in these partitions and buckets, in order."""
    wanted = pl.DataFrame([*places], schema={name: files.schema[name] for name in _PLACE}, orient="row")
    return files.join(wanted, on=_PLACE, how="semi", maintain_order="left")


def _unsettled(files: pl.DataFrame, limits: PackingLimits) -> pl.DataFrame:
    """Drop files up to the last large one of a queue's bucket, which can gain nothing more."""
    is_queue = pl.col("total_buckets") > 0
    queues = files.with_row_index("row").filter(is_queue)
    if queues.height == 0:
        return files
    is_large = (pl.col("file_size") >= limits.small).cast(pl.Int64)
    large_from_here = is_large.cum_sum(reverse=True).over(_PLACE)
    ordered = queues.sort("min_sequence_number", maintain_order=True)
    settled = ordered.filter(large_from_here > is_large)["row"]
    return files.with_row_index("row").filter(~pl.col("row").is_in(settled.implode())).drop("row")
