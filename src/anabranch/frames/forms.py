"""Conversion of rows to all common forms, for whatever has batches and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

T = TypeVar("T")

_SAMPLE_ROWS: Final = 1 << 16
_MOST_INSERTED: Final = 50
"""Columns that are put into a pandas frame one by one; each is in memory by itself, and too many are slow to work with."""


class Forms(ABC):
    """Rows that are read anew each time one of their forms is requested.

    Polars, DuckDB, pandas, pyarrow and others take them as they are, as a stream of Arrow: ``pl.DataFrame(scan)``,
    ``pa.table(scan)``, ``duckdb.sql("SELECT * FROM scan")``.
    """

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the rows, in Arrow's types."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches, read as they are consumed."""

    def __arrow_c_schema__(self) -> object:
        """Return the columns by Arrow's PyCapsule interface."""
        return self.arrow_schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows by Arrow's PyCapsule interface; read as they are consumed."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader of Arrow batches, to be consumed once, in bounded memory."""
        return self._known(pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches()))

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table."""
        return self._known(pa.Table.from_batches(self.to_batches(), schema=self.arrow_schema))

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame. Raises `UnsupportedFeatureError` if pandas is not installed."""
        needed("pandas", "a pandas frame")
        rows = self.to_arrow()
        try:
            return self._known(_to_pandas(rows))
        except (OverflowError, ValueError) as error:
            raise UnsupportedFeatureError(
                f"{_far_column(rows)} cannot become a column of pandas: {error}",
                feature="python-date",
                hint="use to_arrow() or to_polars(), which have dates of any year.",
            ) from error

    def to_polars(self) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows as a Polars frame."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return self._known(frame)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, in that connection or a new one.

        Raises `UnsupportedFeatureError` if DuckDB is not installed.
        """
        found = needed("duckdb", "a relation of DuckDB")
        return (connection or found.connect()).from_arrow(self._for_duckdb())

    def _for_duckdb(self) -> Any:
        return self.to_arrow()

    def _known(self, rows: T) -> T:
        """Remember, for lineage, what an object with these rows was read from, where that is known."""
        return rows


def _to_pandas(rows: pa.Table) -> pd.DataFrame:
    """Convert to a pandas frame; equal values of a column share an object, unless hardly any are equal.

    Looking for equal ones takes several times as long as making an object for each.
    """
    distinct = [name for name in rows.column_names if _is_distinct(rows.column(name))]
    if len(distinct) in {0, rows.num_columns} or len(distinct) > _MOST_INSERTED:
        return rows.to_pandas(deduplicate_objects=len(distinct) < rows.num_columns)
    own = rows.select(distinct).to_pandas(deduplicate_objects=False)
    frame: pd.DataFrame = rows.drop_columns(distinct).to_pandas()
    for position, name in enumerate(rows.column_names):
        if name in own:
            frame.insert(position, name, own[name])
    return frame


def _far_column(rows: pa.Table) -> str:
    """Name the first column with a value that Python does not have, and its ends, for an error."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            column.to_pylist()
        except (OverflowError, ValueError):
            if pa.types.is_nested(column.type):
                return f"column '{name}'"
            ends = pc.min_max(column)
            low, high = (ends[end].cast(pa.string()).as_py() for end in ("min", "max"))
            return f"column '{name}', with values from {low} to {high},"
    return "a column"


def _is_distinct(column: pa.ChunkedArray) -> bool:
    """Whether it is text or bytes of which, by the first rows, most are different."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return False
    sample = column.slice(0, _SAMPLE_ROWS)
    distinct: int = pc.count_distinct(sample).as_py()
    return 2 * distinct > len(sample)


def needed(module: str, what: str, install: str | None = None) -> Any:
    """Import a library that is installed by the extra of the same name.

    Args:
        module: its name, ``duckdb`` or ``pandas``.
        what: what it is needed for, to be followed by "needs".
        install: what installs it, if no extra does.

    Raises `UnsupportedFeatureError` if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"{what} needs {module}, which is not installed",
            feature=module,
            hint=install or f"pip install 'anabranch[{module}]'",
        ) from error
