"""Names of the databases and tables in a warehouse. Light to import: listing them loads neither Arrow nor Polars."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.catalog.place import DATABASE_SUFFIX, check_place
from anabranch.errors import NotFoundError
from anabranch.format.records.layout import Layout
from anabranch.format.text.names import check_database_name
from anabranch.kernel.log.parallel import each
from anabranch.storage.protocol import Storage


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
        return self._storage.exists(f"{path}/{Layout().schema_path(0)}")
