"""Answers statements over tables of a lake, and opens connections of DuckDB that have them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.duck.session import DuckSession, key_of, opened, same_name
from anabranch.duck.statements import Word, check_reads, explained, only_spark, statements_of, words_of
from anabranch.errors import AnabranchError, SqlError
from anabranch.frames.forms import Forms
from anabranch.streaming.between import between_calls
from anabranch.table import upkeep_statements

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from anabranch.lake import Lake


_SHOWN = 20


class SqlRows(Forms):
    """Result of a statement, computed when rows are requested. Terminals and notebooks show the first rows."""

    def __init__(self, statement: str, relation: Any, failures: list[AnabranchError] | None = None) -> None:
        self.statement = statement
        self._relation = relation
        self._failures = [] if failures is None else failures

    @property
    def relation(self) -> Any:
        """The DuckDB relation."""
        return self._relation

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._relation.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the rows, in Arrow's types."""
        with in_our_words(self.statement, self._failures):
            return self._relation.limit(0).to_arrow_table().schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches, computed as they are consumed."""
        with in_our_words(self.statement, self._failures):
            yield from self._relation.to_arrow_reader()

    def collect(self) -> list[dict[str, Any]]:
        """Return all rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def show(self) -> None:
        """Print the first rows."""
        with in_our_words(self.statement, self._failures):
            self._relation.show()

    def __repr__(self) -> str:
        with in_our_words(self.statement, self._failures):
            return repr(self._relation)

    def _repr_html_(self) -> str:
        from anabranch.tabular import as_html

        with in_our_words(self.statement, self._failures):
            first = self._relation.limit(_SHOWN + 1).to_arrow_table()
        rows = [tuple(row.values()) for row in first.slice(0, _SHOWN).to_pylist()]
        more = [f"the first {_SHOWN} rows"] if first.num_rows > _SHOWN else []
        return as_html("", more, self.columns, rows)


@contextmanager
def in_our_words(statement: str, failures: list[AnabranchError] | None = None) -> Iterator[None]:
    """Turn DuckDB's errors into ours; the first of `failures` is what really went wrong."""
    import duckdb as library

    try:
        yield
    except (library.Error, pa.ArrowException, OSError) as error:
        if failures:  # DuckDB has them as text, with tracebacks
            first = failures[0]
            failures.clear()
            raise first from first.__cause__
        if not isinstance(error, library.Error):
            raise
        raise SqlError(
            f"DuckDB does not carry this out: {str(error).strip()}",
            hint=f"the statement is: {' '.join(statement.split())[:200]}. What is Spark's own SQL needs Spark: "
            "anabranch.connect(warehouse, spark=spark).",
        ) from error


_LOG = logging.getLogger(__name__)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^."\s]+)')


def duckdb(lake: Lake, *also: str) -> DuckDBPyConnection:
    """Return a DuckDB connection in which the lake's tables are views: ``connection.sql("SELECT * FROM db.t")``.

    The views show the tables as of this call; call it again for newer rows. A table that cannot be read
    has no view, and the log says why.

    Args:
        lake: the lake.
        also: names of branches and system tables that get views too, such as ``db.t$branch_fix`` or ``db.t$snapshots``;
            in SQL they need quotes: ``db."t$branch_fix"``.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed.
        NotFoundError: there is nothing of a name in `also`.

    Example:
        >>> connection = anabranch.duckdb(lake)
        >>> connection.sql("SELECT sum(price) FROM db.orders").fetchone()
        (100.0,)
    """
    session = DuckSession(lake)
    found = [(database, name) for database in lake.databases() for name in lake.tables(database)]
    for database, name in found:
        try:
            for other in found:
                if other != (database, name) and key_of(*other) == key_of(database, name):
                    raise same_name(other, (database, name))
            session.show(database, name)
        except AnabranchError as error:
            _LOG.warning("%s.%s has no view: %s", database, name, error)
    for text in also:
        database, _, name = text.partition(".")
        session.show(database, name)
    return session.connection


def sql(lake: Lake, statement: str) -> SqlRows:
    """Run a read-only statement.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, only Spark can do that, or a verb of ours does.
        SqlError: DuckDB does not understand it.
        NotFoundError: there is no such table, branch or moment.
    """
    parts = statements_of(statement)
    if len(parts) > 1:
        raise SqlError(f"one statement is expected, found {len(parts)}", hint="call sql() for each of them.")
    statement = _with_hints(parts[0] if parts else "")
    words = words_of(statement)
    told = upkeep_statements.answer(statement, lambda parts: opened(lake, parts))
    if told is None:
        check_reads(words, statement)
    session = DuckSession(lake, {word.name for word in words if word.kind in ("word", "quoted")})
    shown = _listed(lake, words) if told is None else told
    if shown is not None:
        return SqlRows(statement, session.connection.from_arrow(shown))
    text = session.with_moments(statement, words)
    with in_our_words(statement):
        kinds = {str(found.type).rpartition(".")[2] for found in session.connection.extract_statements(text)}
        if not kinds <= {"SELECT", "EXPLAIN"}:
            raise only_spark(f"{min(kinds)} is", statement)
        names = _tables(session.connection, text)
    for name in sorted(names):
        session.find(name)
    with in_our_words(statement, session.failures):
        relation = session.connection.sql(text)
    return SqlRows(statement, relation, session.failures)


def _with_hints(statement: str) -> str:
    """Return the statement with a hint behind the table in place of a function of what was added to it."""
    for start, end, text in reversed([*between_calls(words_of(statement))]):
        statement = f"{statement[:start]}{text}{statement[end:]}"
    return statement


def _tables(connection: DuckDBPyConnection, text: str) -> set[tuple[str, ...]]:
    """Return the names of tables in a statement, in parts."""
    import duckdb as library

    try:
        return {tuple(_parts(name)) for name in connection.get_table_names(text, qualified=True)}
    except library.BinderException:
        pass  # DuckDB looks for the columns of JOIN USING and the like, before it has the tables
    words = words_of(text)
    query = text[explained(words)[0].start :] if words[0].is_("EXPLAIN") else text
    # All of the answer is fetched: DuckDB 2 refuses other work on a connection before.
    (answer,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    found: set[tuple[str, ...]] = set()
    left = [json.loads(answer[0])]
    while left:
        node = left.pop()
        if isinstance(node, dict) and node.get("type") == "BASE_TABLE":
            parts = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
            found.add(tuple(part for part in parts if part))
        left.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return found


def _parts(name: str) -> list[str]:
    """Return the parts of a qualified name as DuckDB writes it: quoted where needed, perhaps followed by an alias."""
    parts, place = [], 0
    while (match := _NAME.match(name, place)) is not None:
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        place = match.end()
        if not name.startswith(".", place):
            break
        place += 1
    return parts


def _listed(lake: Lake, words: Sequence[Word]) -> pa.Table | None:
    """Answer SHOW DATABASES and SHOW TABLES, in Spark's columns; None for another statement."""
    match [word.text.upper() for word in words if word.text != ";"]:
        case ["SHOW", "DATABASES" | "SCHEMAS" | "NAMESPACES"]:
            return pa.table({"namespace": pa.array(lake.databases(), pa.string())})
        case ["SHOW", "TABLES", *rest] if not rest or (len(rest) == 2 and rest[0] in ("IN", "FROM")):
            databases = [words[3].name] if rest else lake.databases()
            found = [(database, table) for database in databases for table in lake.tables(database)]
            return pa.table(
                {
                    "namespace": pa.array([database for database, _ in found], pa.string()),
                    "tableName": pa.array([table for _, table in found], pa.string()),
                }
            )
    return None
