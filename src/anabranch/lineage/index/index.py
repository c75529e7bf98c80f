"""The index of a warehouse: where it lies, and how it heals."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa

from anabranch.catalog import FilesystemCatalog
from anabranch.errors import StorageError
from anabranch.lineage.index.catch_up import CaughtUp, catch_up, forget
from anabranch.lineage.index.database import DamagedIndexError, Database, is_sound
from anabranch.lineage.index.store import IndexStore
from anabranch.options import LINEAGE_INDEX
from anabranch.storage.open import local_folder

_LOG = logging.getLogger(__name__)
_FILE: Final = "lineage/index.db"
_VARIABLE: Final = "ANABRANCH_LINEAGE_INDEX"
_T = TypeVar("_T")


class LineageIndex:
    """The index of a warehouse. Nothing is opened before it is first asked. May be used by several threads."""

    def __init__(self, catalog: FilesystemCatalog, url: str | None, *, is_named: bool = True) -> None:
        """Get one with `of`.

        Args:
            catalog: the warehouse.
            url: of the database; None for one that this process has for itself.
            is_named: whether somebody wants it there, so that another place will not do.
        """
        self._catalog = catalog
        self._url = url
        self._is_named = is_named
        self._database: Database | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls,
        catalog: FilesystemCatalog,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> LineageIndex:
        """The index that a warehouse has.

        The option ``lineage.index``, or else the variable ANABRANCH_LINEAGE_INDEX, says where: a URL of PostgreSQL or of
        a file of SQLite, or the path of such a file. Where neither does, it is the file ``lineage/index.db`` in a
        warehouse that is a local folder. In an object store there is no place for it: it is built when it is first asked,
        in a file for this process alone.
        """
        named = LINEAGE_INDEX.of(options or {}) or environment.get(_VARIABLE)
        if named is not None:
            return cls(catalog, named if "://" in named else _file_url(Path(named).expanduser()))
        folder = local_folder(catalog.storage.url)
        url = None if folder is None else _file_url(Path(folder) / _FILE)
        return cls(catalog, url, is_named=False)

    def __repr__(self) -> str:
        return f"<LineageIndex {self.place}>"

    @property
    def place(self) -> str:
        """Where it lies, for people; without a password."""
        if self._url is None:
            return "of this process"
        try:
            return sa.make_url(self._url).render_as_string(hide_password=True)
        except sa.exc.ArgumentError:
            return "of no known place"

    def catch_up(self) -> CaughtUp:
        """Take in what was committed, archived, made and deleted since; cheap where that is nothing.

        A file that is damaged is set aside, and the index built anew.

        Raises:
            StorageError: the store, or the database, does not answer; what was taken in before stays.
            UnsupportedFeatureError: a newer release made the index.
            OptionError: there can be no index at the place that was named.
        """
        return self._healing(lambda database: catch_up(database, self._catalog))

    def rebuild(self) -> CaughtUp:
        """Forget all about this warehouse, and take it in again. Raises as `catch_up`."""
        self._healing(lambda database: forget(database, self._catalog.storage.url))
        return self.catch_up()

    @contextmanager
    def reading(self) -> Iterator[IndexStore]:
        """What the index says, at one moment and for as long as the block lasts; it is not brought up to date before.

        Raises as `catch_up`; and `StorageError` if the file is damaged, which `catch_up` would heal.
        """
        with self._open().reading() as connection:
            yield IndexStore(connection)

    def close(self) -> None:
        """Let go of the database. It is opened again when it is asked again."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def _open(self) -> Database:
        with self._lock:
            if self._database is None:
                self._database = self._opened()
            return self._database

    def _opened(self) -> Database:
        if self._url is None or not (self._is_named or self._is_warehouse_there()):
            return Database.temporary()
        try:
            if not self._is_named and not _is_writable(_file(self._url)):
                raise StorageError(f"{self.place} cannot be written")
            return Database(self._url)
        except DamagedIndexError as error:
            _set_aside(_file(self._url), error)
            return Database(self._url)
        except StorageError as error:
            if self._is_named:
                raise
            _LOG.warning("the lineage index is not kept, but built for this process alone: %s", error.message)
            return Database.temporary()

    def _is_warehouse_there(self) -> bool:
        """To ask what is in a warehouse does not make one."""
        folder = local_folder(self._catalog.storage.url)
        return folder is not None and os.path.isdir(folder)  # noqa: PTH112 - Path raises what a folder above forbids

    def _healing(self, work: Callable[[Database], _T]) -> _T:
        database = self._open()
        try:
            return work(database)
        except DamagedIndexError as error:
            if database.file is None:
                raise
            self.close()
            _set_aside(database.file, error)
        return work(self._open())


def _file_url(path: Path) -> str:
    return sa.URL.create("sqlite", database=str(path.absolute())).render_as_string()


def _file(url: str) -> Path:
    return Path(str(sa.make_url(url).database))


def _is_writable(path: Path) -> bool:
    # Path.exists raises what a folder above forbids.
    while not os.path.exists(path) and path != path.parent:  # noqa: PTH110
        path = path.parent
    return os.access(path, os.W_OK)


def _set_aside(path: Path, error: DamagedIndexError) -> None:
    """Give a damaged file another name, unless somebody else has put a sound one in its place."""
    if is_sound(path):
        return
    number = next(n for n in itertools.count(1) if not path.with_name(f"{path.name}.damaged-{n}").exists())
    _LOG.warning("%s; it is set aside as %s.damaged-%d and built anew", error.message, path.name, number)
    for suffix in ("-wal", "-shm", ""):
        source = path.with_name(path.name + suffix)
        try:
            source.rename(path.with_name(f"{path.name}.damaged-{number}{suffix}"))
        except FileNotFoundError:
            continue
        except OSError as failure:
            raise StorageError(
                f"the index of lineage in {path} is damaged, and cannot be set aside: {failure.strerror}",
                hint="remove the file, or have an index elsewhere by the option 'lineage.index'.",
            ) from failure
