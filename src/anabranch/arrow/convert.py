"""Conversion of rows of any kind to the columns of a table, exactly or not at all.

Columns go by their names, in any order. A value may be put into a type that expresses it exactly, and into no
other: nothing is rounded, cut or parsed, and nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow import nested
from anabranch.arrow.row_buffer import size_of
from anabranch.arrow.sources import batches_of
from anabranch.errors import SchemaError, nearest
from anabranch.expr.row_rules import filled
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import PLAIN_ARROW, to_arrow_schema, to_arrow_type

_MAX_BATCH_BYTES = 1 << 30
"""Limit for a batch's bytes: text and binary must fit 32-bit offsets."""

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Arrow's view types, which many functions do not support yet, and their offset-based equivalents."""


def convert(data: Any, fields: Sequence[t.Field]) -> Iterator[pa.RecordBatch]:
    """Convert rows to batches in exactly the Arrow types of a table's columns.

    What has these types already is passed on without a copy. NaN, both zeros and the order of rows are kept.

    Args:
        data: `pyarrow.Table`, batch, reader, or an iterable of these; pandas or Polars data frame, or anything
            that exports Arrow's stream; a sequence of dictionaries. In pandas, NaN in a column means null.
        fields: the columns of the table. Nullable ones may be missing in the data.

    Raises:
        SchemaError: a column is unknown, missing or of a type that does not fit, or a value does not fit its
            column; names the column.
    """
    schema = to_arrow_schema(fields)
    for batch in batches_of(data, fields):
        for part in _bounded(batch):
            yield _fitted(part, fields, schema)


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or size_of(batch) <= _MAX_BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _bounded(batch.slice(0, middle))
    yield from _bounded(batch.slice(middle))


def _fitted(batch: pa.RecordBatch, fields: Sequence[t.Field], schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return _checked(batch, fields)
    positions = _match(batch.schema.names, fields, parent="")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _check_text(column, name)
    columns = [
        fit_column(pa.nulls(batch.num_rows) if position is None else batch.column(position), field)
        for field, position in zip(fields, positions, strict=True)
    ]
    if not columns:
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _checked(batch: pa.RecordBatch, fields: Sequence[t.Field]) -> pa.RecordBatch:
    """Fit a batch that has the schema already: of its columns only those whose values have to be looked at."""
    columns: dict[int, pa.Array] = {}
    for position, field in enumerate(fields):
        if type(field.type) in _ANY_VALUE and field.type.nullable and field.default is None:
            continue
        found = batch.column(position)
        _check_text(found, field.name)
        fitted = fit_column(found, field)
        if fitted is not found:
            columns[position] = fitted
    if not columns:
        return batch
    all_columns = [columns.get(position, column) for position, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(all_columns, schema=batch.schema)


def _check_text(column: pa.Array, name: str) -> None:
    """Raise `SchemaError` for text that is not UTF-8, which Arrow passes on, and readers could not read."""
    if not _has_text(column.type):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column '{name}' has a value that is no valid text: {error}",
            hint="decode it first, or store it in a column of BYTES.",
        ) from error


def _has_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_text(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_text(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return True
    return any(_has_text(kind.field(place).type) for place in range(kind.num_fields))


def _match(names: Sequence[str], fields: Sequence[t.Field], parent: str) -> list[int | None]:
    """Return each field's index among the names, None where it may be missing. `parent` ends with a dot."""
    found = {name: position for position, name in enumerate(names)}
    if len(found) < len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise SchemaError(f"the data has more than one column named {_listed(twice, parent)}")
    known = {field.name: None for field in fields}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SchemaError(
            f"the table has no column {_listed(unknown, parent)}", hint=_suggestion(unknown, [*known], parent)
        )
    missing = [
        field.name
        for field in fields
        if not field.type.nullable and field.default is None and field.name not in found
    ]
    if missing:
        raise SchemaError(
            f"the data has no column {_listed(missing, parent)}, which is NOT NULL",
            hint="Add the column to the data; names are matched with their case.",
        )
    return [found.get(field.name) for field in fields]


def _suggestion(unknown: Sequence[str], known: Sequence[str], parent: str) -> str:
    near = nearest(unknown[0], known)
    if near:
        return f"Did you mean '{parent}{near}'? Names are matched with their case."
    return (
        'Leave it out of the data, or add it to the table: by append(..., schema="merge"), by mergeSchema in Spark, or '
        "by alter() before."
    )


def _listed(names: Sequence[str], parent: str) -> str:
    return ", ".join(f"'{parent}{name}'" for name in names)


def fit_column(array: pa.Array, field: t.Field) -> pa.Array:
    """Convert a column to exactly its Arrow type, with its default in place of nulls. Raises as `fit` does."""
    if field.default is None:
        return fit(array, field.type, field.name)
    return filled(fit(array, field.type.with_nullable(True), field.name), field)


def fit(array: pa.Array, data_type: t.DataType, path: str, *, absent: int = 0) -> pa.Array:
    """Convert an array to exactly the Arrow type of a column.

    Args:
        array: the values, of whatever Arrow type.
        data_type: the type of the column.
        path: the column's name, with the names around it if it is nested, for messages.
        absent: how many of the values are null only because the row around them is.

    Raises:
        SchemaError: the type or a value does not fit.
    """
    array = _plain(array)
    target = to_arrow_type(data_type)
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), target)
    elif not array.type.equals(target) or not _is_unrestricted(data_type):
        array = _fit_inside(array, data_type, path)
    nulls = array.null_count - absent
    if nulls and not data_type.nullable:
        raise SchemaError(
            f"column '{path}' is NOT NULL, but {nulls} of {len(array) - absent} values are null",
            hint="Fill or drop these rows first.",
        )
    return array


def _plain(array: pa.Array) -> pa.Array:
    """Return the array without wrappers, such as extension or dictionary types."""
    kinds = pa.types
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif kinds.is_dictionary(array.type):
            array = _plain(array.dictionary).take(array.indices)
        elif kinds.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif array.type in _VIEWS:
            array = array.cast(_VIEWS[array.type])
        else:
            return array


def _is_unrestricted(data_type: t.DataType) -> bool:
    """Whether every array of the right Arrow type is valid."""
    match data_type:
        case t.CharType(length=length) | t.VarCharType(length=length):
            return length == t.MAX_LENGTH
        case t.BinaryType(length=length) | t.VarBinaryType(length=length):
            return length == t.MAX_LENGTH
        case t.ArrayType(element=element):
            return element.nullable and _is_unrestricted(element)
        case t.RowType(fields=fields):
            return all(field.type.nullable and _is_unrestricted(field.type) for field in fields)
        case t.MapType() | t.MultisetType():
            return False
        case _:
            return True


def _fit_inside(array: pa.Array, data_type: t.DataType, path: str) -> pa.Array:
    match data_type:
        case t.RowType():
            return _fit_rows(array, data_type, path)
        case t.ArrayType():
            return _fit_lists(array, data_type, path)
        case t.MapType(key=key, value=value):
            return _fit_maps(array, key, value, data_type, path)
        case t.MultisetType(element=element):
            return _fit_maps(array, element, t.IntType(nullable=False), data_type, path)
        case _:
            fitted = _cast(array, data_type, path)
            _check_length(fitted, data_type, path)
            return fitted


_ANY_VALUE = {
    *(kind for kind, arrow in PLAIN_ARROW.items() if pa.types.is_primitive(arrow)),
    *(t.DecimalType, t.TimestampType, t.LocalZonedTimestampType),
}
"""Types for which every value of their Arrow type is valid."""


# Nested types. Values below a null are neither checked nor kept.


def _fit_rows(array: pa.Array, data_type: t.RowType, path: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _refusal(array.type, data_type, path)
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    positions = _match(names, data_type.fields, parent=f"{path}.")
    members = array.flatten()  # null where the row is
    children = [
        fit(
            pa.nulls(len(array)) if position is None else members[position],
            field.type,
            f"{path}.{field.name}",
            absent=array.null_count,
        )
        for field, position in zip(data_type.fields, positions, strict=True)
    ]
    return nested.with_children(array, children, to_arrow_type(data_type))


def _fit_lists(array: pa.Array, data_type: t.ArrayType, path: str) -> pa.Array:
    if not _is_any_list(array.type):
        raise _refusal(array.type, data_type, path)
    array = nested.without_hidden(array) if pa.types.is_list(array.type) else nested.to_list(array)
    values = fit(nested.list_values(array), data_type.element, f"{path}.element")
    return nested.with_values(array, values, to_arrow_type(data_type))


def _fit_maps(
    array: pa.Array, key: t.DataType, value: t.DataType, data_type: t.DataType, path: str
) -> pa.Array:
    if not pa.types.is_map(array.type):
        array = _as_map(array, data_type, path)
    array = nested.without_hidden(array)
    keys, items = nested.map_entries(array)
    keys = fit(keys, key.with_nullable(False), f"{path}.key")
    return nested.with_entries(array, keys, fit(items, value, f"{path}.value"), to_arrow_type(data_type))


def _as_map(array: pa.Array, data_type: t.DataType, path: str) -> pa.Array:
    """Convert a list of key-value structs, the maps of libraries without a map type."""
    entry = array.type.value_type if _is_any_list(array.type) else None
    if entry is None or not pa.types.is_struct(entry) or [field.name for field in entry] != ["key", "value"]:
        raise _refusal(array.type, data_type, path)
    lists = nested.to_list(array)
    entries = nested.list_values(lists)
    keys, items = entries.flatten()
    if keys.null_count:
        raise SchemaError(f"column '{path}' is a map, but {keys.null_count} of its keys are null")
    return nested.to_map(lists, keys, items)


def _is_any_list(found: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(found)
        or kinds.is_large_list(found)
        or kinds.is_fixed_size_list(found)
        or kinds.is_list_view(found)
        or kinds.is_large_list_view(found)
    )


# Atomic types


def _cast(array: pa.Array, data_type: t.DataType, path: str) -> pa.Array:
    found = array.type
    target = to_arrow_type(data_type)
    if found == target:
        return array
    if not _ACCEPTED[type(data_type)](found):
        raise _refusal(found, data_type, path)
    if isinstance(data_type, t.DecimalType) and pa.types.is_integer(found):
        digits = 20 if found == pa.uint64() else 19
        return _safely(lambda: array.cast(pa.decimal128(digits, 0)).cast(target), path)
    return _safely(lambda: array.cast(target), path)


def _is_text(found: pa.DataType) -> bool:
    return found in (pa.string(), pa.large_string())


def _is_bytes(found: pa.DataType) -> bool:
    return found in (pa.binary(), pa.large_binary()) or bool(pa.types.is_fixed_size_binary(found))


_ACCEPTED: dict[type[t.DataType], Callable[[pa.DataType], bool]] = {
    t.BooleanType: pa.types.is_boolean,
    t.TinyIntType: pa.types.is_integer,
    t.SmallIntType: pa.types.is_integer,
    t.IntType: pa.types.is_integer,
    t.BigIntType: pa.types.is_integer,
    t.FloatType: lambda found: found == pa.float16() or pa.types.is_integer(found),
    t.DoubleType: lambda found: pa.types.is_floating(found) or pa.types.is_integer(found),
    t.DecimalType: lambda found: pa.types.is_decimal(found) or pa.types.is_integer(found),
    t.CharType: _is_text,
    t.VarCharType: _is_text,
    t.BinaryType: _is_bytes,
    t.VarBinaryType: _is_bytes,
    t.DateType: pa.types.is_date,
    t.TimeType: pa.types.is_time,
    t.TimestampType: lambda found: pa.types.is_timestamp(found) and found.tz is None,
    t.LocalZonedTimestampType: lambda found: pa.types.is_timestamp(found) and found.tz is not None,
}
"""Arrow types that a column accepts; each value is checked as well."""


def _refusal(found: pa.DataType, data_type: t.DataType, path: str) -> SchemaError:
    hint = f"Convert the column to {to_arrow_type(data_type)} first."
    if pa.types.is_timestamp(found) and isinstance(data_type, t.LocalZonedTimestampType):
        hint = "Say in which zone the times are: pyarrow.compute.assume_timezone(column, 'Europe/Berlin')."
    elif pa.types.is_timestamp(found) and isinstance(data_type, t.TimestampType):
        hint = (
            "Say whose clock shall be kept: pyarrow.compute.local_timestamp(column) drops the column's zone."
        )
    elif pa.types.is_floating(found) and isinstance(data_type, t.FloatType | t.DecimalType):
        hint = "Round the column yourself, so that it is known where digits were lost."
    return SchemaError(f"column '{path}' is {data_type}, but the data has {found}", hint=hint)


def _safely(cast: Callable[[], pa.Array], path: str) -> pa.Array:
    try:
        return cast()
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column '{path}' holds a value that does not fit: {error}",
            hint="Values must fit exactly; convert the column first.",
        ) from error


def _check_length(array: pa.Array, data_type: t.DataType, path: str) -> None:
    match data_type:
        case t.CharType(length=length) | t.VarCharType(length=length) if length < t.MAX_LENGTH:
            lengths, unit = pc.utf8_length(array), "characters"
        case t.BinaryType(length=length) | t.VarBinaryType(length=length) if length < t.MAX_LENGTH:
            lengths, unit = pc.binary_length(array), "bytes"
        case _:
            return
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > length:
        count = pc.sum(pc.greater(lengths, length)).as_py()
        raise SchemaError(
            f"column '{path}' is {data_type}, but {count} of {len(array)} values are longer, "
            f"the longest has {longest} {unit}",
            hint="Widen the column, or shorten the values first.",
        )
