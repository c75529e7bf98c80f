"""SQL without a JVM: statements that only read are answered by DuckDB, over tables of the lake.

Tables are ``db.t`` (also ``lake.db.t``, and ``t`` for one of database ``default``), with ``$branch_<name>`` and system tables behind
them, and ``sys.tables``. ``VERSION AS OF`` and ``TIMESTAMP AS OF`` may follow a name, as in Spark. Every table that a
statement names is read at one snapshot, and DuckDB's filters and columns reach the planner.

Options of a read stand in a hint behind the name: ``db.t /*+ OPTIONS('incremental-between' = '5,10') */``.

DuckDB's functions and types are its own; statements that write, and streams, are Spark's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.catalog import Identifier
from anabranch.errors import (
    AnabranchError,
    InvalidNameError,
    NotFoundError,
    SqlError,
    UnsupportedFeatureError,
)
from anabranch.frames.forms import Forms
from anabranch.frames.optional import needed
from anabranch.system_tables import lake_table_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from anabranch.lake import Lake

_LOG = logging.getLogger(__name__)
_CATALOG = "lake"
_DEFAULT = "default"
_MOMENTS = "anabranch_moments"
_READS = frozenset(
    {"SELECT", "WITH", "FROM", "VALUES", "DESCRIBE", "DESC", "EXPLAIN", "SUMMARIZE", "SHOW", "("}
)
_EXPLAIN_OPTIONS = ("ANALYZE", "ANALYSE", "FORMAT")
_PATTERN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*)
  | (?P<hint>/\*\+)
  | (?P<comment>/\*.*?\*/)
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
  | (?P<number>\d[\w.]*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<sign>[^'"`])
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^."\s]+)')


def duckdb(lake: Lake) -> DuckDBPyConnection:
    """A connection of DuckDB in which the tables of the lake are views: ``connection.sql("SELECT * FROM db.t")``.

    The views show what the tables were when this was called; call it again for what is newer. A table that cannot be read
    has no view, and the log says why.

    Raises `UnsupportedFeatureError` if DuckDB is not installed.
    """
    session = _Session(lake)
    for database in lake.databases():
        for name in lake.tables(database):
            try:
                session.show(database, name)
            except AnabranchError as error:
                _LOG.warning("%s.%s has no view: %s", database, name, error)
    return session.connection


class SqlRows(Forms):
    """What a statement gives; it is carried out when rows are asked for. In a terminal and a notebook the first are shown."""

    def __init__(self, statement: str, relation: Any) -> None:
        self.statement = statement
        self._relation = relation

    @property
    def relation(self) -> Any:
        """The relation of DuckDB."""
        return self._relation

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._relation.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the rows, in Arrow's types."""
        with _in_our_words(self.statement):
            return self._relation.limit(0).to_arrow_table().schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches, computed as they are consumed."""
        with _in_our_words(self.statement):
            yield from self._relation.to_arrow_reader()

    def collect(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def show(self) -> None:
        """Print the first rows."""
        self._relation.show()

    def __repr__(self) -> str:
        with _in_our_words(self.statement):
            return repr(self._relation)

    def _repr_html_(self) -> str:
        from anabranch.tabular import as_html

        with _in_our_words(self.statement):
            first = self._relation.limit(_SHOWN + 1).to_arrow_table()
        rows = [tuple(row.values()) for row in first.slice(0, _SHOWN).to_pylist()]
        more = [f"the first {_SHOWN} rows"] if first.num_rows > _SHOWN else []
        return as_html("", more, self.columns, rows)


_SHOWN = 20


def sql(lake: Lake, statement: str) -> SqlRows:
    """What a statement that reads gives.

    Raises:
        UnsupportedFeatureError: DuckDB is not installed, or only Spark can do that.
        SqlError: DuckDB does not understand it.
        NotFoundError: there is no such table, branch or moment.
    """
    parts = statements_of(statement)
    if len(parts) > 1:
        raise SqlError(f"one statement is expected, found {len(parts)}", hint="call sql() for each of them.")
    statement = parts[0] if parts else ""
    words = _words(statement)
    _check_reads(words, statement)
    session = _Session(lake)
    shown = _listed(lake, words)
    if shown is not None:
        return SqlRows(statement, session.connection.from_arrow(shown))
    text = session.with_moments(statement, words)
    with _in_our_words(statement):
        kinds = {str(found.type).rpartition(".")[2] for found in session.connection.extract_statements(text)}
        if not kinds <= {"SELECT", "EXPLAIN"}:
            raise _only_spark(f"{min(kinds)} is", statement)
        names = session.connection.get_table_names(text, qualified=True)
    for name in sorted(names):
        session.find(_parts(name))
    with _in_our_words(statement):
        relation = session.connection.sql(text)
    return SqlRows(statement, relation)


def is_read(statement: str) -> bool:
    """Whether a statement only reads, as far as its first word and its hints tell."""
    try:
        _check_reads(_words(statement), statement)
    except (SqlError, UnsupportedFeatureError):
        return False
    return True


def statements_of(script: str) -> list[str]:
    """The statements between semicolons; what is empty or only a comment is left out. Raises `SqlError`."""
    found, begin = [], None
    for word in _words(script):
        if word.text == ";":
            if begin is not None:
                found.append(script[begin : word.start].rstrip())
            begin = None
        elif begin is None:
            begin = word.start
    return found if begin is None else [*found, script[begin:].strip()]


class _Session:
    """A connection, and the tables that it has been shown."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.connection: DuckDBPyConnection = needed("duckdb", "SQL without Spark").connect()
        for command in (
            f"ATTACH ':memory:' AS {_CATALOG}",
            f"USE {_CATALOG}",
            f'CREATE SCHEMA "{_DEFAULT}"',
            f'CREATE SCHEMA "{_MOMENTS}"',
            f"SET search_path = '{_CATALOG}.{_DEFAULT},{_CATALOG}.main'",
            "SET TimeZone = 'UTC'",
        ):
            self.connection.execute(command)
        self._count = 0
        self._shown: set[tuple[str, str]] = set()

    def find(self, parts: Sequence[str]) -> None:
        """Show the table of that name if it is one of the lake. Raises `NotFoundError` if it must be one and is not."""
        if len(parts) == 3 and parts[0].lower() == _CATALOG:
            parts = parts[1:]
        if len(parts) == 1:
            try:
                self.show(_DEFAULT, parts[0])
            except (NotFoundError, InvalidNameError):
                return  # DuckDB knows it, or says that nobody does
        elif len(parts) == 2 and parts[0] not in (_MOMENTS, "main", "information_schema", "pg_catalog"):
            self.show(*parts)

    def show(self, database: str, name: str) -> None:
        """Make a view of a table, branch or system table. Raises `NotFoundError`."""
        if (database, name) not in self._shown:
            self._view(database, name, _rows(self._lake, f"{database}.{name}"))
            self._shown.add((database, name))

    def with_moments(self, statement: str, words: Sequence[_Word]) -> str:
        """The statement in DuckDB's spelling, with tables at a moment replaced by views of them."""
        pieces: list[tuple[int, int, str]] = []
        place = 0
        while place < len(words):
            end = _end_of_name(words, place)
            if end == place:
                place += 1
                continue
            names = [word.name for word in words[place:end:2]]
            moment = _moment(words, end)
            if moment is None:
                text = ".".join(map(_quoted, names)) if _needs_quotes(words[place:end]) else None
                after = end
            else:
                after, option = moment
                text = self._at(names, option)
                if not _is_alias(words, after):
                    text += f" AS {_quoted(names[-1])}"
            if text is not None:
                pieces.append((words[place].start, words[after - 1].end, text))
            place = after
        out, begin = [], 0
        for start, stop, text in pieces:
            out += [statement[begin:start], text]
            begin = stop
        return "".join([*out, statement[begin:]])

    def _at(self, names: Sequence[str], option: dict[str, Any]) -> str:
        parts = names[1:] if len(names) == 3 and names[0].lower() == _CATALOG else names
        rows = _rows(self._lake, ".".join(parts if len(parts) > 1 else [_DEFAULT, *parts]), option)
        name = str(self._count)
        self._view(_MOMENTS, name, rows)
        return f"{_CATALOG}.{_quoted(_MOMENTS)}.{_quoted(name)}"

    def _view(self, schema: str, name: str, rows: Any) -> None:
        self._count += 1
        held = f"anabranch_{self._count}"
        self.connection.register(held, rows)
        self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_CATALOG}.{_quoted(schema)}")
        self.connection.execute(
            f"CREATE VIEW {_CATALOG}.{_quoted(schema)}.{_quoted(name)} AS SELECT * FROM {held}"  # noqa: S608 - names are quoted
        )


def _rows(lake: Lake, name: str, moment: dict[str, Any] | None = None) -> Any:
    of_lake = lake_table_of(name)
    if of_lake is not None:
        return lake.system(of_lake)
    identifier = Identifier.parse(name)
    table = lake.table(
        identifier.full_name + ("" if identifier.branch is None else f"$branch_{identifier.branch}")
    )
    if moment is not None:
        options = moment.get("options")
        table = table.at(**moment) if options is None else table.with_options(options)
    if identifier.system is not None:
        return table.system(identifier.system)
    from anabranch.frames.dataset import for_duckdb

    return for_duckdb(table.scan())


def _listed(lake: Lake, words: Sequence[_Word]) -> pa.Table | None:
    """The answer to SHOW DATABASES and SHOW TABLES, in Spark's columns; None for another statement."""
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


@dataclass(frozen=True, slots=True)
class _Word:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        if self.kind != "quoted":
            return self.text
        quote = self.text[0]
        return self.text[1:-1].replace(quote * 2, quote)

    def is_(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


def _words(statement: str) -> list[_Word]:
    found, place = [], 0
    while place < len(statement):
        match = _PATTERN.match(statement, place)
        if match is None or (statement.startswith("/*", place) and match.lastgroup == "sign"):
            what = "the quote" if match is None else "the comment"
            raise SqlError(
                f"{what} is never closed (character {place + 1}: {statement[place : place + 30]!r})",
                hint="look at the quotes.",
            )
        if match.lastgroup not in ("skip", "comment"):
            found.append(_Word(str(match.lastgroup), match[0], place))
        place = match.end()
    return found


def _check_reads(words: Sequence[_Word], statement: str) -> None:
    if not words:
        raise SqlError("there is no statement", hint='write a query: "SELECT ...".')
    first = words[0].text.upper()
    is_listing = first != "SHOW" or (
        len(words) > 1 and words[1].is_("DATABASES", "SCHEMAS", "NAMESPACES", "TABLES")
    )
    if first not in _READS or not is_listing:
        raise _only_spark(f"{first} is", statement)
    if first == "EXPLAIN":
        _check_reads(_explained(words), statement)  # DuckDB does what EXPLAIN ANALYZE is asked of
        return
    for place, word in enumerate(words):
        is_behind_name = (
            place > 0 and words[place - 1].kind in ("word", "quoted") and not words[place - 1].is_("SELECT")
        )
        if word.kind == "hint" and (not is_behind_name or _hint_end(words, place) is None):
            raise _only_spark("hints other than OPTIONS behind the name of a table are", statement)


def _explained(words: Sequence[_Word]) -> Sequence[_Word]:
    """What follows EXPLAIN, ANALYZE and options in parentheses."""
    place = 1
    if place < len(words) and words[place].is_("ANALYZE", "ANALYSE"):
        place += 1
    elif place < len(words) - 1 and words[place].text == "(" and words[place + 1].is_(*_EXPLAIN_OPTIONS):
        place = next((n + 1 for n, word in enumerate(words) if word.text == ")"), len(words))
    return words[place:]


def _only_spark(what: str, statement: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{what} for Spark, and none is attached: {' '.join(statement.split())[:200]}",
        feature="spark",
        hint="open the lake with anabranch.connect(warehouse, spark=spark), or use the methods of lake and table; without "
        "Spark statements that only read are answered, by DuckDB.",
    )


def _end_of_name(words: Sequence[_Word], place: int) -> int:
    """Where a name with its dots ends that begins at a place; the place itself if none does."""
    end = place
    while end < len(words) and words[end].kind in ("word", "quoted"):
        if end + 2 < len(words) and words[end + 1].text == "." and words[end + 2].kind in ("word", "quoted"):
            end += 2
        else:
            return end + 1
    return place


def _needs_quotes(words: Sequence[_Word]) -> bool:
    """Whether DuckDB would not read a name as it stands."""
    return any(word.text.startswith("`") or "$" in word.text for word in words) or (
        len(words) > 1 and words[0].text.lower() == _DEFAULT
    )


def _moment(words: Sequence[_Word], place: int) -> tuple[int, dict[str, Any]] | None:
    """Where ``[FOR] VERSION AS OF 5`` or a hint with options ends that begins at a place, and what it asks for, as arguments
    of `Table.at`, or ``options``; None for no such thing.
    """
    if place < len(words) and words[place].kind == "hint":
        return _hint_end(words, place)
    if place < len(words) and words[place].is_("FOR"):
        place += 1
    if place + 3 >= len(words) or not (words[place + 1].is_("AS") and words[place + 2].is_("OF")):
        return None
    is_time = words[place].is_("TIMESTAMP", "SYSTEM_TIME")
    if not is_time and not words[place].is_("VERSION", "SYSTEM_VERSION"):
        return None
    place += 3
    if is_time and words[place].is_("TIMESTAMP", "DATE"):
        place += 1
    literal = words[place] if place < len(words) else words[-1]
    if literal.kind == "text":
        value: str | int = literal.text[1:-1].replace("''", "'")
    elif literal.kind == "number" and literal.text.isdecimal() and not is_time:
        value = int(literal.text)
    else:
        raise SqlError(
            f"AS OF is followed by '{literal.text}', which names no moment",
            hint="write VERSION AS OF 5, VERSION AS OF 'tag' or TIMESTAMP AS OF '2026-01-31 12:00:00'.",
        )
    return place + 1, {"timestamp": value} if is_time else {"version": value}


def _hint_end(words: Sequence[_Word], place: int) -> tuple[int, dict[str, Any]] | None:
    """Where ``/*+ OPTIONS('key' = 'value', ...) */`` ends that begins at a place, and the options; None for no such thing."""
    texts = [word.text for word in words[place : place + 3]]
    if len(texts) < 3 or words[place].kind != "hint" or texts[1].upper() != "OPTIONS" or texts[2] != "(":
        return None
    options: dict[str, str] = {}
    place += 3
    while place + 3 < len(words) and words[place].kind == words[place + 2].kind == "text":
        key, value = (words[at].text[1:-1].replace("''", "'") for at in (place, place + 2))
        if words[place + 1].text != "=":
            return None
        options[key] = value
        place += 3
        if words[place].text != ",":
            break
        place += 1
    closed = [word.text for word in words[place : place + 3]] == [")", "*", "/"]
    return (place + 3, {"options": options}) if closed and options else None


_NOT_ALIASES = frozenset({
    *("ON", "USING", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "JOIN"),
    *("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF", "POSITIONAL", "SEMI", "ANTI", "QUALIFY", "WINDOW"),
    *("SAMPLE", "TABLESAMPLE", "PIVOT", "UNPIVOT", "FETCH", "FOR", "LATERAL", "SELECT"),
})  # fmt: skip
"""Words that may follow a table and are not its alias."""


def _is_alias(words: Sequence[_Word], place: int) -> bool:
    if place >= len(words):
        return False
    word = words[place]
    return word.kind == "quoted" or (word.kind == "word" and word.text.upper() not in _NOT_ALIASES)


def _parts(name: str) -> list[str]:
    """The parts of a qualified name as DuckDB writes it: quoted where needed, perhaps with an alias behind."""
    parts, place = [], 0
    while (match := _NAME.match(name, place)) is not None:
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        place = match.end()
        if not name.startswith(".", place):
            break
        place += 1
    return parts


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _in_our_words(statement: str) -> Iterator[None]:
    import duckdb as library

    try:
        yield
    except library.Error as error:
        raise SqlError(
            f"DuckDB does not carry this out: {str(error).strip()}",
            hint=f"the statement is: {' '.join(statement.split())[:200]}. What is Spark's own SQL needs Spark: "
            "anabranch.connect(warehouse, spark=spark).",
        ) from error
