"""The snapshots of one branch: the log that is the table's history.

The hint files LATEST and EARLIEST say where to look first and are never trusted: an answer that comes
from them is checked against the snapshot files, and a listing decides when they are wrong or absent.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.kernel.properties import PARENT_PROPERTY
from anabranch.spec.layout import Layout, snapshot_id_of
from anabranch.spec.snapshot import Snapshot
from anabranch.storage.protocol import Storage

_STEPS_BEFORE_LISTING = 16
_LISTINGS = 16


class SnapshotLog:
    """Reads the snapshots of one branch."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of that id, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        path = self._layout.snapshot_path(snapshot_id)
        try:
            data = self._storage.get(path)
        except NotFoundError:
            return None
        found = Snapshot.from_json(data, path=path)
        if found.id != snapshot_id:
            raise CorruptTableError(f"holds snapshot {found.id}, expected {snapshot_id}", path=path)
        return found

    def get(self, snapshot_id: int) -> Snapshot:
        """The snapshot of that id. Raises `NotFoundError` naming what there is."""
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
        infos = self._storage.list(self._layout.snapshot_folder)
        return sorted(i for info in infos if (i := snapshot_id_of(info.path)) is not None)

    def head(self, known: Snapshot | None = None) -> Snapshot | None:
        """The newest snapshot, or None for a table without any.

        `known` is where to begin looking: a snapshot that was seen before.
        """
        start = known.id if known is not None else self._hint(self._layout.latest_hint_path)
        current = self.find(start) if start is not None else None
        if current is not None and not self._is_in_history(current, known):
            current = None
        for _ in range(_STEPS_BEFORE_LISTING):
            if current is None:
                break
            following = self.find(current.id + 1)
            if following is None:
                return current
            current = following
        return self._head_by_listing()

    def _is_in_history(self, found: Snapshot, known: Snapshot | None) -> bool:
        """Whether a snapshot to begin at is no remnant of a writer that came too late and died.

        Such a one lies where history has been: under a number that another snapshot had, above a gap.
        """
        if known is not None:
            return found.stamp == known.stamp
        return found.id > 1 and self._exists(found.id - 1)

    def _head_by_listing(self) -> Snapshot | None:
        for _ in range(_LISTINGS):
            ids = self.ids()
            if not ids:
                return None
            newest = following = self.find(
                ids[-1]
            )  # None if it was rolled back after the listing: look again
            while following is not None:
                newest, following = following, self.find(following.id + 1)
            if newest is not None:
                return newest
        raise StorageError(
            f"snapshot {ids[-1]} is listed again and again, but cannot be read",
            hint="check that the store lists and reads the same objects.",
            retryable=True,
        )

    def earliest_id(self) -> int | None:
        """The smallest id there is, or None."""
        hint = self._hint(self._layout.earliest_hint_path)
        if hint is not None and self._exists(hint) and not (hint > 1 and self._exists(hint - 1)):
            return hint
        ids = self.ids()
        return ids[0] if ids else None

    def backwards(self, newest: Snapshot) -> Iterator[Snapshot]:
        """`newest` and what it was built on, down to the first gap.

        Right below history may lie what a writer left that came too late and died before it could take it back:
        a snapshot that nothing was built on.
        """
        current: Snapshot | None = newest
        while current is not None:
            yield current
            parent = current.properties.get(PARENT_PROPERTY)
            current = self.find(current.id - 1) if current.id > 1 else None
            if current is not None and parent not in (None, current.stamp):
                return

    def write_hint(self, snapshot_id: int) -> None:
        """Say where the newest snapshot is; a hint that cannot be written is no failure."""
        try:
            self._storage.put(self._layout.latest_hint_path, str(snapshot_id).encode(), durable=False)
        except StorageError:
            return

    def _exists(self, snapshot_id: int) -> bool:
        return self._storage.exists(self._layout.snapshot_path(snapshot_id))

    def _hint(self, path: str) -> int | None:
        try:
            text = self._storage.get(path)
        except AnabranchError:
            return None
        return int(text) if len(text) <= 18 and text.isdigit() and int(text) > 0 else None
