"""A read as a pyarrow data set, which DuckDB, Polars and pyarrow query for columns and matching rows.

What they filter by goes to the planner, which leaves out partitions and files, and to the reader. What has no counterpart is
filtered here, batch by batch. The data set is of one snapshot however often it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.errors import AnabranchError, UnsupportedFeatureError
from anabranch.expr.nodes import And, Column, Comparison, In, IsNull, Not, Or, Predicate
from anabranch.frames.expressions import parts_of
from anabranch.frames.narrowing import Narrowing
from anabranch.lineage.recording import TakingPart, captured


def for_duckdb(rows: Narrowing, failures: list[AnabranchError] | None = None) -> ScanDataset:
    """Rows as DuckDB takes them.

    DuckDB tells of an error while rows are read as text with a traceback; what it was goes to `failures`.

    Raises `UnsupportedFeatureError` for columns whose names differ only in case: DuckDB would answer for the wrong one.
    """
    seen: dict[str, str] = {}
    for name in rows.arrow_schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise UnsupportedFeatureError(
                f"{rows.title} has the columns '{other}' and '{name}', which are one for DuckDB",
                feature="case-sensitive-columns",
                hint="leave one out with columns=, rename it, or read by scan() in another form.",
            )
    return ScanDataset(rows, nan_is_largest=True, failures=failures)


class ScanDataset(ds.Dataset):  # type: ignore[misc]
    """Rows of a table as `pyarrow.dataset.Dataset`. Its methods that work on files are not offered."""

    def __init__(
        self,
        rows: Narrowing,
        *,
        nan_is_largest: bool = False,
        failures: list[AnabranchError] | None = None,
    ) -> None:
        """Args:
        rows: what to read.
        nan_is_largest: whether who asks orders NaN above all numbers and finds it equal to itself, as SQL does and Arrow
            does not.
        failures: gets the errors of ours that arise while rows are read.
        """
        self._rows = rows
        self._failures = failures
        self._nan_is_largest = nan_is_largest
        self._job = captured()

    def __repr__(self) -> str:
        return f"<ScanDataset of {self._rows.title}>"

    def __reduce__(self) -> NoReturn:
        self._refuse("pickling")

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._rows.arrow_schema

    @property
    def partition_expression(self) -> Any:
        """Expression that is true of all rows: no restriction."""
        return ds.scalar(True)

    def scanner(self, columns: Any = None, filter: Any = None, **_how: Any) -> ScanScanner:
        """What reads the rows: `columns` by names, or as expressions by name; those for which `filter` is true."""
        return ScanScanner(
            self._rows,
            columns,
            filter,
            self._job,
            nan_is_largest=self._nan_is_largest,
            failures=self._failures,
        )

    def to_batches(self, columns: Any = None, filter: Any = None, **_how: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; see `scanner`."""
        return self.scanner(columns, filter).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **_how: Any) -> pa.Table:
        """Return the rows as a table; see `scanner`."""
        return self.scanner(columns, filter).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **_how: Any) -> pa.Table:
        """Return the first rows; see `scanner`."""
        return self.scanner(columns, filter).head(num_rows)

    def count_rows(self, filter: Any = None, **_how: Any) -> int:
        """Return the number of rows; see `scanner`."""
        return self.scanner(None, filter).count_rows()

    def get_fragments(self, filter: Any = None) -> NoReturn:
        """Not offered: fragments would not be the files as stored."""
        self._refuse("fragments")

    def _refuse(self, what: str, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedFeatureError(
            f"the data set of {self._rows.title} does not offer {what}",
            feature="dataset",
            hint="take the rows first: to_arrow(), or scanner(columns=..., filter=...).to_table().",
        )

    def take(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered."""
        self._refuse("take")

    def filter(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered; give the filter to `scanner`."""
        self._refuse("filter")

    def sort_by(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered."""
        self._refuse("sort_by")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered."""
        self._refuse("join")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered."""
        self._refuse("join_asof")

    def replace_schema(self, *_: Any, **__: Any) -> NoReturn:
        """Not offered."""
        self._refuse("replace_schema")


class ScanScanner(ds.Scanner):  # type: ignore[misc]
    """A read of a `ScanDataset` with columns and a filter."""

    def __init__(
        self,
        rows: Narrowing,
        columns: Any,
        filter: Any,
        job: TakingPart,
        *,
        nan_is_largest: bool,
        failures: list[AnabranchError] | None,
    ) -> None:
        self._failures = failures
        self._filter = None
        self._job = job
        self._expressions: dict[str, Any] | None = None
        names = rows.arrow_schema.names
        self._dataset_schema = rows.arrow_schema
        if filter is not None:
            rows, self._filter = _pushed(rows, filter, nan_is_largest=nan_is_largest)
        if isinstance(columns, dict):
            self._expressions = columns
        elif columns is not None:
            wanted = [_known(name, names) for name in columns]
            if self._filter is None:
                rows = rows.only_columns(wanted)
            else:
                self._expressions = {name: ds.field(name) for name in wanted}
        self._rows = rows

    @property
    def dataset_schema(self) -> pa.Schema:
        """Return the columns of the data set."""
        return self._dataset_schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Return the columns of the result."""
        return self._formed(self._rows.arrow_schema.empty_table()).schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader, to be consumed once."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, read as they are consumed."""
        try:
            yield from self._read()
        except AnabranchError as error:
            if self._failures is not None:
                self._failures.append(error)
            raise

    def _read(self) -> Iterator[pa.RecordBatch]:
        with self._job():
            batches = self._rows.to_batches()
        if self._filter is None and self._expressions is None:
            yield from batches
            return
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            yield from self._formed(rows if self._filter is None else rows.filter(self._filter)).to_batches()

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        found, left = [], num_rows
        for batch in self.to_batches() if left > 0 else ():
            found.append(batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(found, schema=self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def scan_batches(self) -> NoReturn:
        """Not offered."""
        raise UnsupportedFeatureError(
            "batches have no fragments", feature="dataset", hint="use to_batches()."
        )

    def take(self, indices: Any) -> NoReturn:
        """Not offered."""
        raise UnsupportedFeatureError(
            "rows have no numbers", feature="dataset", hint="use to_table().take()."
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows by Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _formed(self, rows: pa.Table) -> pa.Table:
        if self._expressions is None:
            return rows
        return ds.dataset(rows).to_table(columns=self._expressions)


def _pushed(rows: Narrowing, filter: Any, *, nan_is_largest: bool) -> tuple[Narrowing, Any]:
    """Push a filter down as far as possible; return the rows and the remaining filter, or None."""
    parts = parts_of(filter)
    floating = {f.name for f in rows.arrow_schema if pa.types.is_floating(f.type)}
    is_whole = True
    for part in parts:
        # Arrow finds NaN neither equal to nor above anything: of NOT (x > 1) it keeps rows that SQL leaves out.
        differs = not nan_is_largest and part is not None and bool(_columns(part) & floating)
        narrowed = None if part is None or differs else rows.where(part)
        is_whole = is_whole and narrowed is not None
        rows = narrowed or rows
    return rows, None if is_whole else filter


def _columns(predicate: Predicate) -> set[str]:
    match predicate:
        case And() | Or():
            return set().union(*map(_columns, predicate.children))
        case Not():
            return _columns(predicate.child)
        case (
            Comparison(left=Column() as column)
            | In(column=Column() as column)
            | IsNull(column=Column() as column)
        ):
            return {column.path[0]}
    return set()


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise pa.ArrowInvalid(f"No match for FieldRef.Name({name})")
    return name
