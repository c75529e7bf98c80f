"""Scripts of SQL statements, run by a local Spark or DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import (
    AnabranchError,
    InvalidInputError,
    NotFoundError,
    SqlError,
    UnsupportedFeatureError,
)
from anabranch.frames.row_values import tuples_of
from anabranch.frames.standard_input import standard_input
from anabranch.jobs.local_spark import local_spark
from anabranch.lake import connect
from anabranch.table.upkeep_statements import point_to_verb

_CONDITION = re.compile(r"^\[(?P<condition>[A-Z_.0-9]+)\] (?P<text>.*?)(?: SQLSTATE: \w+)?$", re.DOTALL)


if TYPE_CHECKING:
    from anabranch.duck import SqlRows

ENGINES = ("auto", "duckdb", "spark")


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Result of a statement."""

    statement: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False
    """Whether there are more rows than were asked for."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running streaming query that a statement started."""

    statement: str
    name: str
    id: str


class SparkSqlError(AnabranchError):
    """Spark refused a statement, or could not run it."""


def script_of(statement: str | None, file: str | None) -> str:
    """Return the script: given, in a file, or from standard input for ``-``.

    Raises `SqlError` if none or both are given, `NotFoundError` if there is no such file.
    """
    if (statement is None) == (file is None):
        raise SqlError(
            "there is no statement" if statement is None else "a statement and a file are given",
            hint='write anabranch sql "SELECT ..." or anabranch sql -f script.sql',
        )
    if statement is not None and statement != "-":
        return statement
    if "-" in (statement, file):
        return standard_input().read()
    try:
        return Path(str(file)).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFoundError(
            f"cannot read '{file}': {error.strerror}", hint="name a file of statements."
        ) from error


def carry_out(
    warehouse: str, script: str, *, limit: int | None = None, engine: str = "auto", spark: Any = None
) -> Iterator[StatementRows | Started]:
    """Run the statements of a script, one after the other.

    A script that only reads is answered by DuckDB, without a JVM; for any other Spark is started.

    A query that reads a stream is run to its end. What INSERT started runs until it has ended, or the caller
    stops waiting.

    Args:
        warehouse: path or URL.
        script: statements between semicolons.
        limit: the most rows of each.
        engine: ``duckdb``, ``spark``, or ``auto``: DuckDB if it is installed, every statement only reads, and it understands
            all of them.
        spark: a session that knows the warehouse, and stays; if None one is started and stopped.

    Yields:
        The result of each statement, as soon as it is there.

    Raises:
        UnsupportedFeatureError: PySpark is not installed, or DuckDB is asked for what only Spark does.
        SqlError: there is no statement, or a quote is never closed.
        SparkSqlError: Spark refused a statement; those before it are done.
    """
    if engine not in ENGINES:
        raise InvalidInputError(f"there is no engine '{engine}'", hint=f"choose one of {', '.join(ENGINES)}.")
    read = None if engine == "spark" else _by_duckdb(warehouse, script, is_chosen=engine == "duckdb")
    if read is not None:
        for answer in read:
            yield _first_of(answer, limit)
        return
    statements = _statements(script)
    with local_spark(warehouse, "anabranch sql") if spark is None else nullcontext(spark) as running:
        lake = connect(warehouse, spark=running)
        queries = []
        for statement in statements:
            with _in_our_words(statement):
                answer = lake.sql(statement)
                if hasattr(answer, "awaitTermination"):
                    queries.append(answer)
                    yield Started(statement, answer.name, str(answer.id))
                    continue
                found = _rows(statement, answer, limit)
            yield found
        for query in queries:
            with _in_our_words(query.name):
                query.awaitTermination()


def _by_duckdb(warehouse: str, script: str, *, is_chosen: bool) -> list[SqlRows] | None:
    """Return the answers to read-only statements, still to be computed; None if they are for Spark.

    Raises what `anabranch.duck.sql` does, unless Spark may be able to run it.
    """
    from anabranch import duck

    has_spark = find_spec("pyspark") is not None
    if find_spec("duckdb") is None and has_spark and not is_chosen:
        return None
    try:
        statements = duck.statements_of(script)
        for statement in statements:
            point_to_verb(statement)
        if not is_chosen and has_spark and not all(map(duck.is_read, statements)):
            return None
        if not statements:
            raise SqlError("there is no statement", hint='write anabranch sql "SELECT ..."')
        lake = connect(warehouse)
        return [duck.sql(lake, statement) for statement in statements]
    except SqlError:
        if is_chosen or not has_spark:
            raise
        return None
    except NotFoundError:
        if is_chosen or not has_spark or not connect(warehouse).topics():
            raise
        return None  # it may be a topic, which Spark reads


def _first_of(answer: SqlRows, limit: int | None) -> StatementRows:
    rows: list[tuple[Any, ...]] = []
    for batch in answer.to_batches():
        rows += tuples_of(batch)
        if limit is not None and len(rows) > limit:
            break
    return _first(answer.statement, answer.columns, rows, limit)


def _statements(script: str) -> list[str]:
    try:
        from anabranch.spark.sql.scanner import statements_of
    except ImportError as error:
        raise UnsupportedFeatureError(
            "statements in SQL need Spark, which is not installed",
            feature="spark",
            hint="pip install 'anabranch[spark]', and Java 17 or newer.",
        ) from error
    found = statements_of(script)
    if not found:
        raise SqlError("there is no statement", hint='write anabranch sql "SELECT ..."')
    return found


def _rows(statement: str, frame: Any, limit: int | None) -> StatementRows:
    if frame.isStreaming:
        return _stream_rows(statement, frame, limit)
    rows = frame.collect() if limit is None else frame.take(limit + 1)
    return _first(statement, frame.columns, rows, limit)


def _stream_rows(statement: str, frame: Any, limit: int | None) -> StatementRows:
    """Return the rows of a stream that ends by itself, once it has."""
    name = f"anabranch_sql_{id(frame)}"
    complete = "Aggregate" in str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001 - nothing else tells
    writer = frame.writeStream.format("memory").queryName(name)
    query = writer.outputMode("complete" if complete else "append").start()
    query.awaitTermination()
    rows = frame.sparkSession.table(name)
    return _first(statement, frame.columns, rows.collect(), limit)


def _first(statement: str, columns: list[str], rows: list[Any], limit: int | None) -> StatementRows:
    shown = rows if limit is None else rows[:limit]
    return StatementRows(
        statement, tuple(columns), tuple(tuple(row) for row in shown), more=len(shown) < len(rows)
    )


@contextmanager
def _in_our_words(statement: str) -> Iterator[None]:
    try:
        yield
    except AnabranchError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise SparkSqlError(
            _reason(error), hint=f"the statement is: {' '.join(statement.split())[:200]}"
        ) from error


def _reason(error: Exception) -> str:
    """Return Spark's message, without the plan and the stack."""
    message = getattr(error, "getMessage", lambda: None)() or str(error)
    text = re.split(r"\n\s*(?:'?[A-Z]\w+(?: |\[)|JVM stacktrace|\+- |\tat )", str(message), maxsplit=1)[
        0
    ].strip()
    match = _CONDITION.match(text)
    return match["text"].strip() if match is not None else text
