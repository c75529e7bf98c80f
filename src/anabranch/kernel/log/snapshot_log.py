"""The snapshots of one branch: the log that is the table's history.

An answer that comes from a hint is checked against the snapshot files, and a listing decides when the hints are wrong or
absent; what late writers left there is no history (`anabranch.kernel.log.late_writes`).

On a store that is far away the snapshots around the hinted one are read side by side, so the one above may be found
absent before the hinted one is read. The answer is still one that was true meanwhile: whenever the hinted one was
committed, there was nothing of its history above it. Whether one continues another is told by stamps, which no order of
reading changes; where they do not fit because history was rolled back in between, a listing decides.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.layout import LIST_PREFIX, MANIFEST_FOLDER, Layout
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.late_writes import Find, LateWrites
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.parallel import Reading, afterwards, reading, stream, tried
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.log.removals import was_removed
from anabranch.kernel.log.snapshot_files import SnapshotFiles
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)

_STEPS_BEFORE_LISTING = 16
_FIRST_AHEAD = (1, 16)
"""Snapshots read side by side at the beginning of a history; further down a bounded number ahead of whoever reads."""
_DELTAS_AHEAD = 2_000
"""Most snapshots whose changes are fetched with them: all of these are to be in the cache when they are asked for."""
_LISTINGS = 16


class SnapshotLog(SnapshotFiles):
    """Reads the history of one branch."""

    def __init__(self, storage: Storage, layout: Layout, manifests: ManifestStore | None = None) -> None:
        super().__init__(storage, layout)
        self._manifests = manifests or ManifestStore(storage, MetadataCache())
        self._late = LateWrites(self, self._manifests)
        self._seen: Snapshot | None = None
        """The newest when it was looked for last, on a store that is far away."""

    def _find_with_delta(self, snapshot_id: int) -> tuple[Snapshot, bytes] | None:
        """Return the same, and fetch what the snapshot changed: three requests one after the other, beside those of others."""
        found = self.find_stored(snapshot_id)
        if found is not None:
            self._manifests.fetch_delta(found[0])
        return found

    def head(
        self, known: Snapshot | None = None, *, strict: bool = False, hint: int | None = None
    ) -> Snapshot | None:
        """Return the newest snapshot, or None for a table without any.

        Args:
            known: a snapshot seen before, where the search begins.
            hint: the hint, if it was read a moment ago; as it is not trusted, it may be of any age.
            strict: whether a newest snapshot deleted by hand is an error, not only a logged warning: for callers that
                commit on top, which would hide the loss, or remove what only the newest may reach.

        Raises `CorruptTableError`.
        """
        with reading(self.storage) as begin:
            start, find, hint = self._begin(known, begin, hint)
            found = None if start is None else self._newest_from(start, _STEPS_BEFORE_LISTING, find)
        if found is None or found.id < self.layout.first_own:
            found = self._head_by_listing(hint)
            self._look_for_deleted(found, strict=strict)
        self._seen = found if self.storage.is_far else None
        return found

    def check_empty(self) -> None:
        """Raise `CorruptTableError` if snapshots were deleted by hand; for who found none and would take the table for new."""
        self._look_for_deleted(None, strict=True)

    def published(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot that this process put on top: the search for the newest begins there. Writes the hint."""
        self._seen = snapshot if self.storage.is_far else None
        self.write_hint(snapshot.id)

    def _newest_from(
        self, start: Snapshot, most: int = sys.maxsize, find: Find | None = None
    ) -> Snapshot | None:
        """Follow history up from a snapshot to the newest; None after `most` steps, or if the newest is gone.

        If history is rolled back meanwhile, the apparent next snapshot may be a late write on top of a removed one.
        """
        newest = start
        for _ in range(most):
            following = self._following(newest, find)
            if following is None:
                return newest if newest is start or self.still(start) else None
            newest = following
        return None

    def _look_for_deleted(self, found: Snapshot | None, *, strict: bool) -> None:
        """Warn or raise if the hint names a newer snapshot that was not rolled back."""
        hint, newest = self.hinted_id(), 0 if found is None else found.id
        if hint is None or hint <= newest or self.is_there(hint):
            return
        if was_removed(self.storage, self.layout, hint, newest):
            return
        if not self._has_more_lists(found):
            return  # nobody prepared such a snapshot: the hint is nonsense
        error = CorruptTableError(
            f"the newest snapshot is {hint} by the hint, but it is not there; the newest that is there is {newest or 'none'}",
            path=self.layout.snapshot_path(hint),
            hint="somebody deleted it. `repair` puts it back from what is left of it, or else takes back the hint.",
        )
        if strict:
            raise error
        _LOG.warning("%s %s", error.path, error.message)

    def _has_more_lists(self, found: Snapshot | None) -> bool:
        """Whether there are manifest lists that were stored after a snapshot, and not after the hint if that may be a late one.

        A writer of a deleted branch of the same name may have written that. What was prepared since says nothing then.
        """
        after = 0 if found is None else self.stored().get(found.id, 0)
        until = self.hint_time() if self._late.may_hint_be_late() else sys.maxsize
        own = () if found is None else (found.base_manifest_list, found.delta_manifest_list)
        return any(
            after <= info.modified_millis <= until and name.startswith(LIST_PREFIX) and name not in own
            for info in self.storage.list(MANIFEST_FOLDER)
            for name in (info.path.rpartition("/")[2],)
        )

    def follows(self, older: Snapshot, newer: Snapshot) -> bool:
        """Whether `newer` was built on `older`."""
        return self._late.follows(older, newer)

    def is_left_over(self, snapshot: Snapshot) -> bool | None:
        """Whether a stored snapshot is a late writer's leftover and no part of history; None if the one above it is gone.

        Those that other engines put on top of each other are not told apart; nor is anything where the newest is damaged.
        """
        try:
            above = self.find(snapshot.id + 1)
            if above is not None and above.properties.get(PARENT_PROPERTY) == snapshot.stamp:
                return False  # one of our writers has checked
            head = self.head()
        except (CorruptTableError, UnsupportedFeatureError):
            return False
        if head is None or snapshot.id >= head.id:
            return head is None or snapshot.stamp != head.stamp
        return None if above is None else PARENT_PROPERTY in above.properties

    def _following(self, snapshot: Snapshot, find: Find | None = None) -> Snapshot | None:
        """Return the next snapshot of the same history."""
        found = (find or self.find)(snapshot.id + 1)
        return found if found is not None and self.follows(snapshot, found) else None

    def still(self, snapshot: Snapshot) -> Snapshot | None:
        """Return a snapshot as stored now; None if it is gone, or its number belongs to another."""
        found = self.find(snapshot.id)
        return found if found is not None and found.stamp == snapshot.stamp else None

    def _begin(
        self, known: Snapshot | None, begin: Reading, hint: int | None
    ) -> tuple[Snapshot | None, Find, int | None]:
        """Return a current snapshot near the newest, how to find those around it, and the hint if it was read.

        No snapshot if neither `known` nor the hint is one.
        """
        if known is not None:
            find = self._around(range(known.id, known.id + 2), begin)
            found = find(known.id)
            if found is not None and found.stamp == known.stamp:
                return found, find, None
            hint = self.hinted_id()
        elif self._seen is None:
            hint = self.hinted_id() if hint is None else hint
        else:
            # Most often it is the newest still: then one round tells, and else the hint costs no round more.
            hinting, seen = begin(self.hinted_id), self._seen
            find = self._around(range(seen.id, seen.id + 2), begin)
            found, above, hint = find(seen.id), find(seen.id + 1), hinting()
            # A hint at what is not there may tell of a snapshot that somebody deleted.
            is_known = hint is None or hint <= seen.id + (above is not None)
            if found is not None and found.stamp == seen.stamp and is_known:
                return found, lambda number: above if number == seen.id + 1 else self.find(number), None
        if hint is None:
            return None, self.find, None
        find = self._around(range(max(hint - 1, 1), hint + 2), begin)
        found = find(hint)
        if found is None or found.id == 1:
            return None, find, hint
        # A late writer's leftover lies above a gap, or on something it was not built on.
        try:
            return (found if self._late.parting(found, find=find) is None else None), find, hint
        except (CorruptTableError, UnsupportedFeatureError):
            return found, find, hint

    def _around(self, ids: Iterable[int], begin: Reading) -> Find:
        """Begin to read snapshots next to each other; return how to find them, once, or any other."""
        begun = {number: begin(partial(self.find, number)) for number in ids}
        return lambda number: begun.pop(number, partial(self.find, number))()

    def _head_by_listing(self, hint: int | None) -> Snapshot | None:
        for _ in range(_LISTINGS):
            stored = self.stored()
            # What is left of main's past in other folders is not main: somebody deleted that.
            if not stored or max(stored) < self.layout.first_own:
                return None
            newest = self.find(max(stored))  # None if it was rolled back after the listing: look again
            newest = None if newest is None else self._late.below_leftovers(newest, stored)
            if newest is not None and newest.id != hint and self._late.is_all_rolled_back(newest, stored):
                return None
            found = None if newest is None else self._newest_from(newest)
            if found is not None:
                return found
        raise StorageError(
            f"snapshot {max(stored)} is listed again and again, but cannot be read",
            hint="check that the store lists and reads the same objects.",
            retryable=True,
        )

    def backwards(self, newest: Snapshot) -> Iterator[Snapshot]:
        """Yield `newest` and its ancestors, down to the first gap.

        Right below history may lie the leftover of a late writer that died before taking it back:
        a snapshot that nothing was built on.
        """
        if self.storage.is_far:
            yield from self._backwards_ahead(newest)
            return
        current: Snapshot | None = newest
        while current is not None:
            yield current
            parent = current.properties.get(PARENT_PROPERTY)
            current = self.find(current.id - 1) if current.id > 1 else None
            if current is not None and parent not in (None, current.stamp):
                return

    def _backwards_ahead(self, newest: Snapshot) -> Iterator[Snapshot]:
        """Go backwards on a store that is far away: the longer it goes on, the more is read side by side."""
        parent, below = newest.properties.get(PARENT_PROPERTY), newest.id - 1
        yield newest
        for at_once in (*_FIRST_AHEAD, max(below, 1)):
            ids = range(below, max(below - at_once, 0), -1)
            for found in stream(self.find, ids, at=self.storage):
                if found is None or parent not in (None, found.stamp):
                    return
                yield found
                parent = found.properties.get(PARENT_PROPERTY)
            below -= len(ids)

    def down_to(
        self,
        newest: Snapshot,
        lowest: int,
        unread: Callable[[int, AnabranchError], None] | None = None,
        *,
        deltas: bool = False,
    ) -> Iterator[Snapshot]:
        """Yield `newest` and its ancestors down to id `lowest`, read in parallel; for callers that want them all.

        Args:
            newest: where to begin.
            lowest: the lowest id.
            unread: told of the ids of damaged ones, which are left out: history goes on below them. Without it they
                raise `CorruptTableError`.
            deltas: whether their changes will be asked for: then these are fetched with them, if the store is far away.
        """
        yield newest
        if unread is None:
            yield from (snapshot for snapshot, _ in self.stored_below(newest, lowest, deltas=deltas))
            return
        parent = newest.properties.get(PARENT_PROPERTY)
        damaged = set[int]()

        def told(number: int, error: AnabranchError) -> None:
            damaged.add(number)
            unread(number, error)

        def find(number: int) -> Snapshot | None:
            return tried(number, lambda: self.find(number), told)

        ids = range(newest.id - 1, max(lowest, 1) - 1, -1)
        for number, found in zip(ids, stream(find, ids), strict=True):
            if found is None and number not in damaged:
                return
            if found is not None and parent not in (None, found.stamp):
                return
            if found is not None:
                yield found
            parent = None if found is None else found.properties.get(PARENT_PROPERTY)

    def stored_below(
        self, newest: Snapshot, lowest: int = 1, *, deltas: bool = False
    ) -> Iterator[tuple[Snapshot, bytes]]:
        """Yield a snapshot's ancestors, newest first, down to `lowest` or the first gap, with their file contents.

        Args:
            newest: where to begin.
            lowest: the lowest id.
            deltas: as for `down_to`.
        """
        parent = newest.properties.get(PARENT_PROPERTY)
        ids = range(newest.id - 1, max(lowest, 1) - 1, -1)
        with_delta = deltas and self.storage.is_far and len(ids) <= _DELTAS_AHEAD
        find = self._find_with_delta if with_delta else self.find_stored
        with reading(self.storage) as begin:
            if with_delta:
                begin(partial(self._manifests.fetch_delta, newest))
            for found in stream(find, ids, at=self.storage):
                if found is None or parent not in (None, found[0].stamp):
                    return
                yield found
                parent = found[0].properties.get(PARENT_PROPERTY)

    def write_hint(self, snapshot_id: int) -> None:
        """Update the LATEST hint; failing to write it is not an error.

        A later committer may have written its own before. A late one notices that, and never moves it back: a hint that
        names an older snapshot would hide that the newest was deleted. That look may come after the call has returned:
        a process that dies before it leaves the same.
        """
        try:
            self.put_hint(snapshot_id)
        except AnabranchError:
            return
        afterwards(partial(self._move_hint_on, snapshot_id), at=self.storage)

    def _move_hint_on(self, snapshot_id: int) -> None:
        """Name the snapshots above the hinted one that were committed before the hint was written."""
        try:
            while self.is_there(snapshot_id + 1):
                snapshot = self.find(snapshot_id)
                if snapshot is None or self._following(snapshot) is None:
                    return
                snapshot_id += 1
                self.put_hint(snapshot_id)
        except AnabranchError:
            return
