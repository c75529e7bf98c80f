"""Rows with their own columns, for a table that is created from them or gets missing columns.

Plain appending knows the columns from the table (`anabranch.arrow.convert`). Here they come from the data: from Arrow's
types where it has them, from the values where it is Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from anabranch.arrow.convert import fit
from anabranch.arrow.python_values import rows_to_batch, to_array
from anabranch.arrow.sources import (
    ROWS_AT_ONCE,
    batches_of,
    check_polars,
    is_pandas,
    pandas_columns,
    reader_of,
    unknown,
)
from anabranch.errors import SchemaError
from anabranch.format.types.arrow_types import fields_from_arrow, from_arrow_type
from anabranch.format.types.data_types import ArrayType, DataType, Field, RowType
from anabranch.format.types.grammar import UNASSIGNED_ID

_HOLDS: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
"""Arrow types that no column has, mapped to types that hold all their values."""


@dataclass(frozen=True)
class Incoming:
    """Rows with columns of their own."""

    fields: tuple[Field, ...]
    """Columns, in types that hold the values; empty if there are no rows to derive them from."""
    batches: Iterable[pa.RecordBatch]
    is_repeatable: bool
    """Whether `batches` can be read again. Otherwise only the beginning was inspected."""


def incoming(data: Any, known: Sequence[Field] = ()) -> Incoming:
    """Return the rows of anything that `convert` takes, with their columns.

    Args:
        data: pyarrow, pandas, Polars, anything with ``__arrow_c_stream__``, or dictionaries. Of an iterator of
            dictionaries, the first 65,536 say what the columns are.
        known: columns of the table. Where all rows are in memory and fit one of these, it is given as it is,
            also if the data has a wider type.

    Raises:
        SchemaError: there are no rows to be had from this, or no column type holds the values of a column.
    """
    by_name = {field.name: field for field in known}
    if is_pandas(data):
        return _held(_pandas(data, by_name), by_name)
    if isinstance(data, pa.RecordBatch):
        return _held(pa.Table.from_batches([data]), by_name)
    if isinstance(data, pa.Table):
        return _held(data, by_name)
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "__arrow_c_stream__"):
        check_polars(data)
        return _held(reader_of(data).read_all(), by_name)
    if isinstance(data, pa.RecordBatchReader):
        return Incoming(_fields(data.schema, by_name), data, is_repeatable=False)
    if hasattr(data, "__arrow_c_stream__"):
        return incoming(reader_of(data), known)
    if hasattr(data, "__arrow_c_array__"):
        return incoming(pa.record_batch(data), known)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _items(data, by_name)
    raise unknown(data)


def _items(items: Iterable[Any], known: Mapping[str, Field]) -> Incoming:
    is_held = isinstance(items, list | tuple)
    if is_held and items and all(isinstance(item, pa.Table | pa.RecordBatch) for item in items):
        return _held(_joined(items), known)
    rest = iter(items)
    for first in rest:
        if isinstance(first, Mapping):
            return _rows(chain([first], rest), known, is_held=is_held)
        found = incoming(first, tuple(known.values()))
        others = batches_of(rest, found.fields)
        return Incoming(found.fields, chain(found.batches, others), is_repeatable=False)
    return Incoming((), (), is_repeatable=True)


def _joined(tables: Iterable[pa.Table | pa.RecordBatch]) -> pa.Table:
    whole = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in tables]
    try:
        return pa.concat_tables(whole, promote_options="permissive")
    except pa.ArrowException as error:
        raise SchemaError(f"the tables of the list have columns of different types: {error}") from error


def _held(table: pa.Table, known: Mapping[str, Field]) -> Incoming:
    """Return rows that are all in memory, so that their values are known."""
    fields = [
        replace(field, type=_closest(table.column(field.name).chunks, field.type, known[field.name].type))
        if field.name in known
        else field
        for field in _fields(table.schema, known)
    ]
    return Incoming(tuple(fields), table.to_batches(), is_repeatable=True)


def _closest(arrays: Sequence[pa.Array], told: DataType, known: DataType) -> DataType:
    """Return the table's column type where the values fit it, also nested; else that of the data."""
    if _fits(arrays, known):
        return known
    match told, known:
        case RowType(fields=fields), RowType() if all(pa.types.is_struct(a.type) for a in arrays):
            types = {f.name: f.type for f in known.fields}
            inside = [
                replace(f, type=_closest([a.flatten()[n] for a in arrays], f.type, types[f.name]))
                if f.name in types
                else f
                for n, f in enumerate(fields)
            ]
            return replace(told, fields=tuple(inside))
        case ArrayType(), ArrayType() if all(pa.types.is_list(a.type) for a in arrays):
            elements = _closest([a.flatten() for a in arrays], told.element, known.element)
            return replace(told, element=elements)
    return told


def _fits(arrays: Iterable[pa.Array], data_type: DataType) -> bool:
    try:
        for array in arrays:
            fit(array, data_type.with_nullable(True), "column")
    except SchemaError:
        return False
    return True


def _fields(schema: pa.Schema, known: Mapping[str, Field]) -> tuple[Field, ...]:
    """Return the columns of an Arrow schema. Raises `SchemaError` for one whose values no type holds."""
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise SchemaError(f"the data has more than one column named {', '.join(map(repr, twice))}")
    return tuple(_field(column, known) for column in schema)


def _field(column: pa.Field[Any], known: Mapping[str, Field]) -> Field:
    if getattr(column.type, "extension_name", "").startswith("pandas."):  # stored, they would be bare numbers
        raise SchemaError(
            f"column '{column.name}' is a {column.type.extension_name.removeprefix('pandas.')} of pandas, which no column type "
            "holds",
            hint="convert it first: to_timestamp() for periods, left and right for intervals, or astype(str).",
        )
    holding = _holding(column.type)
    if pa.types.is_null(holding) and column.name in known:
        return known[column.name]
    try:
        (found,) = fields_from_arrow(pa.schema([column.with_type(holding)]))
    except SchemaError as error:
        if pa.types.is_null(holding):
            raise SchemaError(
                f"column '{column.name}' holds nothing but nulls, so its type is not known",
                hint=f"cast it, leave it out, or say what it is: table.alter().add_column('{column.name}', 'STRING').apply(), or "
                f"create_table(name, '{column.name} STRING, ...', data=...) for a new table.",
            ) from error
        raise
    return found


def _holding(arrow: pa.DataType) -> pa.DataType:
    """Replace Arrow types that no column has, at any depth, by ones that hold all their values."""
    kinds = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return _holding(arrow.storage_type)
    if kinds.is_dictionary(arrow) or kinds.is_run_end_encoded(arrow):
        return _holding(arrow.value_type)
    if kinds.is_map(arrow):
        value = arrow.item_field.with_type(_holding(arrow.item_type))
        return pa.map_(arrow.key_field.with_type(_holding(arrow.key_type)), value)
    if kinds.is_struct(arrow):
        return pa.struct([inner.with_type(_holding(inner.type)) for inner in arrow])
    if (
        kinds.is_list(arrow)
        or kinds.is_large_list(arrow)
        or kinds.is_fixed_size_list(arrow)
        or kinds.is_list_view(arrow)
        or kinds.is_large_list_view(arrow)
    ):
        return pa.list_(arrow.value_field.with_type(_holding(arrow.value_type)))
    if kinds.is_date64(arrow):
        return pa.date32()
    return _HOLDS.get(arrow, arrow)


# Python's values


def _rows(rows: Iterator[Mapping[str, Any]], known: Mapping[str, Field], *, is_held: bool) -> Incoming:
    """Return dictionaries as rows; each key's type follows from its values, for a list from all of them."""
    some = list(rows if is_held else islice(rows, ROWS_AT_ONCE))
    for row in some:
        if not isinstance(row, Mapping):
            raise SchemaError(f"expected a dictionary for each row, found {type(row).__qualname__}")
    keys = dict.fromkeys(key for row in some for key in row)
    for key in keys:
        if not isinstance(key, str):
            raise SchemaError(f"the names of columns are text, found {key!r}")
    fields = tuple(_told_field(key, [row.get(key) for row in some], known.get(key)) for key in keys)
    every = _batches(iter(some) if is_held else chain(some, rows), fields)
    return Incoming(fields, list(every) if is_held else every, is_repeatable=is_held)


def _batches(rows: Iterator[Mapping[str, Any]], fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
    names = {field.name for field in fields}
    while some := list(islice(rows, ROWS_AT_ONCE)):
        batch = rows_to_batch(some, fields)
        late = next((name for name in batch.schema.names if name not in names), None)
        if late is not None:
            raise SchemaError(
                f"the key '{late}' comes after the first {ROWS_AT_ONCE:,} rows, which say what the columns of an iterator are",
                hint=f"give a list, give the first row a '{late}', or add the column to the table first.",
            )
        yield batch


def _told_field(name: str, values: Sequence[Any], known: Field | None) -> Field:
    if known is not None:
        with suppress(SchemaError):  # then a type that holds them is looked for
            if _fits([to_array(values, known.type, name)], known.type):
                return known
    told = _told_type(name, values)
    if known is not None:
        told = _closest([to_array(values, told, name)], told, known.type)
    return Field(UNASSIGNED_ID, name, told)


def _told_type(name: str, values: Sequence[Any]) -> DataType:
    """Return the common type of a column's Python values. Raises `SchemaError`."""
    try:
        arrow = pa.infer_type([value for value in values if value is not None])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"the values of column '{name}' have no one type: {error}",
            hint="make them alike, or say what the columns are: create_table(name, 'a INT, ...', data=...).",
        ) from error
    if pa.types.is_null(arrow):
        return _field(pa.field(name, arrow), {}).type
    data_type = from_arrow_type(_holding(arrow))
    to_array(
        values, data_type, name
    )  # Arrow makes one type of values that have none in common, such as a date and a time
    return data_type


def _pandas(frame: Any, known: Mapping[str, Field]) -> pa.Table:
    """Convert a pandas frame: object columns by their values, times to microseconds if that is lossless."""
    arrays: dict[str, Any] = {}
    for name, values in pandas_columns(frame):
        if values.dtype == object:
            present = [None if gone else value for value, gone in zip(values, values.isna(), strict=True)]
            field = _told_field(name, present, known.get(name))
            arrays[name] = to_array(present, field.type, name)
            continue
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise SchemaError(f"column '{name}' cannot be turned into Arrow: {error}") from error
        arrays[name] = _in_micros(array)
    return pa.table(arrays)


def _in_micros(array: Any) -> Any:
    """Cast pandas' default nanoseconds to microseconds, if that is lossless."""
    if not pa.types.is_timestamp(array.type) or array.type.unit != "ns":
        return array
    try:
        return array.cast(pa.timestamp("us", array.type.tz))
    except pa.ArrowInvalid:
        return array
