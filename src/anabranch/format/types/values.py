"""Physical values: the Python values that rows of partitions, keys and statistics are made of.

BOOLEAN bool; integers int; FLOAT and DOUBLE float; DECIMAL `decimal.Decimal` with the scale of its type; text str;
bytes bytes; DATE int days since 1970-01-01; TIME int milliseconds of the day; TIMESTAMP, with or without
local zone, int nanoseconds since the epoch, of any size; null None. No step goes through `datetime`, which
knows neither nanoseconds nor years beyond 9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type

NANOS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in a unit of Arrow's timestamps."""


def physical_values(column: ArrowColumn, data_type: t.DataType) -> list[Any]:
    """The values of an Arrow column, whose type need only fit `data_type` without loss.

    Timestamps keep what their unit holds, whatever the precision of `data_type`.

    Raises:
        SchemaError: the column does not fit, or the type is complex.
    """
    fitted: Any = fit_column(column, data_type)
    match data_type:
        case t.TimestampType() | t.LocalZonedTimestampType():
            factor = NANOS_PER_UNIT[fitted.type.unit]
            return [None if v is None else v * factor for v in fitted.cast(pa.int64()).to_pylist()]
        case t.DateType() | t.TimeType():
            integers: list[Any] = fitted.cast(pa.int32()).to_pylist()
            return integers
        case _:
            values: list[Any] = fitted.to_pylist()
            return values


def physical_value(scalar: Any, data_type: t.DataType) -> Any:
    """The value of one `pyarrow.Scalar`; see `physical_values`."""
    return physical_values(pa.repeat(scalar, 1), data_type)[0] if scalar.is_valid else None


def from_physical(values: Sequence[Any], data_type: t.DataType) -> ArrowArray:
    """An Arrow array of the type that `to_arrow_type` gives, holding `values`.

    Timestamps are rounded towards the past to the unit of that type.

    Raises:
        SchemaError: a value does not fit; TIMESTAMP of more than 6 digits ends in the years 1677 and 2262.
    """
    _check_atomic(data_type)
    target: Any = to_arrow_type(data_type)
    array: ArrowArray
    try:
        match data_type:
            case t.TimestampType() | t.LocalZonedTimestampType():
                factor = NANOS_PER_UNIT[target.unit]
                units = [None if v is None else v // factor for v in values]
                array = pa.array(units, pa.int64()).view(target)
            case t.DateType() | t.TimeType():
                array = pa.array(values, pa.int32()).view(target)
            case _:
                array = pa.array(values, target)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaError(f"values do not fit the type {data_type}: {error}") from error
    return array


def fit_column(column: ArrowColumn, data_type: t.DataType) -> ArrowColumn:
    """The column in the Arrow type of `data_type`; timestamps stay as they are.

    Raises:
        SchemaError: something would be lost, or the type is complex.
    """
    _check_atomic(data_type)
    target = to_arrow_type(data_type)
    if column.type == target or (pa.types.is_timestamp(column.type) and pa.types.is_timestamp(target)):
        return column
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        raise SchemaError(
            f"a column of Arrow type {column.type} does not fit {data_type}: {error}"
        ) from error


def _check_atomic(data_type: t.DataType) -> None:
    if not t.is_atomic(data_type):
        raise SchemaError(f"the type {data_type} has no place in partitions, keys and statistics")


ArrowArray: TypeAlias = "pa.Array[Any]"
ArrowColumn: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"

Bools = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


def validity(array: ArrowArray) -> Bools:
    """Return which elements are not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    bitmap = array.buffers()[0]
    if bitmap is None:  # of types without one, such as unions
        mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
        return mask
    # Arrow's to_numpy imports pandas where it is installed, which takes longer than planning a small table.
    octets: Octets = np.frombuffer(bitmap, np.uint8)
    bits = np.unpackbits(octets, count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)


def fixed_width(array: ArrowArray, dtype: str) -> npt.NDArray[Any]:
    """The values of an array of a fixed-width type, those of nulls undefined, as `dtype` of that width."""
    buffer: Any = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    # Not all of the buffer: it may be longer than its values by less than one.
    values: npt.NDArray[Any] = np.frombuffer(
        buffer, dtype, len(array), array.offset * np.dtype(dtype).itemsize
    )
    return values


def variable_width(column: ArrowColumn) -> tuple[Octets, Longs, Bools]:
    """Bytes, offsets (one more than elements, never falling) and validity of text or bytes."""
    array = _in_one_piece(column)
    if len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.bool_)
    is_large = array.type in {pa.large_binary(), pa.large_string()}
    _, offsets, data = array.buffers()
    width = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize)
    data = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return data, offsets.astype(np.int64), validity(array)


def gather(data: Octets, at: Longs, dtype: str) -> npt.NDArray[Any]:
    """Numbers of type `dtype` that begin at the bytes `at` of `data`, aligned or not; bounds are checked."""
    item = np.dtype(dtype)
    overlapping = np.ndarray((max(len(data) - item.itemsize + 1, 0),), item, buffer=data, strides=(1,))
    return overlapping[at].astype(item.newbyteorder("="), copy=False)


def array_of(arrow_type: pa.DataType, values: npt.NDArray[Any], present: Bools) -> ArrowArray:
    """An Arrow array over the memory of `values`, null where not `present`."""
    bitmap = None if present.all() else buffer_of(np.packbits(present, bitorder="little"))
    array: ArrowArray = pa.Array.from_buffers(arrow_type, len(present), [bitmap, buffer_of(values)])
    return array


def buffer_of(values: Any) -> pa.Buffer:
    """The memory of a NumPy array as an Arrow buffer."""
    contiguous: Any = np.ascontiguousarray(values)
    return pa.py_buffer(contiguous)


def _in_one_piece(column: ArrowColumn) -> Any:
    """One array whose layout has offsets."""
    array: Any = column
    if isinstance(column, pa.ChunkedArray):
        # Small offsets might not span all chunks together.
        array = column.chunk(0) if column.num_chunks == 1 else column.cast(pa.large_binary()).combine_chunks()
    has_offsets = array.type in {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}
    return array if has_offsets else array.cast(pa.large_binary())
