"""The lineage index of a warehouse: its location, and its repair."""

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
from anabranch.lineage.index.database import Database, is_sound
from anabranch.lineage.index.store import IndexStore
from anabranch.lineage.store import DamagedIndexError
from anabranch.options import LINEAGE_INDEX
from anabranch.storage.open import local_folder

_LOG = logging.getLogger(__name__)
_FILE: Final = "lineage/index.db"
_VARIABLE: Final = "ANABRANCH_LINEAGE_INDEX"
_T = TypeVar("_T")


class LineageIndex:
    """The lineage index of a warehouse. Opened on first use. Thread-safe."""

    def __init__(self, catalog: FilesystemCatalog, url: str | None, *, is_named: bool = True) -> None:
        """Use `of` to get one.

        Args:
            url: of the database; None for a temporary one of this process.
            is_named: whether the user asked for this place, so that there is no falling back to another.
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
        """Return the index of a warehouse.

        The option ``lineage.index``, or else the variable ANABRANCH_LINEAGE_INDEX, names it: a URL of PostgreSQL or of
        a SQLite file, or the path of such a file. Without either it is the file ``lineage/index.db`` in a
        warehouse that is a local folder. For a warehouse in an object store it is built on first use,
        in a temporary file of this process.
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
        """Location, for people; without a password."""
        if self._url is None:
            return "of this process"
        try:
            return sa.make_url(self._url).render_as_string(hide_password=True)
        except sa.exc.ArgumentError:
            return "of no known place"

    def catch_up(self) -> CaughtUp:
        """Add what was committed, archived, made and deleted since the last time; cheap if nothing was.

        A damaged file is set aside, and the index rebuilt.

        Raises:
            StorageError: the store, or the database, does not answer; what was added before stays.
            UnsupportedFeatureError: a newer release made the index.
            OptionError: the named place cannot hold an index.
        """
        return self._healing(lambda database: catch_up(database, self._catalog))

    def rebuild(self) -> CaughtUp:
        """Remove all rows of this warehouse and add them again. Raises as `catch_up`."""
        self._healing(lambda database: forget(database, self._catalog.storage.url))
        return self.catch_up()

    @contextmanager
    def reading(self) -> Iterator[IndexStore]:
        """Open a consistent snapshot of the index for the length of the block; it is not brought up to date before.

        Raises as `catch_up`; and `DamagedIndexError` if the file is damaged: it is set aside, and `catch_up` builds it anew.
        """
        database = self._open()
        try:
            with database.reading() as connection:
                yield IndexStore(connection)
        except DamagedIndexError as error:
            self._give_up(database, error)
            raise

    def close(self) -> None:
        """Close the database. The next query opens it again."""
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
            return _opened_anew(self._url)
        except StorageError as error:
            if self._is_named:
                raise
            _LOG.warning("the lineage index is not kept, but built for this process alone: %s", error.message)
            return Database.temporary()

    def _is_warehouse_there(self) -> bool:
        """Whether the warehouse's folder exists: asking what is in a warehouse does not create one."""
        folder = local_folder(self._catalog.storage.url)
        return folder is not None and os.path.isdir(folder)  # noqa: PTH112 - Path raises what a folder above forbids

    def _healing(self, work: Callable[[Database], _T]) -> _T:
        database = self._open()
        try:
            return work(database)
        except DamagedIndexError as error:
            if database.file is None:
                raise
            self._give_up(database, error)
        return work(self._open())

    def _give_up(self, database: Database, error: DamagedIndexError) -> None:
        """Set a damaged file aside, so that the next question opens another; once, of many who find it."""
        with self._lock:
            if self._database is not database or database.file is None:
                return
            database.close()
            self._database = None
            _set_aside(database.file, error)


def _opened_anew(url: str) -> Database:
    """Open a database; in the place of a damaged one a new one. Raises `StorageError`."""
    try:
        return Database(url)
    except DamagedIndexError as error:
        _set_aside(_file(url), error)
        return Database(url)


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
    """Rename a damaged file, unless another process has put a sound one in its place."""
    if path.is_dir() or is_sound(path):  # a folder is not ours to move away
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
