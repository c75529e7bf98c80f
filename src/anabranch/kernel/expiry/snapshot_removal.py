"""Removal of the snapshots that expire, beside rollbacks and other expiries.

Merge information, the ledger and the archive have what is needed of them first; then their files go, oldest first, so that
history never has a gap. Before each batch it is checked that the first staying snapshot still exists. A number is reused only
when history is rolled back below it, which first removes everything above, including this one: so as long as it exists, by its
stamp, every number below it is still that of the snapshot that was read. Between that check and the removal no destructive
rollback of ours begins that frees one of the numbers (`anabranch.kernel.log.removal_marks`). Where another expiry took it, each
file is checked by itself. A store that dies within a batch may leave a gap, below which nothing is history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError, CommitConflictError, StorageError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.expiry.consumer_expiry import next_read
from anabranch.kernel.log.archive import archive
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.ledger import hand_over
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.removal_marks import mark_removal, unmark_removal
from anabranch.kernel.log.removals import removed_stamps
from anabranch.kernel.log.rollback_pins import next_rewound
from anabranch.kernel.log.shared_past import check_still_main, is_of_another
from anabranch.kernel.provenance.carry import carry_over

SNAPSHOTS_IF_FULL: Final = 8
"""Batch size on a full disk: each frees a block or more, and the records of all of them take two or three."""
_REMOVED_AT_ONCE = 64
_REMOVED_AT_ONCE_FAR = 1_000
"""Snapshots that go with one request, where each takes its time."""


@dataclass(frozen=True)
class SnapshotRemoval:
    """Removes snapshots of one branch."""

    context: TableContext
    without: Collection[str]
    """Names of consumers to ignore."""

    def remove(self, due: Sequence[Snapshot], following: Snapshot) -> bool:
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

    def first_needed(self) -> int | None:
        """The first snapshot that a consumer has not read, or that a destructive rollback goes to."""
        with reading(self.context.storage) as begin:
            rewound = begin(partial(next_rewound, self.context))
            needed = next_read(self.context, without=self.without), rewound()
        return min((number for number in needed if number is not None), default=None)

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
        # By now the ledger knows these commits: a replacement that is announced later hands them over.
        check_still_main(context)
        if is_of_another(context, due[0]):
            raise CommitConflictError(
                f"'{context.title}' was replaced as main while its snapshots were expiring, which belong to main's past now",
                hint="nothing was removed; expire main's.",
            )
        needed = self.first_needed()
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

    def _archive(self, due: Sequence[Snapshot]) -> bool:
        """Archive the snapshots; return False if that must wait for space.

        On a full disk the files of a few snapshots make the room: these are archived right after their removal.
        """
        try:
            archive(self.context, due)
        except StorageError as error:
            if not error.out_of_space or len(due) > SNAPSHOTS_IF_FULL:
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
            raise rolled_back(self.context)
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


def rolled_back(context: TableContext) -> CommitConflictError:
    return CommitConflictError(
        f"the history of '{context.title}' was rolled back while its snapshots were expiring",
        hint="nothing that is still reachable was deleted; run it again.",
    )
