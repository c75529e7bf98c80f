"""Conversion of the common row containers to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import polars as pl
import pyarrow as pa

from anabranch.arrow.python_values import rows_to_batch, to_array
from anabranch.errors import SchemaError
from anabranch.format.types.data_types import Field

ROWS_AT_ONCE: Final = 1 << 16
"""Number of dictionaries that become one batch."""


def batches_of(data: Any, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of the fitting Arrow types; `fields` decides where Python leaves a choice.

    Raises:
        SchemaError: there are no rows to be had from this, or a value fits no column.
    """
    if isinstance(data, pa.Table):
        yield from data.to_batches()
    elif isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif is_pandas(data):
        yield from _pandas_table(data, fields).to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        check_polars(data)
        yield from reader_of(data)
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        yield from _items(iter(data), fields)
    else:
        raise unknown(data)


def is_held(data: Any) -> bool:
    """Whether all rows are in memory, as `batches_of` takes them, and can be read again."""
    if isinstance(data, list | tuple):
        return all(isinstance(item, Mapping | pa.Table | pa.RecordBatch) for item in data)
    return isinstance(data, pa.Table | pa.RecordBatch | pl.DataFrame) or is_pandas(data)


def _items(items: Iterator[Any], fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    for first in items:
        if isinstance(first, Mapping):
            rows = chain([first], items)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                yield rows_to_batch(some, fields)
        elif isinstance(first, pa.Table | pa.RecordBatch) or hasattr(first, "__arrow_c_stream__"):
            yield from batches_of(first, fields)
        else:
            raise unknown(first)


def unknown(data: Any) -> SchemaError:
    """Return the error for data that has no rows."""
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    return SchemaError(
        f"cannot take rows from {kind}",
        hint="Give a pyarrow Table, batch or reader, an iterable of these, a pandas or Polars DataFrame, or a "
        "list of dictionaries; .collect() a Polars LazyFrame.",
    )


def reader_of(data: Any) -> pa.RecordBatchReader:
    """Read what exports Arrow's stream. Raises `SchemaError` for types that Arrow lacks."""
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        odd = [
            name
            for name, kind in (data.schema.items() if isinstance(data, pl.DataFrame) else ())
            if "Int128" in str(kind)
        ]
        which = f"column '{odd[0]}' has" if odd else "a column has"
        raise SchemaError(
            f"{which} a type that Arrow does not know: {error}",
            hint="cast it first: integers of 128 bits to Decimal(38, 0), or to Int64.",
        ) from error


def check_polars(data: Any) -> None:
    """Refuse columns of Python objects, which Polars exports as addresses. Raises `SchemaError`."""
    if not isinstance(data, pl.DataFrame):
        return
    for name, data_type in data.schema.items():
        if data_type == pl.Object:
            raise SchemaError(
                f"column '{name}' holds Python objects, which are no values of a table",
                hint="cast it to a type of Polars, or give the rows as dictionaries: frame.to_dicts().",
            )


def is_pandas(data: Any) -> bool:
    """Whether it is a pandas data frame; pandas need not be installed."""
    kind = type(data)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


def pandas_columns(frame: Any) -> Iterator[tuple[str, Any]]:
    """Yield columns, and the named levels of the index; row labels without a name are not data.

    Raises `SchemaError` for names that are no text, or are there twice.
    """
    levels = [(n, frame.index.get_level_values(i)) for i, n in enumerate(frame.index.names) if n is not None]
    columns = [(name, frame.iloc[:, position]) for position, name in enumerate(frame.columns)]
    seen = set()
    for name, values in (*levels, *columns):
        if not isinstance(name, str) or name in seen:
            raise SchemaError(f"the columns of the data need distinct names of text, found {name!r}")
        seen.add(name)
        yield name, values


def _pandas_table(frame: Any, fields: Sequence[Field]) -> pa.Table:
    by_name = {field.name: field for field in fields}
    return pa.table(
        {name: _pandas_column(values, by_name.get(name)) for name, values in pandas_columns(frame)}
    )


def _pandas_column(values: Any, field: Field | None) -> pa.Array | pa.ChunkedArray:
    if field is None:
        return pa.nulls(len(values))  # for the caller to complain of
    if values.dtype == object:
        present = [None if gone else value for value, gone in zip(values, values.isna(), strict=True)]
        return to_array(present, field.type, field.name)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SchemaError(f"column '{field.name}' cannot be turned into Arrow: {error}") from error
