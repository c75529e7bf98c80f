"""Columns of any orderable type as 64-bit integers or bytes with the same order.

What works on these two, sorting and searching, works on every column. Null stays null.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]

_SHORT_DIGITS: Final = 18
"""Number of decimal digits that fit 64 bits."""
_ALL_BUT_SIGN: Final = np.int64(2**63 - 1)


def ordered(column: pa.ChunkedArray) -> pa.Array:
    """Convert the column to int64 or large_binary with the same order.

    Numbers, dates and times sort by value, false before true, text and bytes byte by byte, which for text is by
    code point. Zeros of either sign are equal, NaN is above all numbers.

    Args:
        column: of an atomic type of the table.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.cast(pa.large_binary()).combine_chunks()
    array: pa.Array = column.combine_chunks()
    if pa.types.is_floating(kind):
        return _with_nulls(_of_floats(array), array)
    if pa.types.is_decimal(kind):
        return _of_decimals(array)
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    return array.cast(pa.int64())


def search(bounds: pa.Array, values: pa.Array) -> Integers:
    """Return for each value the number of bounds below it; arbitrary for nulls.

    Args:
        bounds: values that `ordered` made, sorted, without nulls.
        values: some of the same column.
    """
    if pa.types.is_int64(bounds.type):
        return np.searchsorted(integers(bounds), integers(values))
    if len(bounds) == 0:
        return np.zeros(len(values), np.int64)
    found = _series(bounds).search_sorted(_series(values), side="left")
    return found.to_numpy().astype(np.int64)


def shortened(values: pa.Array, length: int) -> pa.Array:
    """Cut texts to at most so many bytes; integers stay as they are."""
    return values if pa.types.is_int64(values.type) else pc.binary_slice(values, 0, length)


def equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Compare values from `ordered` one by one; False where one is null."""
    same: npt.NDArray[np.bool_] = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return same


def is_null(values: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def integers(values: pa.Array) -> Integers:
    """Return the values of an int64 array; arbitrary where it is null."""
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), np.int64)
    return np.frombuffer(buffer, np.int64, len(values), values.offset * 8)


def _of_floats(array: pa.Array) -> Integers:
    """Return the bits of floats as integers with the same order, those of negative ones inverted."""
    values = array.cast(pa.float64()).fill_null(0).to_numpy()
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _ALL_BUT_SIGN)


def _of_decimals(array: pa.Array) -> pa.Array:
    words = np.frombuffer(array.buffers()[1] or b"", np.int64, 2 * len(array), array.offset * 16)
    words = words.reshape(-1, 2)
    if array.type.precision <= _SHORT_DIGITS:
        return _with_nulls(np.ascontiguousarray(words[:, 0]), array)
    # Most significant byte first, and with the sign turned around, bytes sort as the numbers do.
    turned = np.stack((words[:, 1].view(np.uint64) ^ np.uint64(1 << 63), words[:, 0].view(np.uint64)), axis=1)
    data = pa.py_buffer(turned.astype(">u8").tobytes())
    offsets = pa.py_buffer(np.arange(len(array) + 1, dtype=np.int64) * 16)
    values = pa.Array.from_buffers(pa.large_binary(), len(array), [None, offsets, data])
    return values if array.null_count == 0 else pc.if_else(array.is_valid(), values, None)


def _with_nulls(values: Integers, array: pa.Array) -> pa.Array:
    if array.null_count == 0:
        return pa.array(values)
    return pa.array(values, mask=is_null(array))


def _series(values: pa.Array) -> pl.Series:
    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    return series
