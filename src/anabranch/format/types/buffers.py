"""Arrow arrays as the NumPy arrays they are made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    values: npt.NDArray[Any] = np.frombuffer(buffer, dtype)
    return values[array.offset : array.offset + len(array)]


def variable_width(column: ArrowColumn) -> tuple[Octets, Longs, Bools]:
    """Bytes, offsets (one more than elements, never falling) and validity of text or bytes."""
    array = _in_one_piece(column)
    if len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.bool_)
    is_large = array.type in {pa.large_binary(), pa.large_string()}
    _, offsets, data = array.buffers()
    offsets = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
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
