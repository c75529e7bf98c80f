"""The context of kernel operations: one branch of one table, its storage and caches, and deletion of exactly what was seen."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError
from anabranch.format.records.fork import DELETING_FILE, FORK_FILE, Fork
from anabranch.format.records.layout import Layout, Part
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.shell import command_line
from anabranch.kernel.log.cache import SHARED, MetadataCache
from anabranch.kernel.log.manifest_store import ManifestStore
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.schema_log import SchemaLog
from anabranch.kernel.log.snapshot_log import SnapshotLog
from anabranch.lazy import lazy
from anabranch.options import TABLE_UUID
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

_FOREIGN_TABLES = uuid.UUID("6f1c7c1e-6d0b-5c35-9d0e-2b6f3a5b9a10")
"""UUID namespace for the identities of tables that another engine created."""


@dataclass(frozen=True)
class TableContext:
    """One branch of a table at a location. Picklable if its storage is; caches are not pickled."""

    storage: Storage
    """Rooted at the table's folder."""
    name: str
    """``database.table``, for messages."""
    branch: str | None = None
    """The branch whose folder holds the metadata; None for the table's own folder."""
    runtime: Runtime = SYSTEM
    main_generation: int | None = None
    """If opened as main: the number of replacements decided by then. None for a branch opened by name."""
    known_as: str | None = None
    """The name it was opened by, if that differs from its folder's: ``main@1``."""
    past: tuple[Part, ...] = field(default=(), repr=False)
    """Where its history goes on below what lies in its own folder. Of the current and former mains only."""
    known_uuid: str | None = field(default=None, repr=False)
    """Identity of the table as opened; None to read it on first use."""
    cache: MetadataCache = field(default=SHARED, repr=False, compare=False)
    groups: Storage | None = field(default=None, repr=False, compare=False)
    """Folder of the warehouse's multi-table decisions; None for a table outside a warehouse."""

    @lazy
    def layout(self) -> Layout:
        return Layout(self.branch, self.past)

    @lazy
    def snapshots(self) -> SnapshotLog:
        return SnapshotLog(self.storage, self.layout, self.manifests)

    @lazy
    def schemas(self) -> SchemaLog:
        return SchemaLog(self.storage, self.layout)

    @lazy
    def manifests(self) -> ManifestStore:
        return ManifestStore(self.storage, self.cache)

    @property
    def title(self) -> str:
        """The table name with its branch, as users write it; main is written without one, wherever it lies."""
        is_main = self.branch is None or self.main_generation is not None
        named = self.known_as or (None if is_main else self.branch)
        return self.name if named is None else f"{self.name}$branch_{named}"

    @lazy
    def table_uuid(self) -> str:
        """Identity of the table that was opened: the one given at creation, else derived from its first schema.

        Raises `NotFoundError` if there is no table.
        """
        return self.known_uuid or self.read_table_uuid()

    def read_table_uuid(self) -> str:
        """The identity of the table that is there now, read again. Raises `NotFoundError`, `CorruptTableError`."""
        path = Layout().schema_path(0)
        try:
            data = self.storage.get(path)
        except NotFoundError as error:
            raise NotFoundError(
                f"table '{self.name}' does not exist: there is no {path} in {self.storage.url}",
                hint="`tables` lists those there are.",
            ) from error
        given = TABLE_UUID.of(TableSchema.from_json(data, path=path).options)
        if given is None:
            return str(uuid.uuid5(_FOREIGN_TABLES, data.hex()))
        try:
            uuid.UUID(given)
        except ValueError as error:
            raise CorruptTableError(f"option '{TABLE_UUID.key}' is '{given}', no UUID", path=path) from error
        return given

    def is_replaced(self, found: Snapshot | None) -> bool:
        """Whether the table or branch here now is another one than was opened.

        Args:
            found: a snapshot found here. Ours carry the branch's identity; for others the first schema is read again.

        Raises `NotFoundError` if the table or branch no longer exists.
        """
        if found is None:
            return self.read_table_uuid() != self.table_uuid or self.is_other_branch()
        made_on = found.properties.get(BRANCH_PROPERTY)
        if made_on == self.branch_uuid:
            return False
        # The snapshot a branch began with is shared by all branches forked from it.
        if self.is_other_branch():
            return True
        if made_on == self.table_uuid or self.is_forked(found):
            return False
        # Once a snapshot was seen to belong to the table it always will: stamps are unique.
        key = (self.storage.url, self.table_uuid, "snapshot", found.stamp)
        if self.cache.get(key):
            return False
        if self.read_table_uuid() != self.table_uuid:
            return True
        self.cache.put(key, True, len(found.stamp))
        return False

    def check_same_table(self) -> None:
        """Raise `NotFoundError` unless the opened table still exists and was not recreated under its name.

        For operations that change a table without committing; commits compare identities themselves.
        """
        if self.read_table_uuid() != self.table_uuid:
            raise NotFoundError(
                f"'{self.title}' was dropped and created again since it was opened; nothing was changed",
                hint="open the table again to work on the new one.",
            )

    def check_not_recreated(self) -> None:
        """Raise `NotFoundError` if another table has the name since this one was opened; for whoever reads.

        A first schema that is gone or damaged does not tell; what is read next does.
        """
        try:
            is_same = self.read_table_uuid() == self.table_uuid
        except (CorruptTableError, NotFoundError):
            return
        if not is_same:
            raise NotFoundError(
                f"'{self.title}' was dropped and created again since it was opened",
                hint="open the table again to read the new one.",
            )

    def check_same_branch(self) -> None:
        """Raise as `check_same_table`, and if this branch was deleted since it was opened, even if made again under its name.

        Main is followed to whichever branch is main, so of one opened as main only the table is looked at.
        """
        with reading(self.storage) as begin:
            same_table = begin(self.check_same_table)
            is_other = begin(lambda: self.main_generation is None and self.is_other_branch())
            same_table()
            if not is_other():
                return
        raise NotFoundError(
            f"branch '{self.branch}' of '{self.name}' was dropped and created again since it was opened; nothing was changed",
            hint="open it again to work on the new one.",
        )

    @lazy
    def fork(self) -> Fork | None:
        """The fork record of the branch; None for the table's own folder and for branches made by other engines.

        Raises `CorruptTableError`.
        """
        return self.read_fork()

    def read_fork(self) -> Fork | None:
        """Read the fork record of the current branch again; None as for `fork`."""
        if self.branch is None:
            return None
        path = self.layout.branch_file_path(FORK_FILE)
        try:
            return Fork.find(self.storage, path)
        except CorruptTableError as error:
            # One that is or was main is not deleted.
            rest = (
                "put the file back from a copy of the table's folder."
                if self._was_ever_main()
                else f"`{command_line('delete-branch', self.name, '--name', self.branch)}` removes the branch."
            )
            hint = f"`repair` makes it again where that can be; else {rest}"
            raise CorruptTableError(error.message.removeprefix(f"{path}: "), path=path, hint=hint) from error

    def _was_ever_main(self) -> bool:
        """Whether a decision that can be read made the branch of this name main; True where that is not known."""
        from anabranch.format.records.main_pointer import MAIN_PREFIX
        from anabranch.kernel.log.main_pointer import find_pointer, numbers  # they stand on contexts

        if self.main_generation is not None or self.known_as is not None:
            return True
        try:
            found = [find_pointer(self, number) for number in numbers(self, MAIN_PREFIX)]
        except AnabranchError:
            return True
        return any(pointer is not None and pointer.main.name == self.branch for pointer in found)

    def with_fork(self, fork: Fork | None) -> TableContext:
        """Return the same branch with `fork` as its fork record: to repair or delete one with an unreadable record."""
        made = replace(self)
        made.__dict__["fork"] = fork
        return made

    def is_other_branch(self) -> bool:
        """Whether the branch was deleted and another one was created under its name.

        Raises `NotFoundError` if the branch is gone or is being deleted.
        """
        if self.fork is None:
            return False
        with reading(self.storage) as begin:
            fork = begin(self.read_fork)
            deleting = begin(lambda: self.storage.exists(self.layout.branch_file_path(DELETING_FILE)))
            now = fork()
            # What is main is not deleted: a deletion that died before it saw that has left its mark.
            is_gone = now is None or (deleting() and self.main_generation is None)
        if now is None or is_gone:
            raise NotFoundError(
                f"branch '{self.branch}' of '{self.name}' was deleted since it was opened",
                hint="what it merged into main stays; `branches` lists those there are.",
            )
        return now.branch_uuid != self.fork.branch_uuid

    @lazy
    def branch_uuid(self) -> str:
        """Identity of the branch; that of the table for the branch in the table's own folder."""
        if self.branch is None:
            return self.table_uuid
        if self.fork is not None:
            return self.fork.branch_uuid
        return str(uuid.uuid5(uuid.UUID(self.table_uuid), self.branch))

    def is_forked(self, found: Snapshot) -> bool:
        """Whether a snapshot of this branch is the one it began with, which was made on another."""
        return self.fork is not None and found.stamp == self.fork.snapshot.stamp

    def on_branch(self, branch: str | None) -> TableContext:
        """Return the same table on another branch, given by folder name."""
        return replace(self, branch=branch, main_generation=None, known_as=None, past=())

    def __getstate__(self) -> dict[str, Any]:
        known_uuid = self.__dict__.get("table_uuid", self.known_uuid)
        return {
            "storage": self.storage,
            "name": self.name,
            "branch": self.branch,
            "main_generation": self.main_generation,
            "known_as": self.known_as,
            "past": self.past,
            "known_uuid": known_uuid,
            "groups": self.groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, runtime=SYSTEM, cache=SHARED)


def delete_exactly(storage: Storage, path: str, content: bytes) -> bool:
    """Remove an object if it still has this content; False if it is gone or was changed.

    Stores have no conditional delete, so this reads before it removes. The caller makes sure that the name is not
    reused in between, or that nothing is lost if it is.
    """
    try:
        found = storage.get(path)
    except NotFoundError:
        return False
    if found != content:
        return False
    storage.delete(path)
    return True


def delete_snapshot(context: TableContext, snapshot: Snapshot) -> bool:
    """Remove a snapshot's file if it still holds this snapshot; False if it is gone or holds another."""
    if context.snapshots.still(snapshot) is None:
        return False
    context.storage.delete(context.layout.snapshot_path(snapshot.id))
    return True
