"""Who calls a verb: the command line, a procedure of SQL, or a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError, NotFoundError, StorageError
from anabranch.storage.requests import Requests, requests

if TYPE_CHECKING:
    from anabranch.catalog import NameListing
    from anabranch.lake import Lake
    from anabranch.table import Table


def accounted() -> AbstractContextManager[Requests]:
    """Count what is asked of stores inside of the block."""
    return requests()


def _nothing(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class View:
    """The view of a table that a verb works on."""

    table: str
    branch: str | None = None
    at: str | None = None
    exact: bool = False
    """Refuse to answer `at` if the answer is not certain."""
    published: bool = False
    """Show what readers saw at the time `at`, ignoring later corrections."""
    options: Mapping[str, str] | None = None


class Statuses:
    """What is told of jobs at work; shows nothing. A context manager."""

    def __init__(self) -> None:
        self.on_closed: Callable[[], None] = lambda: None
        """Called when nobody sees it any more."""
        self.is_closed = False

    def __enter__(self) -> Statuses:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be done."""

    def update(self, statuses: Sequence[Any]) -> None:
        """Take in all jobs as they are now."""

    def trace(self, event: object) -> None:
        """Take in where a failure comes from."""


@dataclass
class Caller:
    """A caller that names the warehouse by its path or URL."""

    warehouse: str
    by: str | None = None
    """Who is recorded to have done it."""
    confirm: Callable[[str], None] = _nothing
    """Asks a question, and raises if the answer is no."""
    progress: Callable[[str], None] = _nothing
    """Told what long work is at."""
    say: Callable[[str], None] = _nothing
    """Told, while it goes on, what people see of the answer."""
    tell: Callable[[str], None] = _nothing
    """Told what is said beside the answer."""
    runnable: Callable[[str], str] = str
    """Completes the commands in a text, so that they can be run as they are shown."""
    converse: Callable[[int | None, str], None] | None = None
    """Opens a shell for statements, given the most rows and the engine; None where nobody types."""
    is_watched: bool = False
    """Whether a person looks at the answer, on a terminal."""
    wants_values: bool = True
    """Whether the value of an answer is used, and not what it shows."""
    is_of_sql: bool = False
    """Whether the rows of an answer are used."""
    is_loud: bool = False
    """Whether the output of what is started, such as Spark's, is wanted."""
    order: tuple[str, ...] = ()
    """The parameters in the order in which they were given."""
    statuses: Callable[..., Statuses] = lambda **_: Statuses()
    """Opens what shows jobs at work; with ``changes=False`` to people only, and without what was given up."""

    @property
    def place(self) -> str:
        """Path or URL of the warehouse."""
        return self.warehouse or self.lake().url

    def lake(self, master: str | None = None) -> Lake:
        """Open the warehouse; with a master to work on Spark."""
        from anabranch.lake import connect

        if master is None:
            return connect(self.warehouse)
        from anabranch.spark.sessions import session

        return connect(
            self.warehouse, spark=session(self.warehouse, master=master, app_name="anabranch maintenance")
        )

    def table(self, view: View, lake: Lake | None = None) -> Table:
        """Open the view of a table. Raises as `open_table`."""
        return open_table(lake or self.lake(), view)


def open_table(lake: Lake, view: View) -> Table:
    """Open the view of a table. Raises `NotFoundError`, `InvalidNameError`, `InvalidInputError`."""
    table = lake.table(view.table)
    if view.branch is not None:
        table = table.branch(view.branch)
    if view.options:
        table = table.with_options(view.options)
    if view.at is not None:
        if view.published:
            return table.at(timestamp=view.at, exact=view.exact, published=True)
        return _at(table, view.at, view.exact)
    if view.exact or view.published:
        asked = "exact" if view.exact else "published"
        raise InvalidInputError(f"{asked} is about a moment, but none was asked for", hint="say which one.")
    return table


def _at(table: Table, asked: str, exact: bool) -> Table:
    """Resolve a version name; if there is none of that name, a time."""
    from anabranch.kernel.refs.moments import to_millis

    try:
        return table.at(asked, exact=exact)
    except NotFoundError:
        try:
            millis = to_millis(asked)
        except InvalidInputError:
            millis = None
        if millis is None:
            raise
    return table.at(timestamp=millis, exact=exact)


def names_in(warehouse: str) -> NameListing:
    """Return the names of databases and tables at a path or URL, without what reading a table loads."""
    from anabranch.catalog import NameListing
    from anabranch.storage.open import open_storage

    return NameListing(open_storage(warehouse))


def create_warehouse(warehouse: str) -> None:
    """Create the folder of a warehouse; not needed in object stores. Raises `StorageError`."""
    from anabranch.storage.open import local_folder

    folder = local_folder(warehouse)
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the warehouse {folder}: {error.strerror}", retryable=False
        ) from error


def store_variables(options: Mapping[str, str]) -> dict[str, str]:
    """Return store options as environment variables for this process and its children. Raises `OptionError`."""
    from anabranch.storage.settings import variables_of  # slow to import

    return variables_of(options)


def user() -> str | None:
    """Return the logged-in user; None if it has no name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in containers whose user has no name
        return None


class Session(Caller):
    """A procedure of SQL, which works on the table that it names, with the session that it was called in."""

    def __init__(self, lake: Callable[[], Lake], table: Table | None) -> None:
        """Create it.

        Args:
            lake: opens the lake of the session.
        """
        super().__init__("", is_of_sql=True)
        self._lake, self._table = lake, table

    def lake(self, master: str | None = None) -> Lake:
        """Open the lake of the session."""
        lake = self._lake()
        self.warehouse = lake.url
        return lake

    def table(self, view: View, lake: Lake | None = None) -> Table:
        """Return the table that was named."""
        return super().table(view, lake) if self._table is None else self._table
