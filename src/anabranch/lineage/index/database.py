"""The database of the index: opening it, its transactions, and what its errors mean.

SQLite in a file of its own, or PostgreSQL by a URL. One writer at a time works on a table of the warehouse, others wait
for it; who reads sees one moment for as long as it reads.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from anabranch.errors import OptionError, StorageError, UnsupportedFeatureError
from anabranch.lineage.index.tables import META, METADATA, PREFIX, VERSION

_WAIT_SECONDS: Final = 600
"""Another process may be building the whole index just now."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_VERSION_KEY: Final = "version"
_POSTGRES: Final = "postgresql"
_LOCK: Final = 0x616E616272616E63
"""The lock of PostgreSQL that writers hold one after the other."""


class DamagedIndexError(StorageError):
    """The file of the index is no database any more."""


class Database:
    """A database with the tables of the index. May be used by several threads; cannot be sent to another process."""

    def __init__(self, url: str | sa.URL, *, durable: bool = True) -> None:
        """Open it, and make its tables where there are none or those of an older release.

        Args:
            url: as SQLAlchemy writes it: ``postgresql://user@host/database`` or ``sqlite:////folder/file.db``.
            durable: whether a crash of the machine may not damage it.

        Raises:
            OptionError: the URL is none that can be used.
            StorageError: the database cannot be reached.
            DamagedIndexError: the file is no database.
            UnsupportedFeatureError: a newer release made its tables.
        """
        self._url = _parsed(url)
        self.file = Path(str(self._url.database)) if self._is_file else None
        """The file of SQLite; None for a server."""
        self._end: weakref.finalize[..., Database] | None = None
        if self.file is not None:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"the folder of the index, {self.file.parent}, cannot be made: {error}"
                ) from error
        self._engine = _sqlite(self._url, durable=durable) if self._is_file else _server(self._url)
        weakref.finalize(self, self._engine.dispose)
        with self._translated():
            with self._engine.connect() as connection:
                version = _version(connection)
            if version != VERSION:
                self._make_tables()

    @classmethod
    def temporary(cls) -> Database:
        """One for this process alone, which is gone with it."""
        folder = Path(tempfile.mkdtemp(prefix="anabranch-lineage-"))
        database = cls(sa.URL.create("sqlite", database=str(folder / "index.db")), durable=False)
        database._end = weakref.finalize(database, shutil.rmtree, folder, ignore_errors=True)
        return database

    def __repr__(self) -> str:
        return f"<lineage index {self.place}>"

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One moment of it, in which nothing is written. Raises `StorageError`, `DamagedIndexError`."""
        with self._translated(), self._engine.connect() as plain:
            moment = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            connection = plain if self._is_file else plain.execution_options(**moment)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction, whole or not at all; others that write wait for it. Raises as `reading`."""
        with self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(immediate=True)
            with connection.begin():
                if not self._is_file:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                yield connection

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()
        if self._end is not None:
            self._end()

    @property
    def _is_file(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def _make_tables(self) -> None:
        with self.writing() as connection:
            version = _version(connection)
            if version is not None and version > VERSION:
                raise UnsupportedFeatureError(
                    f"the lineage index {self.place} has version {version}, this release knows {VERSION}",
                    feature="lineage-index-version",
                    hint="use the newer release, or another index with the option 'lineage.index': it is built from the "
                    "tables.",
                )
            if version == VERSION:
                return  # somebody else made them meanwhile
            old = [name for name in sa.inspect(connection).get_table_names() if name.startswith(PREFIX)]
            for name in old:
                sa.Table(name, sa.MetaData()).drop(connection)
            METADATA.create_all(connection)
            connection.execute(META.insert().values(key=_VERSION_KEY, value=str(VERSION)))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            cause = error.orig
            if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise DamagedIndexError(
                    f"the lineage index {self.place} is damaged: {cause}",
                    hint="`lineage rebuild` builds it anew from the tables.",
                ) from error
            raise StorageError(
                f"the lineage index {self.place} did not answer: {cause}",
                hint="the tables are not touched by this; the option 'lineage.index' names another database.",
                retryable=not isinstance(error, sa.exc.ProgrammingError),
            ) from error
        except SQLAlchemyError as error:
            raise StorageError(f"the lineage index {self.place} cannot be used: {error}") from error


def is_sound(file: Path) -> bool:
    """Whether a file is a whole database of SQLite; reads all of it."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False


def _version(connection: sa.Connection) -> int | None:
    """Of the tables; 0 if it cannot be read, None if there are none."""
    if not sa.inspect(connection).has_table(META.name):
        return None
    text = connection.scalar(sa.select(META.c.value).where(META.c.key == _VERSION_KEY))
    return int(text) if text is not None and text.isdigit() else 0


def _parsed(url: str | sa.URL) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        raise OptionError(
            f"the lineage index '{url}' is no URL of a database",
            hint="Write it like postgresql://user:password@host/database, or name a file of SQLite.",
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    if backend != _POSTGRES:
        raise OptionError(
            f"the lineage index cannot be in a database of the kind '{parsed.drivername}'",
            hint="It may be a file of SQLite (sqlite:////folder/file.db) or PostgreSQL (postgresql://host/database).",
        )
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == _POSTGRES else parsed


def _server(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(url, pool_pre_ping=True)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise OptionError(
            f"the lineage index {url.render_as_string(hide_password=True)} needs a driver that is not installed",
            hint="pip install 'anabranch[postgres]'",
        ) from error


def _sqlite(url: sa.URL, *, durable: bool) -> sa.Engine:
    # A connection for each transaction: none outlives a fork, or a file that was set aside.
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions begin as told, not by themselves
        with suppress(
            sqlite3.OperationalError
        ):  # somebody else sets it just now, or the file can only be read
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine
