"""The result of a statement, and DuckDB's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError, SqlError
from anabranch.frames.forms import Forms

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
