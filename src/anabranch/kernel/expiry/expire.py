"""Snapshot expiry: removes old snapshots, and the files that nothing reaches once they are gone.

The order makes it safe against concurrent operations:

0. The expiring snapshots and their metadata are read, and so are all refs: if one that stays cannot be read, nothing
   is changed at all.
1. Merge information is carried over, the ledger of exactly-once and the archive record the snapshots'
   commits and metadata; then their files are removed, oldest first, so that history never has a gap.
2. The hint EARLIEST is written, and all refs of all branches are read again. Whoever meanwhile made one to a snapshot
   that was just removed finds that snapshot gone when it checks, as it must, and takes its ref back.
3. Files named by the removed snapshots that no ref reaches are deleted.

On a full disk the records of step 1 find no space. Then hints are removed, which are dispensable, and
snapshots go a few at a time, then twice as many, and so on: their own files alone free more than their records take,
whatever else is still held. For a few, the archive may be written after their files are removed, into the space that
frees; the ledger never.

A file that no ref reached in step 2 stays unreachable: new refs are made of refs, and new commits are
built on the newest snapshot. A second expirer deletes the same files or others; a kill leaves files that
nothing refers to, which the cleaning of orphans finds.

The cost grows with the history only once: a ref reader and an index of manifest lists serve the whole expiry, so
each snapshot and each list is read once, however many rounds there are. Snapshots are removed in batches. Before each
batch it is checked that the first staying snapshot still exists. A number is reused only when history is
rolled back below it, which first removes everything above, including this one: so as long as it exists, by its stamp,
every number below it is still that of the snapshot that was read. Between that check and the removal no destructive
rollback of ours begins that frees one of the numbers (`anabranch.kernel.log.removal_marks`). Where another expiry took it, each
file is checked by itself. A store that dies within a batch may leave a gap, below which nothing is history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from anabranch.engine import Engine, LocalEngine
from anabranch.errors import AnabranchError, CommitConflictError, NotFoundError, StorageError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.support import check_expirable, check_readable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.expiry.candidates import DATA, candidates, no_files
from anabranch.kernel.expiry.consumer_expiry import next_read
from anabranch.kernel.expiry.list_index import ListIndex
from anabranch.kernel.expiry.missing_refs import check_no_snapshot_missing
from anabranch.kernel.expiry.reachability import Reachability
from anabranch.kernel.expiry.ref_files import Look, RefReader, SnapshotFile
from anabranch.kernel.expiry.removal import delete_empty_folders, delete_files
from anabranch.kernel.expiry.retention import RetainedHistory, Retention
from anabranch.kernel.log.archive import archive
from anabranch.kernel.log.archive import tidy as tidy_archive
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.ledger import hand_over, is_long, tidy
from anabranch.kernel.log.lost_pointers import check_main_readable
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.removal_marks import mark_removal, unmark_removal
from anabranch.kernel.log.removals import removed_stamps
from anabranch.kernel.log.rollback_pins import next_rewound
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.provenance.carry import carried_after, carry_over
from anabranch.options import LEDGER_TIME_RETAINED

_SNAPSHOTS_AT_ONCE = 50_000
"""Bounds memory for the metadata of one round."""
_FILES_AT_ONCE = 1_000_000
"""Data files whose reachability is computed at once."""
_SNAPSHOTS_IF_FULL = 8
"""Batch size on a full disk: each frees a block or more, and the records of all of them take two or three."""
_REMOVED_AT_ONCE = 64
_REMOVED_AT_ONCE_FAR = 1_000
"""Snapshots that go with one request, where each takes its time."""
_LOOKS = 5
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Tally:
    """Number and bytes of files; bytes as far as the metadata tells."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class Expiry:
    """Result of an expiry, or of its dry run."""

    snapshots: tuple[int, ...] = ()
    """Ids of the removed snapshots, ascending."""
    left: int = 0
    """Number of remaining snapshots."""
    files: pl.DataFrame = field(default_factory=no_files, repr=False)
    """The files removed with them, except snapshot files: `path`, `file_name`, `kind`, `bytes`."""
    held: Mapping[str, Tally] = field(default_factory=dict)
    """Files kept because refs other than the remaining snapshots reach them: by the name of one such ref, for
    example ``tag 'good'``."""
    unreadable: int = 0
    """Missing or damaged metadata files of the snapshots. What only they named stays, as orphans."""
    consumers: tuple[str, ...] = ()
    """Names of consumers that were removed because they had not moved for long."""
    tags: tuple[str, ...] = ()
    """Names of removed expired tags."""
    states: tuple[str, ...] = ()
    """Job state kept only for these tags, which the jobs release when they run next."""
    dry_run: bool = False
    """Whether nothing was removed."""

    @property
    def removed(self) -> dict[str, Tally]:
        """The files by kind: ``data``, ``index``, ``manifest``, ``manifest-list``, ``statistics``."""
        return tallies(self.files, "kind")

    def __add__(self, other: Expiry) -> Expiry:
        """Combine this with a later round."""
        held = dict(self.held)
        for ref, tally in other.held.items():
            held[ref] = held.get(ref, Tally()) + tally
        return Expiry(
            snapshots=self.snapshots + other.snapshots,
            left=other.left,
            files=pl.concat([self.files, other.files]),
            held=held,
            unreadable=self.unreadable + other.unreadable,
            consumers=self.consumers + other.consumers,
            tags=self.tags + other.tags,
            states=self.states + other.states,
            dry_run=other.dry_run,
        )


def tallies(files: pl.DataFrame, by: str) -> dict[str, Tally]:
    """Count files and bytes by the value of a column, ordered by it."""
    counts = files.group_by(by).agg(files=pl.len(), bytes=pl.col("bytes").sum()).sort(by)
    return {value: Tally(number, size) for value, number, size in counts.iter_rows()}


def expire(
    context: TableContext,
    retention: Retention,
    *,
    engine: Engine | None = None,
    dry_run: bool = False,
    without: Collection[str] = (),
    without_tags: Collection[str] = (),
    checked: TableSchema | None = None,
) -> Expiry:
    """Remove the snapshots of this branch that need not be kept, and what only they reached. See `Table.expire_snapshots`.

    A tag or savepoint does not keep a snapshot from expiring; it keeps its files. A consumer of the branch
    keeps the snapshots from the one it reads next.

    Args:
        without: names of consumers to ignore.
        without_tags: names of tags of the branch to ignore in a dry run. Otherwise they
            must be removed already.
        checked: what `check_cleanable` returned a moment ago; None to call it here.

    Raises as the method, and:
        CorruptTableError: also if a branch's newest snapshot was deleted by hand; nothing was deleted.
        CommitConflictError: history was rolled back meanwhile; nothing more was deleted.
    """
    schema = check_cleanable(context) if checked is None else checked
    check_expirable(schema, path=context.layout.schema_path(schema.id))
    total = Expiry(dry_run=dry_run)
    at_once = _SNAPSHOTS_AT_ONCE
    reader, lists = RefReader(context), ListIndex(context)
    while True:
        limit = None if retention.limit is None else retention.limit - len(total.snapshots)
        if not dry_run:
            limit = at_once if limit is None else min(limit, at_once)
        given_up = (
            frozenset(context.layout.tag_path(name) for name in without_tags) if dry_run else frozenset()
        )
        this_round = _Round(
            *(context, schema, replace(retention, limit=limit), without, given_up),
            *(engine or LocalEngine(), reader, lists),
        )
        try:
            part, was_cut = this_round.run(dry_run)
        except StorageError as error:
            if not error.out_of_space or at_once == _SNAPSHOTS_IF_FULL or not _make_room(context):
                raise
            at_once = _SNAPSHOTS_IF_FULL
            continue
        total += part
        is_all = not was_cut and len(part.snapshots) < at_once
        if dry_run or is_all or len(total.snapshots) == retention.limit:
            break
        at_once = min(2 * at_once, _SNAPSHOTS_AT_ONCE)
    if total.snapshots and not dry_run:
        _tidy_records(context, schema)
    return total


def _make_room(context: TableContext) -> bool:
    """Free a little of a full disk, where every file takes a block, by removing hints, which are dispensable.

    Returns False if there are none.
    """
    layouts = [context.on_branch(name).layout for name in (None, *branch_names(context))]
    hints = [path for layout in layouts for path in (layout.earliest_hint_path, layout.latest_hint_path)]
    there = [path for path in hints if context.storage.exists(path)]
    context.storage.delete_many(there)
    return bool(there)


def _tidy_records(context: TableContext, schema: TableSchema) -> None:
    """Join small records; if there is no space for that, a later expiry does it."""
    try:
        with reading(context.storage) as begin:
            tidied = begin(partial(_tidy_ledger, context, schema)), begin(partial(tidy_archive, context))
            for done in tidied:
                done()
    except StorageError as error:
        if not error.out_of_space:
            raise


def _tidy_ledger(context: TableContext, schema: TableSchema) -> None:
    if is_long(context):
        tidy(context, removal_time(context) - LEDGER_TIME_RETAINED.of(schema.options))


def check_cleanable(context: TableContext) -> TableSchema:
    """Return the newest schema, if this version supports everything the table uses.

    Raises `NotFoundError`, `UnsupportedFeatureError`, `CorruptTableError`.
    """
    with reading(context.storage) as begin:
        readable, latest = begin(partial(check_main_readable, context)), begin(context.schemas.latest)
        readable()
        schema = latest()
    if schema is None:
        raise NotFoundError(f"table '{context.title}' does not exist: there is no schema")
    check_readable(schema, path=context.layout.schema_path(schema.id))
    return schema


@dataclass(frozen=True)
class _Round:
    """One pass of the steps, over a bounded number of snapshots."""

    context: TableContext
    schema: TableSchema
    retention: Retention
    without: Collection[str]
    """Names of consumers to ignore."""
    given_up: frozenset[str]
    """Paths of refs to ignore."""
    engine: Engine
    reader: RefReader
    lists: ListIndex

    def run(self, dry_run: bool) -> tuple[Expiry, bool]:
        """Return the result, and whether it was cut short by the memory bound."""
        while True:
            done = self._attempt(dry_run)
            if done is not None:
                return done

    def _attempt(self, dry_run: bool) -> tuple[Expiry, bool] | None:
        """Return None, with nothing removed, if a consumer or rollback came in between that needs expiring snapshots."""
        with reading(self.context.storage) as begin:
            # Who comes after this look is found by the one before the removal.
            asked = begin(self._first_needed)
            needed = begin(partial(carried_after, self.context))
            look, history = self._look(self.reader)
            unread = asked()
            if history is None:
                return Expiry(dry_run=dry_run), False
            return self._attempt_on(look, history, unread, needed, dry_run=dry_run)

    def _attempt_on(
        self,
        look: Look,
        history: RetainedHistory,
        unread: int | None,
        needed: Callable[[], int | None],
        *,
        dry_run: bool,
    ) -> tuple[Expiry, bool] | None:
        """Do the same on what was found.

        Args:
            look: all refs.
            history: of this branch.
            unread: the first snapshot that a consumer has not read.
            needed: the snapshot after which branches must know of the changes, as `carried_after`.
            dry_run: report only.
        """
        left_over = self._left_over(history, unread)
        due = self.retention.due(history.snapshots, unread, history.stored)
        if not due:
            if not dry_run:
                self._delete_left_over(left_over)
            return Expiry(left=len(history.snapshots), dry_run=dry_run), False
        most = None if dry_run else _FILES_AT_ONCE
        end = len(due) + 1
        going = {self.context.layout.snapshot_path(snapshot.id) for snapshot in due}
        with reading(self.context.storage) as begin:
            # Looked for once all refs are read, and known before anything is removed.
            nothing_missing = begin(partial(check_no_snapshot_missing, self.context))
            if not self.context.storage.is_far:
                nothing_missing()
            try:
                named = candidates(
                    *(self.context, self.schema, history.snapshots[:end], self.lists),
                    staying={name for ref in look.refs if ref.path not in going for name in ref.lists},
                    most=most,
                    ahead=None if dry_run or not self.context.storage.is_far else (begin, needed()),
                )
            finally:
                if self.context.storage.is_far:
                    nothing_missing()  # says more than an error of what is missing
        was_cut = named.snapshots < len(due)
        due = due[: named.snapshots]
        following = history.snapshots[len(due)]
        reachability = Reachability(
            *(self.context, named.files["file_name"]),
            in_manifests=named.in_manifests,
            reader=self.reader,
            lists=self.lists,
        )
        paths = (self.context.layout.snapshot_path(snapshot.id) for snapshot in due)
        gone = {*(file.path for file in left_over), *paths, *self.given_up}
        held = reachability.through([ref for ref in look.refs if ref.path not in gone])
        if not dry_run:
            if not self._remove_snapshots(due, following):
                return None
            self._delete_left_over(left_over)
            held = self._look_again(reachability, following)
        free = named.files.join(held, on="file_name", how="anti", maintain_order="left")
        if not dry_run:
            self._delete(free)
        done = Expiry(
            snapshots=tuple(snapshot.id for snapshot in due),
            left=len(history.snapshots) - len(due),
            files=free,
            held=self._tell_held(named.files.join(held, on="file_name")),
            unreadable=named.unreadable,
            dry_run=dry_run,
        )
        return done, was_cut

    def _look(self, reader: RefReader) -> tuple[Look, RetainedHistory | None]:
        """Read all refs, and the history of this branch; None as history of a table without snapshots."""
        for number in range(_LOOKS):
            with reading(self.context.storage) as begin:
                # A commit between the two, or a rollback, makes it look again, at last in this order.
                newest = begin(self.context.snapshots.head)
                head = newest() if number or not self.context.storage.is_far else None
                look = reader.look()
                head = newest() if head is None else head
            history = None if head is None else RetainedHistory.of(look.snapshots, head)
            if head is None or history is not None:
                return look, history
        raise _rolled_back(self.context)

    def _left_over(self, history: RetainedHistory, unread: int | None) -> list[SnapshotFile]:
        """Return old snapshot files below history that no living writer can be about to take back."""
        if not history.below:
            return []
        yesterday = removal_time(self.context) - _DAY
        return [
            file
            for file in history.below
            if file.modified_millis < yesterday
            if min(file.snapshot.time_millis, file.modified_millis) < self.retention.replaced_before
            if unread is None or file.snapshot.id < unread
        ]

    def _delete_left_over(self, files: Collection[SnapshotFile]) -> None:
        for file in files:
            delete_snapshot(self.context, file.snapshot)

    def _remove_snapshots(self, due: Sequence[Snapshot], following: Snapshot) -> bool:
        """Step 1; False if a consumer or rollback needs one of them. Raises `CommitConflictError` if history was rolled back."""
        self._check_still_there(following)
        mark = None
        try:
            mark = mark_removal(self.context, due[-1].id)
            removed = self._remove_marked(due, following)
        except StorageError as error:
            if mark is not None and not error.outcome_unknown:  # else they may still go
                unmark_removal(self.context, mark)
            if not error.out_of_space:
                raise
            # The ledger needs the room. There is none for what a rollback would have to record first, either.
            return self._remove_marked(due, following)
        except AnabranchError:
            if mark is not None:
                unmark_removal(self.context, mark)
            raise
        unmark_removal(self.context, mark)
        return removed

    def _remove_marked(self, due: Sequence[Snapshot], following: Snapshot) -> bool:
        context = self.context
        is_archived = True

        def archive_all() -> None:
            nonlocal is_archived
            is_archived = self._archive(due)

        # All of it before the first is removed; in whatever order, as each is harmless while they are there.
        together(
            partial(carry_over, context, due, following),
            partial(hand_over, context, due),
            archive_all,
            at=context.storage,
        )
        needed = self._first_needed()
        if needed is not None and needed <= due[-1].id:
            return False
        # After that look: a rollback that is over by now has removed it.
        is_there = self._check_still_there(following)
        at_once = _REMOVED_AT_ONCE_FAR if context.storage.is_far else _REMOVED_AT_ONCE
        for start in range(0, len(due), at_once):
            batch = due[start : start + at_once]
            if start:
                is_there = self._check_still_there(following, removed=due[:start])
            if is_there:
                context.storage.delete_many([context.layout.snapshot_path(s.id) for s in batch])
            else:
                for snapshot in batch:
                    delete_snapshot(context, snapshot)
        # Before the hint: other engines believe it, and history may have been rolled back meanwhile.
        self._check_still_there(following, removed=due)
        if not is_archived:
            archive(context, due)
        return True

    def _first_needed(self) -> int | None:
        """The first snapshot that a consumer has not read, or that a destructive rollback goes to."""
        with reading(self.context.storage) as begin:
            rewound = begin(partial(next_rewound, self.context))
            needed = next_read(self.context, without=self.without), rewound()
        return min((number for number in needed if number is not None), default=None)

    def _look_again(self, reachability: Reachability, earliest: Snapshot) -> pl.DataFrame:
        """Step 2, and the hint: what is reached now, in the form of `Reachability.now`."""
        held: list[pl.DataFrame] = []
        # Nothing that is looked at depends on the hint.
        together(
            lambda: held.append(reachability.now()),
            partial(self._point_to, earliest),
            at=self.context.storage,
        )
        return held[0]

    def _point_to(self, earliest: Snapshot) -> None:
        hint = self.context.layout.earliest_hint_path
        try:
            self.context.storage.put(hint, str(earliest.id).encode(), durable=False)
        except StorageError as error:
            if not error.out_of_space:
                raise

    def _archive(self, due: Sequence[Snapshot]) -> bool:
        """Archive the snapshots; return False if that must wait for space.

        On a full disk the files of a few snapshots make the room: these are archived right after their removal.
        """
        try:
            archive(self.context, due)
        except StorageError as error:
            if not error.out_of_space or len(due) > _SNAPSHOTS_IF_FULL:
                raise
            return False
        return True

    def _check_still_there(self, following: Snapshot, *, removed: Sequence[Snapshot] = ()) -> bool:
        """Whether the first staying snapshot exists; raises if not, unless another expiry has gone beyond it.

        Before raising, removed snapshots are restored: a destructive rollback may have made the newest the head again.
        """
        found = self.context.snapshots.find(following.id)
        if found is not None and found.stamp == following.stamp:
            return True
        head = self.context.snapshots.head()
        if found is not None or head is None or head.id <= following.id:
            self._put_back(removed)
            raise _rolled_back(self.context)
        return False

    def _put_back(self, removed: Sequence[Snapshot]) -> None:
        rolled_back = removed_stamps(self.context.storage)
        newest = (
            self.context.snapshots.hinted_id()
        )  # which a rollback, of other engines too, points at its target
        for snapshot in reversed(removed):
            if snapshot.stamp not in rolled_back and (newest is None or snapshot.id <= newest):
                path = self.context.layout.snapshot_path(snapshot.id)
                self.context.storage.put_if_absent(path, snapshot.to_json())

    def _tell_held(self, files: pl.DataFrame) -> dict[str, Tally]:
        """Tally files held by refs other than remaining snapshots, which naturally share files with older ones."""
        own = pl.col("holder_path").str.starts_with(f"{self.context.layout.snapshot_folder}/")
        return tallies(files.filter(~own), "holder")

    def _delete(self, files: pl.DataFrame) -> None:
        """Step 3."""
        delete_files(self.context, files["path"].to_list(), self.engine)
        data = files.filter(pl.col("kind") == DATA)["path"].to_list()
        delete_empty_folders(self.context, data, len(self.schema.partition_keys))


def _rolled_back(context: TableContext) -> CommitConflictError:
    return CommitConflictError(
        f"the history of '{context.title}' was rolled back while its snapshots were expiring",
        hint="nothing that is still reachable was deleted; run it again.",
    )
