"""The snapshot files of one branch, by their numbers, and the hint files beside them; none of these is history by itself.

The hint files LATEST and EARLIEST say where to look first. They may be wrong or absent, and are never trusted.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.records.layout import Layout, snapshot_id_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.storage.protocol import Storage


class SnapshotFiles:
    """Reads the snapshot files and hints of one branch."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self.storage = storage
        self.layout = layout

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot of that id, or None. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        found = self.find_stored(snapshot_id)
        return None if found is None else found[0]

    def find_stored(self, snapshot_id: int) -> tuple[Snapshot, bytes] | None:
        """Return the snapshot together with the bytes of its file."""
        path = self.layout.snapshot_path(snapshot_id)
        try:
            data = self.storage.get(path)
        except NotFoundError:
            return None
        found = Snapshot.from_json(data, path=path)
        if found.id != snapshot_id:
            raise CorruptTableError(f"holds snapshot {found.id}, expected {snapshot_id}", path=path)
        return found, data

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
        return {
            number: info.modified_millis
            for folder in self.layout.snapshot_folders
            for info in self.storage.list(folder)
            # A branch that was main before has others too, above what is of this history.
            if (number := snapshot_id_of(info.path)) is not None and self.layout.holds(info.path)
        }

    def own_ids(self) -> list[int]:
        """The ids of the snapshots in the branch's own folder, ascending."""
        infos = self.storage.list(self.layout.snapshot_folder)
        return sorted(number for info in infos if (number := snapshot_id_of(info.path)) is not None)

    def has_own(self) -> bool:
        """Whether there is a snapshot in the branch's own folder."""
        return any(
            snapshot_id_of(info.path) is not None for info in self.storage.list(self.layout.snapshot_folder)
        )

    def earliest_id(self) -> int | None:
        """Return the smallest snapshot id, or None."""
        hint = self.hinted_earliest_id()
        if hint is not None and self.is_there(hint) and not (hint > 1 and self.is_there(hint - 1)):
            return hint
        # Where nothing has expired yet, what may be thousands need not be listed. Branches begin elsewhere.
        if self.layout.home_of(1) is None and self.is_there(1):
            return 1
        ids = self.ids()
        return ids[0] if ids else None

    def is_there(self, snapshot_id: int) -> bool:
        """Whether there is a snapshot of that id, of whatever history."""
        return self.storage.exists(self.layout.snapshot_path(snapshot_id))

    def hinted_id(self) -> int | None:
        """Return the newest snapshot id according to the hint, which may be wrong; None without a hint."""
        return self._hint(self.layout.latest_hint_path)

    def hint_time(self) -> int:
        """Return when the LATEST hint was stored, by the store's clock; the latest time there is without a hint."""
        try:
            return self.storage.info(self.layout.latest_hint_path).modified_millis
        except NotFoundError:
            return sys.maxsize

    def hinted_earliest_id(self) -> int | None:
        """Return the smallest snapshot id according to the hint, likewise."""
        return self._hint(self.layout.earliest_hint_path)

    def take_back_hint(self, snapshot_id: int) -> None:
        """Point the LATEST hint at the snapshot below those that are about to be removed."""
        with suppress(StorageError):
            self.put_hint(snapshot_id)

    def put_hint(self, snapshot_id: int) -> None:
        """Write the LATEST hint."""
        self.storage.put(self.layout.latest_hint_path, str(snapshot_id).encode(), durable=False)

    def _hint(self, path: str) -> int | None:
        try:
            text = self.storage.get(path)
        except AnabranchError:
            return None
        return int(text) if len(text) <= 18 and text.isdigit() and int(text) > 0 else None
