"""What late writers left in a branch's folder, told from its history.

Consecutive ids do not prove a history. A writer that was paused during a rollback may put its
snapshot above the newest and die, or may be of another engine that does not check. Once numbering reached it, it would
hide later commits and restore what was rolled back. So going up, every snapshot must be built on the one
before (`anabranch.kernel.log.removals`), and destructive rollbacks record what they remove (`removed-...` in the archive's
folder), so that a listing tells such a leftover from a history with missing parts.

Snapshots of a deleted branch are not history of a later branch of the same name either.

A rollback by another engine leaves no record. Then the order in which snapshots were stored, their times and the hint
decide, see `_is_left_over`. One case looks the same as lost snapshots: a gap above which another engine put a snapshot
and the hint, with no commit below. That is taken for history, as every other engine takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.errors import CorruptTableError
from anabranch.format.records.fork import DELETED_PREFIX, FORK_FILE, Fork
from anabranch.format.records.layout import BRANCH_FOLDER
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.properties import BRANCH_PROPERTY, PARENT_PROPERTY
from anabranch.kernel.log.removals import UNKNOWABLE, is_after_removed, is_built_on
from anabranch.kernel.log.snapshot_files import SnapshotFiles

_FOREIGN_LINKS = 4
"""Most snapshots of other engines on top of each other that are checked as possible late writes."""
_SKEW_MILLIS = 60_000
"""Most that the clocks of writers may differ."""

Find = Callable[[int], Snapshot | None]
"""Finds a snapshot by its id."""


class LateWrites:
    """Tells which snapshot files of a branch are history, and which were written late."""

    def __init__(self, files: SnapshotFiles, manifests: ManifestStore) -> None:
        self._files = files
        self._manifests = manifests

    def follows(self, older: Snapshot, newer: Snapshot) -> bool:
        """Whether `newer` was built on `older`."""
        return is_built_on(self._manifests, newer, older)

    def may_hint_be_late(self) -> bool:
        """Whether a writer of a deleted branch may have written the hint: this is a branch, and some branch was deleted."""
        files = self._files
        infos = () if files.layout.branch is None else files.storage.list(BRANCH_FOLDER)
        return any(info.path.rpartition("/")[2].startswith(DELETED_PREFIX) for info in infos)

    def below_leftovers(self, newest: Snapshot, stored: Mapping[int, int]) -> Snapshot | None:
        """Return the newest snapshot that is not a late writer's leftover; None if the listing is out of date."""
        while True:
            upper = self.parting(newest, stored)
            lower_id = max((number for number in stored if upper and number < upper.id), default=None)
            if upper is None or lower_id is None:
                return newest
            if not self._is_left_over(newest, upper, lower_id, stored):
                return None if self._went_on_between(lower_id, upper.id) else newest
            lower = self._files.find(lower_id)
            if lower is None:
                return None
            newest = lower

    def is_all_rolled_back(self, newest: Snapshot, stored: Mapping[int, int]) -> bool:
        """Whether a rollback took away what the only snapshots that are there were built on, and what it went to is gone.

        An expiry that began before may have removed that, and puts it back once it notices.
        """
        hint = self._files.hinted_id()
        return (
            hint is not None
            and hint < min(stored)
            and newest.id == min(stored)
            and is_after_removed(self._files.storage, self._manifests, newest)
        )

    def _went_on_between(self, lower_id: int, upper_id: int) -> bool:
        """Whether commits above the lower snapshot were made, and hinted at, after the listing."""
        hint = self._files.hinted_id()
        return hint is not None and lower_id < hint < upper_id and self._files.is_there(hint)

    def parting(
        self, newest: Snapshot, stored: Mapping[int, int] | None = None, find: Find | None = None
    ) -> Snapshot | None:
        """Return the snapshot right below which the chain breaks; None if it does not, as far as must be checked.

        One of our snapshots that continues the one below suffices: its writer checked. Other engines build on
        whatever has the highest number, so theirs are followed further down.
        """
        upper = newest
        for _ in range(_FOREIGN_LINKS):
            try:
                below = find(upper.id - 1) if find else self._find_if(upper.id - 1, stored)
            except CorruptTableError:
                return None  # what is damaged tells nothing; the numbers are all there is to go by
            if below is None or not self.follows(below, upper):
                return upper
            if PARENT_PROPERTY in upper.properties:
                return None
            upper = below
        return None

    def _is_left_over(
        self, newest: Snapshot, upper: Snapshot, lower_id: int, stored: Mapping[int, int]
    ) -> bool:
        """Whether the snapshots from `upper` to `newest` are the late ones, rather than those below the break.

        Below history there may be late writes made after the numbers around them expired; above it, ones made after a
        rollback. In both cases history is what was stored first.
        """
        if self._is_of_deleted_branch(upper):
            return True
        # Everything below was there when an expiry began and gone when it ended, so what is there now came late. This
        # goes before the records: a rollback may die after its record, and others build on what it meant to remove.
        earliest = self._files.hinted_earliest_id()
        if earliest is not None and lower_id < earliest <= upper.id and self._files.is_there(earliest):
            return False
        if lower_id < upper.id - 1:
            return self._is_above_rolled_back(upper, lower_id, stored)
        lower = self._find_if(lower_id, stored)
        second = None if lower is None else self._find_if(lower.id - 1, stored)
        goes_on = lower is not None and second is not None and self.follows(second, lower)
        if goes_on and (upper is newest or _was_first(lower_id, upper.id, stored)):
            return True
        return is_after_removed(self._files.storage, self._manifests, upper) or self._is_above_late(
            upper, lower, stored
        )

    def _is_above_late(self, upper: Snapshot, lower: Snapshot | None, stored: Mapping[int, int]) -> bool:
        """Whether what `upper` stands on, without having been built on it, is itself late, above what was rolled back.

        All numbers above a rollback's target were free after it. So history would lead up to `upper` through `lower`.
        """
        bottom = None if lower is None else self.parting(lower, stored)
        if bottom is None or bottom.id - 1 in stored:
            return False
        target = max((number for number in stored if number < bottom.id), default=None)
        return target is not None and all(
            self._is_above_rolled_back(late, target, stored) for late in (bottom, upper)
        )

    def _is_of_deleted_branch(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot was made on a deleted predecessor of this branch with the same name."""
        made_on = snapshot.properties.get(BRANCH_PROPERTY)
        if made_on is None or self._files.layout.branch is None:
            return False
        path = self._files.layout.branch_file_path(FORK_FILE)
        try:
            fork = Fork.from_json(self._files.storage.get(path), path=path)
        except UNKNOWABLE:
            return False
        # Its fork snapshot, and the past of main below that, were made elsewhere too.
        return snapshot.id > fork.snapshot.id and made_on != fork.branch_uuid

    def _is_above_rolled_back(self, upper: Snapshot, lower_id: int, stored: Mapping[int, int]) -> bool:
        """Whether the snapshots between two were rolled back, as opposed to lost or deleted by hand."""
        if is_after_removed(self._files.storage, self._manifests, upper):
            return True
        if not _was_first(lower_id, upper.id, stored):
            return False
        # A rollback points the hint at the newest snapshot it leaves, or a later commit on that moves it up;
        # a late writer of ours never moves it.
        hint = self._files.hinted_id()
        if hint is not None and hint <= lower_id:
            return True
        # Numbers rise with time. Where time goes back, the lower one was committed after the upper one was prepared.
        try:
            lower = self._files.find(lower_id)
        except UNKNOWABLE:
            return False
        went_on = stored[lower_id] > stored[upper.id]
        back = 0 if lower is None else lower.time_millis - upper.time_millis
        return back > (0 if went_on else _SKEW_MILLIS)

    def _find_if(self, snapshot_id: int, stored: Mapping[int, int] | None) -> Snapshot | None:
        return self._files.find(snapshot_id) if stored is None or snapshot_id in stored else None


def _was_first(lower_id: int, upper_id: int, stored: Mapping[int, int]) -> bool:
    """Whether the contiguous ids ending at `lower_id` were begun before `upper_id` was stored, by the store's clock."""
    oldest = lower_id
    while oldest - 1 in stored:
        oldest -= 1
    return stored[oldest] <= stored[upper_id]
