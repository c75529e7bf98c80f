"""Savepoint manager of a table, with the interface of the proposal that introduced savepoints."""

from __future__ import annotations

from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.log import savepoint_log
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.refs import savepoints
from anabranch.kernel.refs.moments import resolve_own


class SavepointManager:
    """Manager of the savepoints of one branch: ``table.savepoint_manager``.

    Paths are whole ones, from the place of the warehouse on, which `Savepoint.from_path` takes as well as those relative
    to the table's folder: ``Savepoint.from_path(table.context.storage, manager.savepoint_path(3))``.

    Example:
        >>> manager = table.savepoint_manager
        >>> manager.create("good").saved_snapshot_id
        1
        >>> manager.savepoint_exists(1)
        True
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context

    @property
    def savepoint_directory(self) -> str:
        """Return the full path of the savepoints' folder."""
        return self._whole(self._context.layout.savepoint_folder)

    def savepoint_path(self, savepoint_id: int) -> str:
        """Return the full path of a savepoint's file, whether or not it exists."""
        return self._whole(self._context.layout.savepoint_path(savepoint_id))

    def _whole(self, path: str) -> str:
        return f"{self._context.storage.url.rstrip('/')}/{path}"

    def savepoint(self, savepoint_id: int) -> Savepoint:
        """Return the savepoint of that id. Raises `NotFoundError` naming the existing ones."""
        return savepoint_log.get_savepoint(self._context, savepoint_id)

    def savepoint_exists(self, savepoint_id: int) -> bool:
        """Whether this branch has a savepoint of that id."""
        found = savepoint_log.find_savepoint(self._context, savepoint_id)
        return found is not None and savepoint_log.is_of(self._context, found)

    @property
    def earliest_savepoint_id(self) -> int | None:
        """Return the lowest id of a savepoint, or None if there is none."""
        return next((savepoint.id for savepoint in self.savepoints()), None)

    @property
    def latest_savepoint_id(self) -> int | None:
        """Return the highest id of a savepoint, or None if there is none."""
        numbers = savepoint_log.read_numbers(self._context)
        return next((s.id for s in savepoint_log.newest_first(self._context, numbers)), None)

    def savepoints(self) -> list[Savepoint]:
        """Return all savepoints, by ascending id."""
        return savepoint_log.savepoints(self._context)

    def create(self, version: str | int | None = None) -> Savepoint:
        """Create a savepoint of the current moment, or of what `version` names. See `Table.create_savepoint`."""
        self._context.check_same_branch()
        moment = None if version is None else resolve_own(self._context, version)
        return savepoints.create_savepoint(self._context, moment)

    def delete(self, savepoint_id: int) -> Savepoint:
        """Delete a savepoint; its id is not reused. Raises `NotFoundError`."""
        self._context.check_same_branch()
        return savepoints.delete_savepoint(self._context, savepoint_id)
