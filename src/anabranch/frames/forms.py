"""Rows in every form that people work with; whatever has batches and columns gets all of them from here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
import pyarrow as pa

from anabranch.frames.optional import needed

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

T = TypeVar("T")


class Forms(ABC):
    """Rows that are read when a form of them is asked for, as often as it is.

    Polars, DuckDB, pandas, pyarrow and others take them as they are, as a stream of Arrow: ``pl.DataFrame(scan)``,
    ``pa.table(scan)``, ``duckdb.sql("SELECT * FROM scan")``.
    """

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """Columns of the rows, in Arrow's types."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in batches, read as they are consumed."""

    def __arrow_c_schema__(self) -> object:
        """The columns, by Arrow's PyCapsule interface."""
        return self.arrow_schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, by Arrow's PyCapsule interface; read as they are consumed."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader of Arrow batches, to be consumed once, in bounded memory."""
        return self._known(pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches()))

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        return self._known(pa.Table.from_batches(self.to_batches(), schema=self.arrow_schema))

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame. Raises `UnsupportedFeatureError` if pandas is not installed."""
        needed("pandas", "a pandas frame")
        return self._known(self.to_arrow().to_pandas())

    def to_polars(self) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a Polars frame."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return self._known(frame)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of DuckDB, in that connection or a new one.

        Raises `UnsupportedFeatureError` if DuckDB is not installed.
        """
        found = needed("duckdb", "a relation of DuckDB")
        return (connection or found.connect()).from_arrow(self._for_duckdb())

    def _for_duckdb(self) -> Any:
        return self.to_arrow()

    def _known(self, rows: T) -> T:
        """Remember of an object of these rows what it was read from, for lineage, where that is known."""
        return rows
