"""The snapshots of one branch: the log that is the table's history.

The hint files LATEST and EARLIEST say where to look first and are never trusted: an answer that comes
from them is checked against the snapshot files, and a listing decides when they are wrong or absent.

Consecutive ids do not prove a history. A writer that was paused during a rollback may put its
snapshot above the newest and die, or may be of another engine that does not check. Once numbering reached it, it would
hide later commits and restore what was rolled back. So going up, every snapshot must be built on the one
before (`anabranch.kernel.log.removals`), and destructive rollbacks record what they remove (`removed-...` in the archive's
folder), so that a listing tells such a leftover from a history with missing parts.

Snapshots of a deleted branch are not history of a later branch of the same name either.

A rollback by another engine leaves no record. Then the order in which snapshots were stored, their times and the hint
decide, see `_is_left_over`. One case looks the same as lost snapshots: a gap above which another engine put a snapshot
and the hint, with no commit below. That is taken for history, as every other engine takes it.

On a store that is far away the snapshots around the hinted one are read side by side, so the one above may be found
absent before the hinted one is read. The answer is still one that was true meanwhile: whenever the hinted one was
committed, there was nothing of its history above it. Whether one continues another is told by stamps, which no order of
reading changes; where they do not fit because history was rolled back in between, a listing decides.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.fork import FORK_FILE, Fork
from anabranch.format.records.layout import LIST_PREFIX, MANIFEST_FOLDER, Layout, snapshot_id_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.parallel import Reading, afterwards, reading, stream, tried
from anabranch.kernel.log.properties import BRANCH_PROPERTY, PARENT_PROPERTY
from anabranch.kernel.log.removals import is_after_removed, is_built_on, was_removed
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)

_STEPS_BEFORE_LISTING = 16
_FIRST_AHEAD = (1, 16)
"""Snapshots read side by side at the beginning of a history; further down a bounded number ahead of whoever reads."""
_DELTAS_AHEAD = 2_000
"""Most snapshots whose changes are fetched with them: all of these are to be in the cache when they are asked for."""
_LISTINGS = 16
_FOREIGN_LINKS = 4
"""Most snapshots of other engines on top of each other that are checked as possible late writes."""
_SKEW_MILLIS = 60_000
"""Most that the clocks of writers may differ."""

_Find = Callable[[int], Snapshot | None]
"""Finds a snapshot by its id."""


class SnapshotLog:
    """Reads the snapshots of one branch."""

    def __init__(self, storage: Storage, layout: Layout, manifests: ManifestStore | None = None) -> None:
        self._storage = storage
        self._layout = layout
        self._manifests = manifests or ManifestStore(storage, MetadataCache())
        self._seen: Snapshot | None = None
        """The newest when it was looked for last, on a store that is far away."""

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot of that id, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        found = self._find_stored(snapshot_id)
        return None if found is None else found[0]

    def _find_stored(self, snapshot_id: int) -> tuple[Snapshot, bytes] | None:
        """Return the snapshot together with the bytes of its file."""
        path = self._layout.snapshot_path(snapshot_id)
        try:
            data = self._storage.get(path)
        except NotFoundError:
            return None
        found = Snapshot.from_json(data, path=path)
        if found.id != snapshot_id:
            raise CorruptTableError(f"holds snapshot {found.id}, expected {snapshot_id}", path=path)
        return found, data

    def _find_with_delta(self, snapshot_id: int) -> tuple[Snapshot, bytes] | None:
        """Return the same, and fetch what the snapshot changed: three requests one after the other, beside those of others."""
        found = self._find_stored(snapshot_id)
        if found is not None:
            self._manifests.fetch_delta(found[0])
        return found

    def get(self, snapshot_id: int) -> Snapshot:
        """Return the snapshot of that id. Raises `NotFoundError` naming the existing range."""
        found = self.find(snapshot_id)
        if found is not None:
            return found
        ids = self.ids()
        if not ids:
            raise NotFoundError(f"snapshot {snapshot_id} does not exist: the table has no snapshots")
        nearest = min(ids, key=lambda known: (abs(known - snapshot_id), known))
        raise NotFoundError(
            f"snapshot {snapshot_id} does not exist: the earliest is {ids[0]}, the latest is {ids[-1]}",
            hint=f"the nearest is snapshot {nearest}; what expired can be read only through a tag.",
        )

    def ids(self) -> list[int]:
        """All snapshot ids, ascending."""
        return sorted(self.stored())

    def stored(self) -> dict[int, int]:
        """Return the time at which each snapshot was stored, by id."""
        infos = self._storage.list(self._layout.snapshot_folder)
        return {i: info.modified_millis for info in infos if (i := snapshot_id_of(info.path)) is not None}

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
        with reading(self._storage) as begin:
            start, find, hint = self._begin(known, begin, hint)
            found = None if start is None else self._newest_from(start, _STEPS_BEFORE_LISTING, find)
        if found is None:
            found = self._head_by_listing(hint)
            self._look_for_deleted(found, strict=strict)
        self._seen = found if self._storage.is_far else None
        return found

    def published(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot that this process put on top: the search for the newest begins there. Writes the hint."""
        self._seen = snapshot if self._storage.is_far else None
        self.write_hint(snapshot.id)

    def _newest_from(
        self, start: Snapshot, most: int = sys.maxsize, find: _Find | None = None
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
        if was_removed(self._storage, self._layout, hint):
            return
        if not self._has_more_lists(found):
            return  # nobody prepared such a snapshot: the hint is nonsense
        error = CorruptTableError(
            f"the newest snapshot is {hint} by the hint, but it is not there; the newest that is there is {newest or 'none'}",
            path=self._layout.snapshot_path(hint),
            hint="somebody deleted it. `repair` puts it back from what is left of it, or else takes back the hint.",
        )
        if strict:
            raise error
        _LOG.warning("%s %s", error.path, error.message)

    def _has_more_lists(self, found: Snapshot | None) -> bool:
        """Whether there are manifest lists that were stored after a snapshot."""
        after = 0 if found is None else self.stored().get(found.id, 0)
        own = () if found is None else (found.base_manifest_list, found.delta_manifest_list)
        return any(
            info.modified_millis >= after and name.startswith(LIST_PREFIX) and name not in own
            for info in self._storage.list(MANIFEST_FOLDER)
            for name in (info.path.rpartition("/")[2],)
        )

    def follows(self, older: Snapshot, newer: Snapshot) -> bool:
        """Whether `newer` was built on `older`."""
        return is_built_on(self._manifests, newer, older)

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

    def _following(self, snapshot: Snapshot, find: _Find | None = None) -> Snapshot | None:
        """Return the next snapshot of the same history."""
        found = (find or self.find)(snapshot.id + 1)
        return found if found is not None and self.follows(snapshot, found) else None

    def still(self, snapshot: Snapshot) -> Snapshot | None:
        """Return a snapshot as stored now; None if it is gone, or its number belongs to another."""
        found = self.find(snapshot.id)
        return found if found is not None and found.stamp == snapshot.stamp else None

    def _begin(
        self, known: Snapshot | None, begin: Reading, hint: int | None
    ) -> tuple[Snapshot | None, _Find, int | None]:
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
            return (found if self._parting(found, find=find) is None else None), find, hint
        except (CorruptTableError, UnsupportedFeatureError):
            return found, find, hint

    def _around(self, ids: Iterable[int], begin: Reading) -> _Find:
        """Begin to read snapshots next to each other; return how to find them, once, or any other."""
        begun = {number: begin(partial(self.find, number)) for number in ids}
        return lambda number: begun.pop(number, partial(self.find, number))()

    def _head_by_listing(self, hint: int | None) -> Snapshot | None:
        for _ in range(_LISTINGS):
            stored = self.stored()
            if not stored:
                return None
            newest = self.find(max(stored))  # None if it was rolled back after the listing: look again
            newest = None if newest is None else self._below_leftovers(newest, stored)
            if newest is not None and newest.id != hint and self._is_all_rolled_back(newest, stored):
                return None
            found = None if newest is None else self._newest_from(newest)
            if found is not None:
                return found
        raise StorageError(
            f"snapshot {max(stored)} is listed again and again, but cannot be read",
            hint="check that the store lists and reads the same objects.",
            retryable=True,
        )

    def _below_leftovers(self, newest: Snapshot, stored: Mapping[int, int]) -> Snapshot | None:
        """Return the newest snapshot that is not a late writer's leftover; None if the listing is out of date."""
        while True:
            upper = self._parting(newest, stored)
            lower_id = max((number for number in stored if upper and number < upper.id), default=None)
            if upper is None or lower_id is None:
                return newest
            if not self._is_left_over(newest, upper, lower_id, stored):
                return None if self._went_on_between(lower_id, upper.id) else newest
            lower = self.find(lower_id)
            if lower is None:
                return None
            newest = lower

    def _is_all_rolled_back(self, newest: Snapshot, stored: Mapping[int, int]) -> bool:
        """Whether a rollback took away what the only snapshots that are there were built on, and what it went to is gone.

        An expiry that began before may have removed that, and puts it back once it notices.
        """
        hint = self.hinted_id()
        return (
            hint is not None
            and hint < min(stored)
            and newest.id == min(stored)
            and is_after_removed(self._storage, self._manifests, newest)
        )

    def _went_on_between(self, lower_id: int, upper_id: int) -> bool:
        """Whether commits above the lower snapshot were made, and hinted at, after the listing."""
        hint = self.hinted_id()
        return hint is not None and lower_id < hint < upper_id and self.is_there(hint)

    def _parting(
        self, newest: Snapshot, stored: Mapping[int, int] | None = None, find: _Find | None = None
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
        earliest = self.hinted_earliest_id()
        if earliest is not None and lower_id < earliest <= upper.id and self.is_there(earliest):
            return False
        if lower_id < upper.id - 1:
            return self._is_above_rolled_back(upper, lower_id, stored)
        lower = self._find_if(lower_id, stored)
        second = None if lower is None else self._find_if(lower.id - 1, stored)
        goes_on = lower is not None and second is not None and self.follows(second, lower)
        if goes_on and (upper is newest or _was_first(lower_id, upper.id, stored)):
            return True
        return is_after_removed(self._storage, self._manifests, upper) or self._is_above_late(
            upper, lower, stored
        )

    def _is_above_late(self, upper: Snapshot, lower: Snapshot | None, stored: Mapping[int, int]) -> bool:
        """Whether what `upper` stands on, without having been built on it, is itself late, above what was rolled back.

        All numbers above a rollback's target were free after it. So history would lead up to `upper` through `lower`.
        """
        bottom = None if lower is None else self._parting(lower, stored)
        if bottom is None or bottom.id - 1 in stored:
            return False
        target = max((number for number in stored if number < bottom.id), default=None)
        return target is not None and all(
            self._is_above_rolled_back(late, target, stored) for late in (bottom, upper)
        )

    def _is_of_deleted_branch(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot was made on a deleted predecessor of this branch with the same name."""
        made_on = snapshot.properties.get(BRANCH_PROPERTY)
        if made_on is None or self._layout.branch is None:
            return False
        path = self._layout.branch_file_path(FORK_FILE)
        try:
            fork = Fork.from_json(self._storage.get(path), path=path)
        except AnabranchError:
            return False
        # Its fork snapshot, and the past of main below that, were made elsewhere too.
        return snapshot.id > fork.snapshot.id and made_on != fork.branch_uuid

    def _is_above_rolled_back(self, upper: Snapshot, lower_id: int, stored: Mapping[int, int]) -> bool:
        """Whether the snapshots between two were rolled back, as opposed to lost or deleted by hand."""
        if is_after_removed(self._storage, self._manifests, upper):
            return True
        if not _was_first(lower_id, upper.id, stored):
            return False
        # A rollback points the hint at the newest snapshot it leaves, or a later commit on that moves it up;
        # a late writer of ours never moves it.
        hint = self.hinted_id()
        if hint is not None and hint <= lower_id:
            return True
        # Numbers rise with time. Where time goes back, the lower one was committed after the upper one was prepared.
        try:
            lower = self.find(lower_id)
        except AnabranchError:
            return False
        went_on = stored[lower_id] > stored[upper.id]
        back = 0 if lower is None else lower.time_millis - upper.time_millis
        return back > (0 if went_on else _SKEW_MILLIS)

    def _find_if(self, snapshot_id: int, stored: Mapping[int, int] | None) -> Snapshot | None:
        return self.find(snapshot_id) if stored is None or snapshot_id in stored else None

    def earliest_id(self) -> int | None:
        """Return the smallest snapshot id, or None."""
        hint = self.hinted_earliest_id()
        if hint is not None and self.is_there(hint) and not (hint > 1 and self.is_there(hint - 1)):
            return hint
        # Where nothing has expired yet, what may be thousands need not be listed. Branches begin elsewhere.
        if self._layout.branch is None and self.is_there(1):
            return 1
        ids = self.ids()
        return ids[0] if ids else None

    def backwards(self, newest: Snapshot) -> Iterator[Snapshot]:
        """Yield `newest` and its ancestors, down to the first gap.

        Right below history may lie the leftover of a late writer that died before taking it back:
        a snapshot that nothing was built on.
        """
        if self._storage.is_far:
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
            for found in stream(self.find, ids, at=self._storage):
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
        with_delta = deltas and self._storage.is_far and len(ids) <= _DELTAS_AHEAD
        find = self._find_with_delta if with_delta else self._find_stored
        with reading(self._storage) as begin:
            if with_delta:
                begin(partial(self._manifests.fetch_delta, newest))
            for found in stream(find, ids, at=self._storage):
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
            self._put_hint(snapshot_id)
        except AnabranchError:
            return
        afterwards(partial(self._move_hint_on, snapshot_id), at=self._storage)

    def _move_hint_on(self, snapshot_id: int) -> None:
        """Name the snapshots above the hinted one that were committed before the hint was written."""
        try:
            while self.is_there(snapshot_id + 1):
                snapshot = self.find(snapshot_id)
                if snapshot is None or self._following(snapshot) is None:
                    return
                snapshot_id += 1
                self._put_hint(snapshot_id)
        except AnabranchError:
            return

    def take_back_hint(self, snapshot_id: int) -> None:
        """Point the LATEST hint at the snapshot below those that are about to be removed."""
        with suppress(StorageError):
            self._put_hint(snapshot_id)

    def _put_hint(self, snapshot_id: int) -> None:
        self._storage.put(self._layout.latest_hint_path, str(snapshot_id).encode(), durable=False)

    def is_there(self, snapshot_id: int) -> bool:
        """Whether there is a snapshot of that id, of whatever history."""
        return self._storage.exists(self._layout.snapshot_path(snapshot_id))

    def hinted_id(self) -> int | None:
        """Return the newest snapshot id according to the hint, which may be wrong; None without a hint."""
        return self._hint(self._layout.latest_hint_path)

    def hinted_earliest_id(self) -> int | None:
        """Return the smallest snapshot id according to the hint, likewise."""
        return self._hint(self._layout.earliest_hint_path)

    def _hint(self, path: str) -> int | None:
        try:
            text = self._storage.get(path)
        except AnabranchError:
            return None
        return int(text) if len(text) <= 18 and text.isdigit() and int(text) > 0 else None


def _was_first(lower_id: int, upper_id: int, stored: Mapping[int, int]) -> bool:
    """Whether the contiguous ids ending at `lower_id` were begun before `upper_id` was stored, by the store's clock."""
    oldest = lower_id
    while oldest - 1 in stored:
        oldest -= 1
    return stored[oldest] <= stored[upper_id]
