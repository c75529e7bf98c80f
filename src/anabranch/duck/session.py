"""A connection of DuckDB in which tables of a lake are views, each at one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.catalog import Identifier
from anabranch.duck.statements import (
    DEFAULT,
    Word,
    end_of_name,
    follows_from,
    is_alias,
    may_be_alias,
    moment_at,
    needs_quotes,
    quoted,
)
from anabranch.errors import (
    AnabranchError,
    InvalidNameError,
    NotFoundError,
    SqlError,
    UnsupportedFeatureError,
)
from anabranch.frames.forms import needed
from anabranch.scan.metadata import METADATA
from anabranch.system_tables import lake_table_of, undotted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from anabranch.lake import Lake
    from anabranch.table import Table

CATALOG = "lake"
_MOMENTS = "anabranch_moments"


class DuckSession:
    """A connection, and the tables registered with it so far."""

    def __init__(self, lake: Lake, names: Collection[str] = ()) -> None:
        """Args:
        lake: the lake.
        names: what a statement names. Metadata columns among it are columns of the tables, also of their ``*``.
        """
        self._lake = lake
        self._metadata = tuple(name for name in METADATA if name in names)
        self.connection: DuckDBPyConnection = needed("duckdb", "SQL without Spark").connect()
        for command in (
            f"ATTACH ':memory:' AS {CATALOG}",
            f"USE {CATALOG}",
            f'CREATE SCHEMA "{DEFAULT}"',
            f'CREATE SCHEMA "{_MOMENTS}"',
            f"SET search_path = '{CATALOG}.{DEFAULT},{CATALOG}.main'",
            "SET TimeZone = 'UTC'",
        ):
            self.connection.execute(command)
        self._count = 0
        self.failures: list[AnabranchError] = []
        """What went wrong while DuckDB read rows of tables."""
        self._shown: dict[str, tuple[str, str]] = {}

    def find(self, parts: Sequence[str]) -> None:
        """Register the table of that name if it is in the lake. Raises `NotFoundError` if it must be and is not."""
        if len(parts) == 3 and parts[0].lower() == CATALOG:
            parts = parts[1:]
        if len(parts) == 1:
            try:
                self.show(DEFAULT, parts[0])
            except (NotFoundError, InvalidNameError):
                return  # DuckDB knows it, or reports it as unknown
        elif len(parts) == 2 and parts[0] not in (_MOMENTS, "main", "information_schema", "pg_catalog"):
            self.show(*parts)

    def show(self, database: str, name: str) -> None:
        """Create a view of a table, branch or system table. Raises `NotFoundError`, `UnsupportedFeatureError`."""
        shown = self._shown.get(key_of(database, name))
        if shown is None:
            self._view(database, name, self._rows(f"{database}.{name}"))
            self._shown[key_of(database, name)] = (database, name)
        elif shown != (database, name):
            raise same_name(shown, (database, name))

    def with_moments(self, statement: str, words: Sequence[Word]) -> str:
        """Return the statement in DuckDB's spelling, with time-travel tables replaced by views of them."""
        pieces: list[tuple[int, int, str]] = []
        place = 0
        while place < len(words):
            end = end_of_name(words, place)
            if end == place:
                place += 1
                continue
            names = [word.name for word in words[place:end:2]]
            moment = moment_at(words, end)
            system = self._system_table(names) if place > 0 and follows_from(words[place - 1]) else None
            if system is not None:
                names = list(system)
            text: str | None
            if moment is None:
                is_plain = system is None and not needs_quotes(words[place:end])
                text = None if is_plain else ".".join(map(quoted, names))
                if text is not None and system is not None and not is_alias(words, end):
                    text += f" AS {quoted(words[end - 1].name)}"
                after = end
            else:
                after, option = moment
                if len(names) == 1 and place > 0 and may_be_alias(words[place - 1]):
                    raise SqlError(
                        f"'{names[0]}' is the alias of a table, and no moment can follow it",
                        hint=f"the moment stands between the table and its alias: db.t VERSION AS OF 5 AS {names[0]}.",
                    )
                text = self._at(names, option)
                if not is_alias(words, after):
                    text += f" AS {quoted(words[end - 1].name)}"
            if text is not None:
                pieces.append((words[place].start, words[after - 1].end, text))
            place = after
        out, begin = [], 0
        for start, stop, text in pieces:
            out += [statement[begin:start], text]
            begin = stop
        return "".join([*out, statement[begin:]])

    def _system_table(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Return database and name of a system table of a table there is, written with a dot; else None."""
        parts = names[1:] if names[0].lower() == CATALOG else names  # lake.db.snapshots is a table
        found = undotted(parts)
        is_ours = (
            found is not None
            and parts[0] in self._lake.databases()
            and parts[1].partition("$")[0] in self._lake.tables(parts[0])
        )
        return found if is_ours else None

    def _at(self, names: Sequence[str], option: dict[str, Any]) -> str:
        parts = names[1:] if len(names) == 3 and names[0].lower() == CATALOG else names
        rows = self._rows(".".join(parts if len(parts) > 1 else [DEFAULT, *parts]), option)
        name = str(self._count)
        self._view(_MOMENTS, name, rows)
        return f"{CATALOG}.{quoted(_MOMENTS)}.{quoted(name)}"

    def _rows(self, name: str, moment: dict[str, Any] | None = None) -> Any:
        of_lake = lake_table_of(name)
        if of_lake is not None:
            return self._lake.system(of_lake)
        identifier = Identifier.parse(name)
        table = self._lake.table(
            identifier.full_name + ("" if identifier.branch is None else f"$branch_{identifier.branch}")
        )
        if moment is not None:
            options = moment.get("options")
            table = table.at(**moment) if options is None else table.with_options(options)
        if identifier.system is not None:
            return table.system(identifier.system)
        from anabranch.frames.dataset import for_duckdb

        own = [field.name for field in table.schema.fields]
        added = [name for name in self._metadata if name not in own]
        return for_duckdb(table.scan(columns=[*own, *added] if added else None), self.failures)

    def _view(self, schema: str, name: str, rows: Any) -> None:
        self._count += 1
        held = f"anabranch_{self._count}"
        self.connection.register(held, rows)
        self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {CATALOG}.{quoted(schema)}")
        self.connection.execute(
            f"CREATE VIEW {CATALOG}.{quoted(schema)}.{quoted(name)} AS SELECT * FROM {held}"  # noqa: S608 - names are quoted
        )


def opened(lake: Lake, parts: Sequence[str]) -> Table:
    """Open the table of a name in parts: ``t`` of database default, ``db.t`` or ``lake.db.t``."""
    if len(parts) == 3 and parts[0].lower() == CATALOG:
        parts = parts[1:]
    return lake.table(".".join(parts if len(parts) > 1 else [DEFAULT, *parts]))


def key_of(database: str, name: str) -> str:
    """Return a name as DuckDB compares it."""
    return f"{database}.{name}".lower()


def same_name(one: tuple[str, str], other: tuple[str, str]) -> UnsupportedFeatureError:
    """Return the error for two tables that are one for DuckDB."""
    return UnsupportedFeatureError(
        f"the names of the tables '{'.'.join(one)}' and '{'.'.join(other)}' differ only in case, and are one for DuckDB",
        feature="case-sensitive-names",
        hint="name one of them in a statement of lake.sql, or rename one; lake.table reads either.",
    )
