"""Conversion of columns read from file formats to the Arrow types of the file's schema.

Formats and their writers differ: ORC knows one timestamp, Avro has no short integers, INT96 no zone, some
writers store text without saying so. What a column is, is what the schema of the file says.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow import nested
from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.values import NANOS_PER_UNIT, array_of, fixed_width, validity

_COUNT: Final = t.IntType(nullable=False)
"""Type of a multiset's count per element."""


def restored(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """Convert the array to exactly the Arrow type of `data_type`, the column's type in the file's schema.

    Members of rows are found by name; those the file lacks are null.

    Raises:
        TypeError: the array is of a kind that does not hold such values.
        pa.ArrowException: a value does not fit.
        OverflowError: a timestamp does not fit 64 bits.
    """
    target = to_arrow_type(data_type)
    if array.type.equals(target):
        return array
    match data_type:
        case t.RowType(fields=fields) if pa.types.is_struct(array.type):
            return nested.with_children(array, [_member(array, f) for f in fields], target)
        case t.ArrayType(element=element) if _is_list(array.type):
            array = (
                array.cast(pa.list_(array.type.value_type)) if pa.types.is_large_list(array.type) else array
            )
            return nested.with_values(array, restored(nested.list_values(array), element), target)
        case t.MapType(key=key, value=value) if pa.types.is_map(array.type):
            return _restored_map(array, key, value, target)
        case t.MultisetType(element=element) if pa.types.is_map(array.type):
            return _restored_map(array, element, _COUNT, target)
        case _:
            return _restored_atomic(array, target)


def _member(rows: pa.Array, member: t.Field) -> pa.Array:
    position = rows.type.get_field_index(member.name)
    if position < 0:
        return pa.nulls(len(rows), to_arrow_type(member.type))
    return restored(rows.field(position), member.type)


def _restored_map(array: pa.Array, key: t.DataType, value: t.DataType, target: pa.DataType) -> pa.Array:
    keys, items = nested.map_entries(array)
    return nested.with_entries(array, restored(keys, key), restored(items, value), target)


def _restored_atomic(array: pa.Array, target: pa.DataType) -> pa.Array:
    kinds = pa.types
    found = array.type
    if kinds.is_timestamp(target) and found == INT96:
        return from_int96(array, target.unit).view(target)
    if kinds.is_timestamp(target) and kinds.is_timestamp(found):
        return timestamps(array, target)
    alike = (
        (kinds.is_integer(found) and kinds.is_integer(target))
        or (found == pa.int32() and (kinds.is_date(target) or kinds.is_time(target)))
        or (kinds.is_time(found) and kinds.is_time(target))
        or (kinds.is_decimal(found) and kinds.is_decimal(target))
        or (_is_bytes(found) and _is_bytes(target))
        or kinds.is_null(found)
    )
    if not alike:
        raise TypeError(f"no {target} values")
    return array.cast(target)


def timestamps(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert timestamps to another unit, rounded down; the zone only affects display.

    Raises:
        OverflowError: a timestamp does not fit 64 bits.
    """
    found, wanted = NANOS_PER_UNIT[array.type.unit], NANOS_PER_UNIT[target.unit]
    if found > wanted:
        try:
            return array.cast(pa.timestamp(target.unit, array.type.tz)).view(target)
        except pa.ArrowInvalid as error:
            raise OverflowError(f"a timestamp that 64 bits of {target.unit} cannot express") from error
    units = fixed_width(array, "<i8")
    if found < wanted:
        units = units // (wanted // found)
    return array_of(target, units, validity(array))


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found))


def _is_bytes(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        return _is_bytes(found.value_type)
    plain = found in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return plain or bool(pa.types.is_fixed_size_binary(found))


# TIMESTAMP(7) to TIMESTAMP(9) as Parquet's INT96, the only form that every Paimon reader and Spark decode.
#
# PyArrow writes either all or none of a file's timestamps as INT96, and those before 1970 with a negative time
# of day; it reads them with silent overflow outside of the years 1677 to 2262. So the 12 bytes (nanosecond of
# the day, then Julian day, little-endian) are made and taken apart here. To PyArrow they are a fixed-length
# column, whose pages are the same bytes; only the footer names the type (see `parquet_footer`).

INT96: Final = pa.binary(12)

_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_DAY: Final = _SECONDS_PER_DAY * 1_000_000_000
_JULIAN_EPOCH: Final = 2_440_588
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def to_int96(array: pa.Array) -> pa.Array:
    """Encode nanosecond timestamps as INT96 values."""
    nanos = fixed_width(array, "<i8")
    days = nanos // _NANOS_PER_DAY
    stored = np.empty(len(array), _LAYOUT)
    stored["nanos"] = nanos - days * _NANOS_PER_DAY
    stored["day"] = days + _JULIAN_EPOCH
    return array_of(INT96, stored, validity(array))


def from_int96(array: pa.Array, unit: str) -> pa.Array:
    """Decode INT96 values to timestamps without a zone, rounded down where digits are lost.

    The time of day may be negative, as some writers have it before 1970.

    Raises:
        OverflowError: a value is out of the range of 64 bits of that unit.
    """
    stored = fixed_width(array, f"V{INT96.byte_width}").view(_LAYOUT)
    present = validity(array)
    per_unit = NANOS_PER_UNIT[unit]
    per_second = NANOS_PER_UNIT["s"] // per_unit
    days = stored["day"].astype(np.int64) - _JULIAN_EPOCH
    seconds, nanos = np.divmod(stored["nanos"], NANOS_PER_UNIT["s"])
    seconds += days * _SECONDS_PER_DAY
    units = seconds * per_second + nanos // per_unit
    if (units // per_second != seconds)[present].any():
        raise OverflowError(f"a timestamp that 64 bits of {unit} cannot express")
    return array_of(pa.timestamp(unit), units, present)


# Conversion of rows to the form that the Parquet writer takes.
#
# Two things differ from what rows are in memory. Timestamps of nanoseconds become `INT96`. And what is NOT NULL
# inside of something that may be null has no nulls of its own, where Arrow often has some below the outer ones.


def storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `INT96` instead of nanosecond timestamps, at any depth."""
    return pa.schema([_storable_field(field) for field in schema])


def storable(table: pa.Table) -> pa.Table:
    """Convert a table to the types of its `storable_schema`; unaffected columns stay as they are.

    Raises:
        SchemaError: a value is null that is NOT NULL.
    """
    # Columns are asked for one by one: there may be thousands, and each takes longer to have than its type.
    for position, field in enumerate(table.schema):
        if not field.nullable and table.column(position).null_count:
            raise _null(field.name)
    if not any(map(_is_special, table.schema.types)):
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
        children = [_storable_member(array, i, f"{path}.{field.name}") for i, field in enumerate(found)]
        return nested.with_children(array, children, target)
    return to_int96(array)


def _inner(values: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if values.null_count and not field.nullable:
        raise _null(path)
    return _storable(values, path)


def _storable_member(rows: pa.Array, position: int, path: str) -> pa.Array:
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
