"""One round of an expiry: the steps that `expire` names, over a bounded number of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import polars as pl

from anabranch.engine import Engine
from anabranch.errors import StorageError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.expiry.candidates import DATA, candidates
from anabranch.kernel.expiry.file_removal import delete_empty_folders, delete_files
from anabranch.kernel.expiry.list_index import ListIndex
from anabranch.kernel.expiry.missing_refs import check_no_snapshot_missing
from anabranch.kernel.expiry.reachability import Reachability
from anabranch.kernel.expiry.ref_files import Look, RefReader, SnapshotFile
from anabranch.kernel.expiry.result import Expiry, Tally, tallies
from anabranch.kernel.expiry.retention import RetainedHistory, Retention
from anabranch.kernel.expiry.snapshot_removal import SnapshotRemoval, rolled_back
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.shared_past import is_of_another
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.provenance.carry import carried_after
from anabranch.lazy import lazy

_FILES_AT_ONCE = 1_000_000
"""Data files whose reachability is computed at once."""
_LOOKS = 5
_DAY = 86_400_000


@dataclass(frozen=True)
class Round:
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

    @lazy
    def _removal(self) -> SnapshotRemoval:
        return SnapshotRemoval(self.context, self.without)

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
            asked = begin(self._removal.first_needed)
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
        if not due or is_of_another(self.context, due[0]):
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
            if not self._removal.remove(due, following):
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
        raise rolled_back(self.context)

    def _left_over(self, history: RetainedHistory, unread: int | None) -> list[SnapshotFile]:
        """Return old snapshot files below history that no living writer can be about to take back."""
        if not history.below:
            return []
        yesterday = removal_time(self.context) - _DAY
        return [
            file
            for file in history.below
            if self._is_left_here(file)
            if file.modified_millis < yesterday
            if min(file.snapshot.time_millis, file.modified_millis) < self.retention.replaced_before
            if unread is None or file.snapshot.id < unread
        ]

    def _is_left_here(self, file: SnapshotFile) -> bool:
        """Whether a file lies where only this history was: another engine may have made a branch of a former main's name."""
        home = self.context.layout.home_of(file.snapshot.id)
        return home in (None, self.context.branch) or self.context.on_branch(home).branch_uuid in self._former

    @lazy
    def _former(self) -> frozenset[str]:
        """The former mains by their identities."""
        found = (pointer.replaced for pointer in replacements(self.context))
        return frozenset(replaced.old.uuid for replaced in found if replaced is not None)

    def _delete_left_over(self, files: Collection[SnapshotFile]) -> None:
        for file in files:
            delete_snapshot(self.context, file.snapshot)

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

    def _tell_held(self, files: pl.DataFrame) -> dict[str, Tally]:
        """Tally files held by refs other than remaining snapshots, which naturally share files with older ones."""
        holders = files["holder_path"].unique().to_list()
        own = [path for path in holders if self.context.layout.holds(path)]
        return tallies(files.filter(~pl.col("holder_path").is_in(own)), "holder")

    def _delete(self, files: pl.DataFrame) -> None:
        """Step 3."""
        delete_files(self.context, files["path"].to_list(), self.engine)
        data = files.filter(pl.col("kind") == DATA)["path"].to_list()
        delete_empty_folders(self.context, data, len(self.schema.partition_keys))
