"""Statements about a lake in a session whose SQL does not know it, such as one of Spark Connect.

Queries are Spark's: tables in them are found by their place in the text, and frames put there. What defines, changes or
writes tables is understood here. The answers are Spark's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from anabranch.errors import InvalidInputError, NotFoundError, SqlError, UnsupportedFeatureError
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.spark.catalog.called import TABLE, CalledIn, Parameter, Verb, arguments, called, procedure
from anabranch.spark.context.attached import known_options
from anabranch.spark.lineage.batch_lineage import statement as of_statement
from anabranch.spark.sql.create import create, table_statement
from anabranch.spark.sql.frames import Frames
from anabranch.spark.sql.insert import insert
from anabranch.spark.sql.looking import Looking
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.queries import start
from anabranch.spark.sql.scanner import Word, WordReader, matches
from anabranch.spark.sql.tables import TableStatements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_DATABASE = ("DATABASE", "SCHEMA", "NAMESPACE")


class Portable:
    """Executor of single statements."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], names: Names) -> None:
        """Create it for one session.

        Args:
            options: warehouse and credentials.
            names: what names mean; USE changes it.
        """
        self._spark = spark
        self._options = options
        self._names = names
        self._frames = Frames(spark, options, everything=True)
        self._tables = TableStatements(spark, names)
        self._looking = Looking(spark, names, self._tables)

    def run(self, statement: str) -> DataFrame | StreamingQuery:
        """See `Statements.run`."""
        for attempt in (self._written, self._made):
            answer = attempt(statement)
            if answer is not None:
                return answer
        reader = WordReader(statement)
        if reader.accept("FROM") and _inserts(reader):
            raise SqlError(
                "an INSERT after FROM is not understood without Spark's own catalog",
                hint="write INSERT INTO ... SELECT ... FROM, once for each table.",
            )
        reader = WordReader(statement)
        for keywords, carry_out in self._commands.items():
            if reader.accept(*keywords):
                answer = carry_out(reader)
                return self._nothing() if answer is None else answer
        return self._frames.query(statement, self._names)

    @property
    def _commands(self) -> dict[tuple[str, ...], Callable[[WordReader], DataFrame | None]]:
        looking, tables = self._looking, self._tables
        return {
            **{("CREATE", kind): self._create_database for kind in _DATABASE},
            **{("DROP", kind): self._drop_database for kind in _DATABASE},
            ("USE",): self._use,
            ("DROP", "TABLE"): tables.drop,
            ("ALTER", "TABLE"): tables.alter,
            ("COMMENT", "ON", "TABLE"): tables.comment,
            ("TRUNCATE", "TABLE"): tables.truncate,
            ("CALL",): partial(call, self._spark, self._names, self._tables),
            ("CREATE", "TABLE"): _refuse_creation,
            ("CREATE", "OR", "REPLACE", "TABLE"): _refuse_creation,
            ("REPLACE", "TABLE"): _refuse_creation,
            ("DELETE", "FROM"): tables.refuse("DELETE"),
            ("UPDATE",): tables.refuse("UPDATE"),
            ("MERGE", "INTO"): tables.refuse("MERGE"),
            **{("SHOW", kind): looking.databases for kind in ("DATABASES", "SCHEMAS", "NAMESPACES")},
            ("SHOW", "TABLES"): looking.tables,
            ("SHOW", "COLUMNS"): looking.columns,
            ("SHOW", "TBLPROPERTIES"): looking.properties,
            ("SHOW", "PARTITIONS"): looking.partitions,
            **{(verb, "TABLE"): looking.describe for verb in ("DESCRIBE", "DESC")},
            **{(verb,): looking.describe for verb in ("DESCRIBE", "DESC")},
            ("CACHE",): self._cache,
            **{("SHOW", what): _refuse_showing for what in ("CREATE", "PROCEDURES")},
        }

    def _written(self, statement: str) -> DataFrame | StreamingQuery | None:
        """Execute INSERT into a table of the lake; None for other statements."""
        written = insert(statement)
        if written is None or self._names.full(written.target) is None:
            return None
        if self._frames.has_stream(written.query, self._names):
            return start(written, self._frames, self._names, self._options)
        with of_statement(statement):
            self._tables.insert(written, self._frames.query(written.query, self._names))
        return self._nothing()

    def _made(self, statement: str) -> DataFrame | None:
        """Execute CREATE TABLE and REPLACE TABLE, with and without rows; None for other statements."""
        new = table_statement(statement)
        if new is None or self._names.full(new.name) is None:
            return None
        if new.query is None and not new.replaces:
            if len(new.name) > 1 and new.name[-2] not in self._names.files.databases():
                raise NotFoundError(
                    f"database '{new.name[-2]}' does not exist",
                    hint=f"CREATE DATABASE {new.name[-2]} makes it.",
                )
            create(new, self._names)
        else:
            with of_statement(statement):
                self._tables.make(
                    new, None if new.query is None else self._frames.query(new.query, self._names)
                )
        return self._nothing()

    def _create_database(self, reader: WordReader) -> None:
        if_not_exists = reader.accept("IF", "NOT", "EXISTS")
        name = self._database(reader)
        if reader.here is not None:
            raise UnsupportedFeatureError(
                f"database '{name}' cannot have {reader.rest}: a database is its folder in the warehouse",
                feature="database-properties",
                hint="leave COMMENT, LOCATION and DBPROPERTIES out.",
            )
        self._names.files.create_database(name, if_not_exists=if_not_exists)

    def _drop_database(self, reader: WordReader) -> None:
        if_exists = reader.accept("IF", "EXISTS")
        name = self._database(reader)
        cascade = reader.accept("CASCADE")
        reader.accept("RESTRICT")
        reader.end()
        if if_exists and name not in self._names.files.databases():
            return
        self._names.files.drop_database(name, cascade=cascade)

    def _use(self, reader: WordReader) -> None:
        reader.accept_any(*_DATABASE, "CATALOG")
        parts = reader.name("a database")
        reader.end()
        if parts == (self._names.catalog,):
            return
        *catalog, name = parts
        if catalog not in ([], [self._names.catalog]):
            raise UnsupportedFeatureError(
                f"'{'.'.join(parts)}' is no database of the lake",
                feature="sql-through-connect",
                hint=f"statements of the lake stay in {self._names.catalog}; use spark.sql(...) for other catalogs.",
            )
        if name not in self._names.files.databases():
            raise NotFoundError(
                f"database '{name}' does not exist", hint="SHOW DATABASES lists those there are."
            )
        self._names.database = name

    def _cache(self, reader: WordReader) -> DataFrame:
        """Execute CACHE TABLE; refuse AS queries, as text that Spark caches cannot contain frames."""
        reader.until("AS")
        if reader.here is not None:
            raise UnsupportedFeatureError(
                f"without Spark's own catalog this is not cached: {reader.statement[:120]}",
                feature="sql-through-connect",
                hint="CREATE TEMPORARY VIEW v AS SELECT ..., then CACHE TABLE v.",
            )
        return self._spark.sql(reader.statement)

    def _database(self, reader: WordReader) -> str:
        parts = reader.name("the name of a database")
        own = parts[1:] if len(parts) > 1 and parts[0] == self._names.catalog else parts
        if len(own) != 1:
            raise SqlError(
                f"'{'.'.join(own)}' names no database", hint="databases have one level: catalog.database."
            )
        return own[0]

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame([], "done BOOLEAN").drop("done")


def _inserts(reader: WordReader) -> bool:
    """Whether INSERT occurs outside of parentheses."""
    reader.until("INSERT")
    return reader.here is not None


def _refuse_creation(reader: WordReader) -> NoReturn:
    raise SqlError(
        f"this way to make a table is not understood without Spark's own catalog: {reader.statement[:120]}",
        hint="understood are columns, COMMENT, PARTITIONED BY (columns), TBLPROPERTIES or WITH, and AS SELECT.",
    )


def _refuse_showing(reader: WordReader) -> Any:
    raise UnsupportedFeatureError(
        f"without Spark's own catalog this is not shown: {reader.statement[:120]}",
        feature="sql-through-connect",
        hint="DESCRIBE, SHOW COLUMNS and SHOW TBLPROPERTIES say what a table is.",
    )


def call(spark: SparkSession, names: Names, tables: TableStatements, reader: WordReader) -> DataFrame:
    """Execute the rest of a CALL statement. Raises `NotFoundError`, `InvalidInputError`, and what the verb does."""
    parts = reader.name("a procedure")
    own = f"{names.catalog}.{SYSTEM_DATABASE}"
    if ".".join(parts[:-1]) not in (own, SYSTEM_DATABASE):
        raise NotFoundError(
            f"there is no procedure '{'.'.join(parts)}'",
            hint=f"procedures are in {own}: CALL {own}.{parts[-1]}(...).",
        )
    found = procedure(parts[-1])
    words = reader.inside("( ... )")
    reader.end()
    given = _values(spark, _texts(reader, words, found), found)
    table = None
    if TABLE in arguments(found):
        name = given.get(TABLE.name)
        if name is None:
            raise NotFoundError("no table is named", hint="write table => 'db.t'.")
        table = tables.open(name.removeprefix(f"{names.catalog}.") if name.count(".") > 1 else name)
    rows = called(found, table, CalledIn(spark, names.files, known_options(spark)), given)
    return spark.createDataFrame(rows, str(found.columns))


def _texts(reader: WordReader, words: list[Word], found: Verb) -> dict[str, str]:
    """Return the texts of the arguments, by parameter name."""
    parameters = _parameters(found)
    given: dict[str, str] = {}
    for place, argument in enumerate(_split(words)):
        named = matches(argument, 1, "=>")
        if not named and place >= len(parameters):
            raise InvalidInputError(
                f"procedure '{found.sql_name}' takes {len(parameters)} arguments",
                hint=f"they are: {', '.join(parameters)}.",
            )
        name = argument[0].name.lower() if named else list(parameters)[place]
        if name not in parameters:
            raise InvalidInputError(
                f"procedure '{found.sql_name}' has no argument '{name}'",
                hint=f"they are: {', '.join(parameters)}.",
            )
        if name in given:
            raise SqlError(f"argument '{name}' is given twice", hint="leave one out.")
        given[name] = reader.span(argument[2:] if named else argument)
    return given


def _parameters(found: Verb) -> dict[str, Parameter]:
    return {parameter.sql_name: parameter for parameter in arguments(found)}


def _split(words: list[Word]) -> list[list[Word]]:
    found: list[list[Word]] = [[]] if words else []
    depth = 0
    for word in words:
        depth += word.is_("(") - word.is_(")")
        if word.is_(",") and depth == 0:
            found.append([])
        else:
            found[-1].append(word)
    return found


def _values(spark: SparkSession, texts: dict[str, str], found: Verb) -> dict[str, Any]:
    """Return the values of the arguments, as computed by Spark."""
    types = {name: p.sql_type for name, p in _parameters(found).items()}
    if not texts:
        return {}
    row = spark.sql(
        "SELECT " + ", ".join(f"CAST(({text}) AS {types[name]})" for name, text in texts.items())
    ).first()
    assert row is not None, "a query without FROM has one row"
    return dict(zip(texts, row, strict=True))
