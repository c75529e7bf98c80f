"""Conversion of rows to the form that the Parquet writer takes.

Two things differ from what rows are in memory. Timestamps of nanoseconds become `INT96`. And what is NOT NULL
inside of something that may be null has no nulls of its own, where Arrow often has some below the outer ones.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow import nested
from anabranch.arrow.stored_values import INT96, to_int96
from anabranch.errors import SchemaError


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `INT96` instead of nanosecond timestamps, at any depth."""
    return pa.schema([_storable_field(field) for field in schema])


def storable(table: pa.Table) -> pa.Table:
    """Convert a table to the types of its `storable_schema`; unaffected columns stay as they are.

    Raises:
        SchemaError: a value is null that is NOT NULL.
    """
    for field, column in zip(table.schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise _null(field.name)
    if not any(_is_special(field.type) for field in table.schema):
        return table
    schema = storable_schema(table.schema)
    columns = [
        pa.chunked_array([_storable(c, field.name) for c in column.chunks], wanted.type)
        if _is_special(field.type)
        else column
        for field, wanted, column in zip(table.schema, schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _storable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storable_type(field.type))


def _storable_type(data_type: pa.DataType) -> pa.DataType:
    if _is_nanos(data_type):
        return INT96
    if pa.types.is_list(data_type):
        return pa.list_(_storable_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_storable_field(data_type.key_field), _storable_field(data_type.item_field))
    if pa.types.is_struct(data_type):
        return pa.struct([_storable_field(field) for field in data_type])
    return data_type


def _is_special(data_type: pa.DataType) -> bool:
    """Whether arrays of the type may need changes."""
    if pa.types.is_nested(data_type):
        inner = [data_type.field(i) for i in range(data_type.num_fields)]
        return any(not field.nullable or _is_special(field.type) for field in inner)
    return _is_nanos(data_type)


def _is_nanos(data_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(data_type) and bool(data_type.unit == "ns")


def _storable(array: pa.Array, path: str) -> pa.Array:
    found = array.type
    if not _is_special(found):
        return array
    target = _storable_type(found)
    if pa.types.is_list(found):
        array = nested.without_hidden(array)
        values = _inner(nested.list_values(array), found.value_field, f"{path}.element")
        return nested.with_values(array, values, target)
    if pa.types.is_map(found):
        array = nested.without_hidden(array)
        keys, items = nested.map_entries(array)
        keys = _storable(keys, f"{path}.key")
        return nested.with_entries(array, keys, _inner(items, found.item_field, f"{path}.value"), target)
    if pa.types.is_struct(found):
        children = [_member(array, i, f"{path}.{field.name}") for i, field in enumerate(found)]
        return nested.with_children(array, children, target)
    return to_int96(array)


def _inner(values: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if values.null_count and not field.nullable:
        raise _null(path)
    return _storable(values, path)


def _member(rows: pa.Array, position: int, path: str) -> pa.Array:
    values = _storable(rows.field(position), path)
    if rows.type.field(position).nullable or not values.null_count:
        return values
    if pc.any(pc.and_(values.is_null(), rows.is_valid())).as_py():
        raise _null(path)
    return nested.without_nulls(values)


def _null(path: str) -> SchemaError:
    return SchemaError(
        f"column '{path}' is NOT NULL, but a value is null",
        hint="Fill or drop these rows before writing them.",
    )
