"""A read as a pyarrow data set, which DuckDB, Polars and pyarrow query for columns and matching rows.

What they filter by goes to the planner, which leaves out partitions and files, and to the reader. What has no counterpart is
filtered here, batch by batch. The data set is of one snapshot however often it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.errors import AnabranchError, PredicateError, SchemaError, UnsupportedFeatureError
from anabranch.expr.bind import bind
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.nodes import And, Column, Comparison, In, IsNull, Not, Or, Predicate
from anabranch.format.types.arrow_types import fields_from_arrow, no_rows
from anabranch.frames.duckdb_times import in_microseconds
from anabranch.frames.expressions import columns_of, parts_of
from anabranch.frames.narrowing import Narrowing
from anabranch.lineage.recording import TakingPart, captured

Kept: TypeAlias = Callable[[pa.Table], pa.Table]
"""Gives the rows that a filter keeps."""


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
    return ScanDataset(in_microseconds(rows), nan_is_largest=True, failures=failures)


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
        self._filter: Kept | None = None
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
        return self._formed(no_rows(self._rows.arrow_schema)).schema

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
            yield from self._formed(rows if self._filter is None else self._filter(rows)).to_batches()

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


def _pushed(rows: Narrowing, filter: Any, *, nan_is_largest: bool) -> tuple[Narrowing, Kept | None]:
    """Push a filter down as far as possible; return the rows and what is left to filter, or None."""
    parts = parts_of(filter)
    kept: list[Kept] = []
    for part in parts:
        has_floats = part is None or _has_floats(part, rows.arrow_schema)
        # Arrow finds NaN neither equal to nor above anything: of NOT (x > 1) it keeps rows that SQL leaves out.
        narrowed = None if part is None or (has_floats and not nan_is_largest) else rows.where(part)
        if narrowed is not None:
            rows = narrowed
            continue
        keep = _keeping(part, rows.arrow_schema) if part is not None and nan_is_largest else None
        if keep is None:
            is_float = any(pa.types.is_floating(kind) for kind in _types(rows.arrow_schema))
            if nan_is_largest and has_floats and is_float and _names_floats(filter, rows.arrow_schema):
                raise UnsupportedFeatureError(
                    f"a filter of DuckDB on {rows.title} is not understood, and by Arrow's rules NaN would be left out: {filter}",
                    feature="filter",
                    hint="filter the rows first: scan(filter).to_duckdb().",
                )
            return rows, lambda table: table.filter(filter)
        kept.append(keep)
    return rows, _one_after_the_other(kept) if kept else None


def _names_floats(filter: Any, schema: pa.Schema) -> bool:
    """Tell whether a filter that is not understood may test a floating point number."""
    columns = columns_of(filter)
    return columns is None or any(_is_floating(column.path, schema) for column in columns)


def _keeping(predicate: Predicate, schema: pa.Schema) -> Kept | None:
    """Return what keeps the rows of these columns for which a predicate is TRUE; None if it does not fit them."""
    try:
        bound = bind(predicate, fields_from_arrow(schema))
    except (PredicateError, SchemaError):
        return None
    return lambda table: table.filter(filter_mask(bound, table))


def _one_after_the_other(kept: Sequence[Kept]) -> Kept:
    return lambda table: reduce(lambda rows, keep: keep(rows), kept, table)


def _types(parent: pa.Schema | pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of columns and of the fields of rows inside of them."""
    for field in parent:
        yield field.type
        if pa.types.is_struct(field.type):
            yield from _types(field.type)


def _has_floats(predicate: Predicate, schema: pa.Schema) -> bool:
    """Tell whether a predicate tests a floating point number."""
    match predicate:
        case And() | Or():
            return any(_has_floats(child, schema) for child in predicate.children)
        case Not():
            return _has_floats(predicate.child, schema)
        case (
            Comparison(left=Column() as column)
            | In(column=Column() as column)
            | IsNull(column=Column() as column)
        ):
            return _is_floating(column.path, schema)
    return False


def _is_floating(path: Sequence[str], parent: pa.Schema | pa.DataType) -> bool:
    name, *inner = path
    found = [field.type for field in parent if field.name == name]
    if not found:
        return False
    return _is_floating(inner, found[0]) if inner else bool(pa.types.is_floating(found[0]))


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise pa.ArrowInvalid(f"No match for FieldRef.Name({name})")
    return name
