"""The database of the index: opening it, its transactions, and the translation of its errors.

SQLite in a file of its own, or PostgreSQL by a URL. Writers of a table of the warehouse take turns; readers see one
consistent snapshot for as long as they read.
"""

from __future__ import annotations

import os
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

from anabranch.errors import OptionError, StorageError
from anabranch.format.text.json_object import check_version
from anabranch.lineage.index.tables import META, METADATA, PREFIX, VERSION
from anabranch.lineage.store import DamagedIndexError

_WAIT_SECONDS: Final = 600
"""Another process may be building the whole index just now."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TABLES_GONE: Final = ("no such table", "no such column")
_VERSION_KEY: Final = "version"
_POSTGRES: Final = "postgresql"
_LOCK: Final = 0x616E616272616E63
"""The PostgreSQL advisory lock that writers take in turn."""


class Database:
    """A database with the tables of the index. Thread-safe; cannot be sent to another process."""

    def __init__(self, url: str | sa.URL, *, durable: bool = True) -> None:
        """Open it, and create its tables if they are missing or of an older release.

        Args:
            url: in SQLAlchemy's form: ``postgresql://user@host/database`` or ``sqlite:////folder/file.db``.
            durable: whether it must survive a crash of the machine undamaged.

        Raises:
            OptionError: the URL cannot be used.
            StorageError: the database cannot be reached.
            DamagedIndexError: the file is not a database.
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
        """Create one for this process alone, deleted when the process ends."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"anabranch-lineage-{os.getpid()}-"))
        except OSError as error:
            raise StorageError(
                f"the lineage index finds no room for temporary files: {error.strerror}",
                hint="point TMPDIR at a disk with room, or name a database that stays with 'lineage.index'.",
            ) from error
        database = cls(sa.URL.create("sqlite", database=str(folder / "index.db")), durable=False)
        database._end = weakref.finalize(database, shutil.rmtree, folder, ignore_errors=True)
        return database

    def __repr__(self) -> str:
        return f"<lineage index {self.place}>"

    @property
    def place(self) -> str:
        """Location, for people; without a password."""
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a read-only snapshot of it. Raises `StorageError`, `DamagedIndexError`."""
        with self._translated(), self._engine.connect() as plain:
            moment = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            connection = plain if self._is_file else plain.execution_options(**moment)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open an atomic transaction; other writers wait for it. Raises as `reading`."""
        with self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(immediate=True)
            with connection.begin():
                if not self._is_file:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                yield connection

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()
        if self._end is not None:
            self._end()

    @property
    def _is_file(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def _make_tables(self) -> None:
        with self.writing() as connection:
            version = _version(connection)
            check_version(version, VERSION, path=f"the lineage index {self.place}")
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
            if isinstance(cause, sqlite3.Error) and self._is_damage(cause):
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

    def _is_damage(self, error: sqlite3.Error) -> bool:
        """Whether an error says that the file is no database, or not the one that was opened: cut to nothing, or replaced."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN and self.file is not None:
            return os.path.lexists(self.file) and not os.path.isfile(self.file)  # noqa: PTH113 - a link in a circle too
        return code in _DAMAGED or (code == sqlite3.SQLITE_ERROR and str(error).startswith(_TABLES_GONE))


def is_sound(file: Path) -> bool:
    """Whether a file is an intact SQLite database; reads all of it."""
    try:
        with closing(sqlite3.connect(file)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError:
        return False


def _version(connection: sa.Connection) -> int | None:
    """Return the version of the tables; 0 if it cannot be read, None if there are none."""
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
    # A connection per transaction: none outlives a fork, or a file that was set aside.
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions begin explicitly, not by themselves
        with suppress(sqlite3.OperationalError):  # another process is setting it, or the file is read-only
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine
