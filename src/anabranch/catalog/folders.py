"""Names of tables, and the folders of a warehouse: what is one, its databases and tables by name, and removal of a table's.

Light to import: listing names loads neither Arrow nor Polars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import (
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    UnreadableFileError,
    UnsupportedFeatureError,
    WarehouseMissingError,
)
from anabranch.format.records.layout import HISTORY_FOLDER, Layout
from anabranch.format.records.main_pointer import former_main_of
from anabranch.format.text.names import check_branch_name, check_database_name, check_table_name
from anabranch.kernel.log.parallel import each
from anabranch.storage.open import local_folder
from anabranch.storage.protocol import Storage

_BRANCH_PREFIX = "branch_"


@dataclass(frozen=True, slots=True)
class Identifier:
    """``database.table[$branch_name][$system]``."""

    database: str
    table: str
    branch: str | None = None
    system: str | None = None

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Parse a name as users write it. Raises `InvalidNameError`."""
        if "://" in text:  # it may hold keys, as other tools write them
            raise InvalidNameError(
                f"a URL ({text.partition('://')[0]}://...) does not name a table",
                hint="name the warehouse where the lake is opened, and the table as database.table.",
            )
        database, dot, rest = text.partition(".")
        if not dot or not rest:
            raise InvalidNameError(
                f"'{text}' does not name a table", hint="write database.table, for example db.orders."
            )
        table, *suffixes = rest.split("$")
        branch = system = None
        for suffix in suffixes:
            if suffix.startswith(_BRANCH_PREFIX) and branch is None and system is None:
                branch = suffix.removeprefix(_BRANCH_PREFIX)
            elif suffix and system is None:
                system = suffix
            else:
                raise InvalidNameError(
                    f"'{text}' does not name a table",
                    hint="after the table's name there may be $branch_<name>, then one system table's name.",
                )
        check_database_name(database)
        check_table_name(table)
        if branch == "main":
            branch = None
        if branch is not None and former_main_of(branch) is None:
            check_branch_name(branch)
        return cls(database, table, branch, system)

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def path(self) -> str:
        """Folder of the table in its warehouse."""
        return f"{self.database}.db/{self.table}"


class NameListing:
    """Names in one warehouse."""

    def __init__(self, storage: Storage) -> None:
        """Args:
        storage: rooted at the warehouse.
        """
        self._storage = storage

    def databases(self) -> list[str]:
        """Return names of all databases, sorted."""
        folders = (folder.rpartition("/")[2] for folder in self._storage.list_folders())
        return sorted(f.removesuffix(DATABASE_SUFFIX) for f in folders if f.endswith(DATABASE_SUFFIX))

    def check_there(self, known: Sequence[str] | None = None) -> None:
        """Raise if this is not a warehouse: nothing, a file, or a folder inside of one.

        Args:
            known: the databases, if they were listed already.

        Raises `NotFoundError`, `InvalidInputError`.
        """
        if not (self.databases() if known is None else known):
            check_place(self._storage, may_be_new=False)

    def tables(self, database: str) -> list[str]:
        """Return names of all tables of a database, sorted. Raises `NotFoundError`."""
        named = self.table_folders(database)
        paths = [f"{database}{DATABASE_SUFFIX}/{name}" for name in named]
        there = each(self._exists, paths, at=self._storage)
        return [name for name, exists in zip(named, there, strict=True) if exists]

    def table_folders(self, database: str) -> list[str]:
        """Return the names in a database that may be tables, sorted; one listing. Raises `NotFoundError`."""
        check_database_name(database)
        known = self.databases()
        if database not in known:
            self.check_there(known)
            raise NotFoundError(
                f"database '{database}' does not exist in {self._storage.url}",
                hint=f"databases there are: {', '.join(known)}." if known else "the warehouse is empty.",
            )
        folders = self._storage.list_folders(f"{database}{DATABASE_SUFFIX}")
        names = [folder.rpartition("/")[2] for folder in folders]
        return sorted(name for name in names if not name.startswith("."))

    def _exists(self, path: str) -> bool:
        try:
            return self._storage.exists(f"{path}/{Layout().schema_path(0)}")
        except UnreadableFileError:  # opening it says what is wrong
            return True


DATABASE_SUFFIX = ".db"
MARKER = ".database"
"""Object that represents an empty database in stores without folders."""


def check_place(storage: Storage, *, may_be_new: bool) -> None:
    """Raise an error that says what a location without databases is, unless it is an empty warehouse.

    Args:
        storage: rooted at the place.
        may_be_new: whether something is about to be written, so that it need not be there yet.

    Raises:
        InvalidInputError: it is a file, a table or a database, and not a warehouse.
        NotFoundError: nothing is there. Object stores have no folders, so there it may also be empty.
    """
    local = local_folder(storage.url)
    folder = None if local is None else Path(local)
    url = storage.url.rstrip("/") if local is None else local
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InvalidInputError(
            f"{url} is a file, not a warehouse", hint="a warehouse is a folder of databases."
        )
    if folder is not None and not folder.exists():
        if may_be_new:
            return
        raise WarehouseMissingError(
            f"there is no warehouse at {url}",
            hint="check the path; a new warehouse is made by the first table that is created in it, or on the command "
            "line by `--create`.",
        )
    if storage.exists(Layout().schema_path(0)):
        above = url.rpartition("/")[0].rpartition("/")[0]
        raise InvalidInputError(f"{url} is a table, not a warehouse", hint=f"its warehouse is {above}.")
    if _is_database(storage, url):
        raise InvalidInputError(
            f"{url} is a database, not a warehouse", hint=f"its warehouse is {url.rpartition('/')[0]}."
        )


def _is_database(storage: Storage, url: str) -> bool:
    if storage.exists(MARKER):
        return True
    return url.endswith(DATABASE_SUFFIX) and any(
        storage.exists(f"{table}/{Layout().schema_path(0)}") for table in storage.list_folders()
    )


# Removal of tables, and what an interrupted one leaves behind.
#
# Dropping a table renames its folder at once. Object stores cannot do that: there the schemas are deleted
# first, so that the table stops existing, and the snapshots last, so that nobody creates another one in its
# place before the drop is done. An interrupted drop is completed by the next one.

_DROPPED = ".dropped-"
"""Prefix of the folder names of dropped tables."""
_METADATA = frozenset({
    "schema", "snapshot", "tag", "branch", "consumer", "savepoint", "changelog", "ledger", HISTORY_FOLDER
})  # fmt: skip
"""Folders that would affect a new table in the same place; names of data files and manifests are unique."""


def remove_table(warehouse: Storage, identifier: Identifier, unique: str) -> None:
    """Remove the folder of a table; `unique` names it while that goes on."""
    database = f"{identifier.database}{DATABASE_SUFFIX}"
    try:
        warehouse.rename_folder(identifier.path, f"{database}/{_DROPPED}{unique}")
    except UnsupportedFeatureError:
        _remove_in_order(warehouse, identifier.path)
        return
    for folder in warehouse.list_folders(database):
        if folder.rpartition("/")[2].startswith(_DROPPED):
            warehouse.delete_folder(folder)


def has_remains(warehouse: Storage, path: str) -> bool:
    """Whether metadata is left in the folder of a table that no longer exists."""
    found = [f for f in warehouse.list_folders(path) if f.rpartition("/")[2] in _METADATA]
    return any(True for folder in found for _ in warehouse.list(folder, recursive=True))


def remove_empty(warehouse: Storage, folder: str) -> None:
    """Remove a folder and those inside of it, as far as nothing is in them."""
    for inner in warehouse.list_folders(folder):
        remove_empty(warehouse, inner)
    warehouse.delete_empty_folder(folder)


def _remove_in_order(warehouse: Storage, path: str) -> None:
    schemas, snapshots = f"{path}/{Layout().schema_folder}", f"{path}/{Layout().snapshot_folder}"
    others = [f for f in warehouse.list_folders(path) if f not in (schemas, snapshots)]
    warehouse.delete_folder(schemas)
    for folder in others:
        warehouse.delete_folder(folder)
    loose = [info.path for info in warehouse.list(path, include_temporary=True)]
    if loose:
        warehouse.delete_many(loose)
    warehouse.delete_folder(snapshots)
