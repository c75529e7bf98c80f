"""Avro encoding of whole columns: the bytes fastavro writes row by row, made by column.

Each function turns a column into a column of the encoded values; joined side by side they are the rows. The
results are large_binary arrays, or scalars where all rows have the same encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = Any
"""A pyarrow array. The stubs of pyarrow describe too little of arrays and kernels to check anything with."""

Encoded: TypeAlias = Any
"""A pyarrow large_binary array of one encoded value per row, null where the column is null, or a scalar."""

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def constant(encoded: bytes) -> Encoded:
    """The same bytes in every row."""
    return pa.scalar(encoded, pa.large_binary())


def encode_long(column: Array) -> Encoded:
    """Integers of any width, as int or long."""
    values = column.cast(pa.int64()).fill_null(0).to_numpy()
    data, offsets = _varints(values)
    validity = column.is_valid() if column.null_count else None
    return _binary(data, offsets, validity)


def encode_bytes(column: Array) -> Encoded:
    """Strings or binaries, as string or bytes."""
    values = column.cast(pa.large_binary())
    return _concat([encode_long(pc.binary_length(values)), values])


def encode_array(column: Array, encode_item: Callable[[Array], Encoded]) -> Encoded:
    """Lists, as arrays of one block."""
    lengths = pc.list_value_length(column)
    starts = np.zeros(len(column) + 1, np.int64)
    np.cumsum(lengths.fill_null(0).to_numpy(), out=starts[1:])
    data, offsets = _parts(encode_item(column.flatten()))
    items = _binary(data, offsets[starts])
    counts = pc.if_else(pc.equal(lengths, pa.scalar(0)), constant(b""), encode_long(lengths))
    return _concat([counts, items, constant(b"\0")])


def encode_optional(encoded: Encoded) -> Encoded:
    """A column of a union of null and its type, null first."""
    return pc.coalesce(_concat([constant(b"\2"), encoded]), constant(b"\0"))


def join_rows(columns: Sequence[Encoded]) -> bytes:
    """The rows, one after the other. At least one column is no scalar."""
    data, offsets = _parts(_concat(columns))
    return data[offsets[0] : offsets[-1]].tobytes()


def _concat(columns: Sequence[Encoded]) -> Encoded:
    return pc.binary_join_element_wise(*columns, constant(b""))


def _varints(values: Numbers) -> tuple[Numbers, Numbers]:
    """Zigzag numbers of 7 bits a byte, low bits first, the high bit set on all but the last byte."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    width = 1
    while width < 10 and (longer := zigzag >> np.uint64(7 * width) > 0).any():
        sizes += longer
        width += 1
    place = np.arange(width)
    data = (zigzag[:, None] >> (7 * place).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    data |= np.where(place < sizes[:, None] - 1, np.uint8(0x80), np.uint8(0))
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return data[place < sizes[:, None]], offsets


def _binary(data: Numbers, offsets: Numbers, validity: Array | None = None) -> Encoded:
    # A boolean array stores its bits as a validity bitmap does.
    bitmap = None if validity is None else validity.buffers()[1]
    buffers = [bitmap, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _parts(array: Array) -> tuple[Numbers, Numbers]:
    """The bytes of all values and where each starts, the end of the last one included."""
    if len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    window = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), window
