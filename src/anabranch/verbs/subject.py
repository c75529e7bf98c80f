"""What a verb works on: a table, a branch or moment of it, all tables of a database, or the lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.verbs.caller import Caller, View
from anabranch.verbs.verb import Parameter, argument, option

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table

R = TypeVar("R")

TABLE_NAME: Final = argument("The table, or db.table$branch_<name>.", "DB.TABLE", sql=None)
_TABLE: Final = Parameter("table", str, TABLE_NAME)
_TABLES: Final = Parameter(
    "table", str, argument("The table, or a database for all of its tables.", "DB.TABLE|DB", sql=None)
)
_BRANCH: Final = Parameter(
    "branch", str, option("Branch to work on; main if absent.", "--branch", sql=None), None
)
_MOMENT: Final = (
    Parameter(
        "at",
        str,
        option(
            "Moment to read: a snapshot id, snapshot.N, savepoint.N, watermark-N, a tag, or a time such as "
            "'2026-01-31 12:00:00'.",
            "--at",
            sql=None,
        ),
        None,
    ),
    Parameter(
        "exact",
        bool,
        option("Refuse an answer to --at by time or watermark that is not certain.", "--exact", sql=None),
        False,
    ),
)
_PUBLISHED: Final = Parameter(
    "published",
    bool,
    option("With --at TIME, what readers saw then, whatever was corrected since.", "--published", sql=None),
    False,
)
_MASTER: Final = Parameter(
    "master",
    str,
    option("Work on Spark, for example local[4]; in this process if absent.", "--master", sql=None),
    None,
)


@dataclass(frozen=True)
class Opened:
    """A table that is opened for the verb."""

    parameters: tuple[Parameter, ...] = (_TABLE,)

    def value(self, caller: Caller, given: Mapping[str, Any]) -> Table:
        """Open it. Raises as `anabranch.verbs.caller.open_table`."""
        view = view_of(given)
        return caller.table(view, caller.lake(given["master"]) if given.get("master") else None)


@dataclass(frozen=True)
class Viewed:
    """A view that the verb opens itself."""

    parameters: tuple[Parameter, ...] = (_TABLE,)

    def value(self, _caller: Caller, given: Mapping[str, Any]) -> View:
        """Return what was asked for."""
        return view_of(given)


@dataclass(frozen=True)
class OpenedLake:
    """The lake."""

    parameters: tuple[Parameter, ...] = ()

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Lake:
        """Open it."""
        return caller.lake()


@dataclass(frozen=True)
class Tables:
    """A table, or all tables of a database."""

    name: str
    caller: Caller
    branch: str | None = None
    master: str | None = None

    def lake(self) -> Lake:
        """Open the lake, on Spark if that was asked for."""
        return self.caller.lake(self.master)

    def each(self, work: Callable[[Table], R], lake: Lake | None = None) -> list[R]:
        """Run `work` on the table, or on all tables of the database.

        Raises `AnabranchError` at the end if it failed for some tables of a database; the others are done then.
        """
        if "." in self.name:
            lake = lake or (None if self.master is None else self.lake())
            return [work(self.caller.table(View(self.name, self.branch), lake))]
        lake = lake or self.lake()
        tables = lake.tables(self.name)
        if not tables:
            raise NotFoundError(f"database '{self.name}' has no tables", hint="anabranch tables lists them.")
        found, failed = [], []
        for name in tables:
            try:
                table = self.caller.table(View(f"{self.name}.{name}", self.branch), lake)
            except NotFoundError:
                continue  # it was dropped meanwhile, or has no such branch
            try:
                found.append(work(table))
            except AnabranchError as error:
                failed.append(f"{self.name}.{name}: {error}")
        if failed:
            raise AnabranchError(
                f"{len(failed)} of {len(tables)} tables of '{self.name}' failed: " + "; ".join(failed),
                hint="the others are done; see to these and repeat it for them.",
            )
        return found


@dataclass(frozen=True)
class _Several:
    """A table, or all tables of a database."""

    parameters: tuple[Parameter, ...] = (_TABLES,)

    def value(self, caller: Caller, given: Mapping[str, Any]) -> Tables:
        """Return what was asked for."""
        return Tables(given["table"], caller, given.get("branch"), given.get("master"))


def view_of(given: Mapping[str, Any]) -> View:
    """Return the view that was asked for."""
    return View(
        given["table"],
        given.get("branch"),
        given.get("at"),
        bool(given.get("exact")),
        bool(given.get("published")),
    )


InLake = Annotated["Lake", OpenedLake()]
OnTable = Annotated["Table", Opened()]
"""A table, or a branch by its name ``db.t$branch_fix``."""
OnBranch = Annotated["Table", Opened((_TABLE, _BRANCH))]
AtMoment = Annotated["Table", Opened((_TABLE, _BRANCH, *_MOMENT))]
OnSpark = Annotated["Table", Opened((_TABLE, _BRANCH, _MASTER))]
AnyView = Annotated[View, Viewed((_TABLE, _BRANCH, *_MOMENT))]
AnyPublishedView = Annotated[View, Viewed((_TABLE, _BRANCH, *_MOMENT, _PUBLISHED))]
Each = Annotated[Tables, _Several((_TABLES, _MASTER))]
EachBranch = Annotated[Tables, _Several((_TABLES, _BRANCH))]
EachBranchOnSpark = Annotated[Tables, _Several((_TABLES, _BRANCH, _MASTER))]
