"""TIMESTAMP(7) to TIMESTAMP(9) as Parquet's INT96, the only form that every Paimon reader and Spark decode.

PyArrow writes either all or none of a file's timestamps as INT96, and those before 1970 with a negative
time of day. So we compute the 12 bytes (nanosecond of day, then Julian day, little-endian), have them
written as a fixed-length column, whose pages are the same bytes, and name the column INT96 in the footer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.arrow import nested
from anabranch.spec.buffers import array_of, fixed_width, validity
from anabranch.spec.values import NANOS_PER_UNIT

INT96: Final = pa.binary(12)

_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_DAY: Final = _SECONDS_PER_DAY * 1_000_000_000
_JULIAN_EPOCH: Final = 2_440_588
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """The type with `INT96` in the place of nanosecond timestamps, at any depth."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return INT96
    if pa.types.is_list(data_type):
        return pa.list_(_stored_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_stored_field(data_type.key_field), _stored_field(data_type.item_field))
    if pa.types.is_struct(data_type):
        return pa.struct([_stored_field(field) for field in data_type])
    return data_type


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema under which columns are handed to the Parquet writer."""
    return pa.schema([_stored_field(field) for field in schema])


def to_stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the types of its `stored_schema`; untouched where it has no nanoseconds."""
    columns = [
        column
        if field.type == column.type
        else pa.chunked_array([_stored(c) for c in column.chunks], field.type)
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def from_stored(array: pa.Array, unit: str) -> pa.Array:
    """INT96 values as timestamps without a zone, towards the past where digits are lost.

    The time of day may be negative, as some writers have it before 1970.

    Raises:
        OverflowError: a value is out of the range of 64 bits of that unit.
    """
    stored = fixed_width(array, f"V{INT96.byte_width}").view(_LAYOUT)
    present = validity(array)
    per_unit = NANOS_PER_UNIT[unit]
    days = stored["day"].astype(np.int64) - _JULIAN_EPOCH
    seconds, nanos = np.divmod(stored["nanos"], NANOS_PER_UNIT["s"])
    seconds += days * _SECONDS_PER_DAY
    units = seconds * (NANOS_PER_UNIT["s"] // per_unit) + nanos // per_unit
    if (units // (NANOS_PER_UNIT["s"] // per_unit) != seconds)[present].any():
        raise OverflowError(f"a timestamp that 64 bits of {unit} cannot express")
    return array_of(pa.timestamp(unit), units, present)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


def _stored(array: pa.Array) -> pa.Array:
    target = stored_type(array.type)
    if target == array.type:
        return array
    if target == INT96:
        return _int96(array)
    if pa.types.is_list(target):
        return nested.with_values(array, _stored(nested.list_values(array)), target)
    if pa.types.is_map(target):
        keys, items = nested.map_entries(array)
        return nested.with_entries(array, _stored(keys), _stored(items), target)
    return nested.with_children(
        array, [_stored(array.field(i)) for i in range(array.type.num_fields)], target
    )


def _int96(array: pa.Array) -> pa.Array:
    nanos = fixed_width(array, "<i8")
    days = nanos // _NANOS_PER_DAY
    stored = np.empty(len(array), _LAYOUT)
    stored["nanos"] = nanos - days * _NANOS_PER_DAY
    stored["day"] = days + _JULIAN_EPOCH
    return array_of(INT96, stored, validity(array))
