"""What an interactive shell needs besides statements: where one ends, what may follow, and a Spark that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from anabranch import duck
from anabranch.duck.statements import words_of
from anabranch.errors import AnabranchError, SqlError
from anabranch.jobs.local_spark import local_spark
from anabranch.lake import Lake, connect
from anabranch.system_tables import SYSTEM_TABLES
from anabranch.table.upkeep_statements import point_to_verb
from anabranch.verbs.scripts import Started, StatementRows, carry_out

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "BY", "ORDER", "HAVING", "LIMIT", "JOIN", "LEFT", "ON", "USING", "WITH"),
    *("AS", "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("DISTINCT", "UNION", "ALL", "COUNT", "SUM", "MIN", "MAX", "AVG", "CAST", "DESC", "ASC", "VALUES", "EXPLAIN"),
    *("DESCRIBE", "HISTORY", "DETAIL", "SHOW", "TABLES", "DATABASES", "SUMMARIZE", "CALL"),
    *("VERSION", "TIMESTAMP", "OF", "CREATE", "TABLE", "INSERT", "INTO", "OVERWRITE", "ALTER", "DROP"),
)  # fmt: skip
"""Words that are offered to complete what is typed."""
_NAME = re.compile(r"[\w$]+\.[\w$]+")


def is_complete(text: str) -> bool:
    """Whether what was typed so far ends with a semicolon, outside of quotes and comments."""
    try:
        words = words_of(text)
    except SqlError:  # a quote or a comment goes on
        return False
    return bool(words) and words[-1].text == ";"


class Completions:
    """Completions of what is typed: names in the lake, columns of the tables named so far, keywords."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse
        self._lake: Lake | None = None
        self._columns: dict[str, tuple[str, ...]] = {}

    def completions(self, text: str, statement: str) -> list[str]:
        """Return what `text`, the last word of a statement, may become; nothing if the lake cannot be read."""
        try:
            found = self._candidates(text, statement)
        except AnabranchError:
            found = []
        if "." not in text:
            found += [word.lower() if text[:1].islower() else word for word in KEYWORDS]
        return sorted({name for name in found if name.lower().startswith(text.lower())})

    def _candidates(self, text: str, statement: str) -> list[str]:
        if self._lake is None:
            self._lake = connect(self._warehouse)
        database, dot, rest = text.partition(".")
        if dot and database in self._lake.databases():
            table, dollar, _ = rest.partition("$")
            if dollar:
                return [f"{database}.{table}${name}" for name in SYSTEM_TABLES]
            return [f"{database}.{name}" for name in self._lake.tables(database)]
        if dot:
            columns = [name for named in self._tables(statement) for name in self._columns_of(named)]
            return [f"{database}.{name}" for name in columns]
        databases = self._lake.databases()
        tables = self._lake.tables("default") if "default" in databases else []
        columns = [name for named in self._tables(statement) for name in self._columns_of(named)]
        return [*(f"{name}." for name in databases), *tables, *columns]

    def _tables(self, statement: str) -> list[str]:
        return [*dict.fromkeys(_NAME.findall(statement))]

    def _columns_of(self, name: str) -> tuple[str, ...]:
        if name not in self._columns and self._lake is not None:
            try:
                self._columns[name] = tuple(f.name for f in self._lake.table(name).schema.fields)
            except AnabranchError:
                return ()  # no table yet, or an alias with a column
        return self._columns.get(name, ())


class Engines:
    """Runs the statements of a shell: DuckDB what only reads, else a Spark that is started once and stays."""

    def __init__(self, warehouse: str, engine: str) -> None:
        self._warehouse = warehouse
        self.engine = engine
        """``auto``, ``duckdb`` or ``spark``."""
        self._held = ExitStack()
        self._spark: Any = None

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def run(self, script: str, limit: int | None) -> Iterator[StatementRows | Started]:
        """Run statements, one after the other. Raises as `carry_out`."""
        for statement in duck.statements_of(script):
            point_to_verb(statement)
            engine = self.engine
            if engine == "auto":
                engine = "duckdb" if duck.is_read(statement) else "spark"
            if engine == "spark" and self._spark is None:
                self._spark = self._held.enter_context(local_spark(self._warehouse, "anabranch sql"))
            yield from carry_out(self._warehouse, statement, limit=limit, engine=engine, spark=self._spark)
