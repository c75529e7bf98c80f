"""Decomposition of lists, maps and structs, and reassembly with other children.

Arrays may be slices, with children larger than the slice, and may have values hidden below nulls; what is
put together keeps the rows, their order and their nulls, and never looks outside of the slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def list_values(array: pa.Array) -> pa.Array:
    """Return the elements of all rows of a list array, including those hidden below nulls."""
    start, stop = _bounds(array)
    return array.values.slice(start, stop - start)


def map_entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and values of all rows of a map array."""
    start, stop = _bounds(array)
    return array.keys.slice(start, stop - start), array.items.slice(start, stop - start)


def with_values(array: pa.Array, values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the list array with other elements, as many as `list_values` gave."""
    return pa.ListArray.from_arrays(_offsets(array), values, type=data_type, mask=_mask(array))


def with_entries(array: pa.Array, keys: pa.Array, items: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the map array with other keys and values, as many as `map_entries` gave."""
    return pa.MapArray.from_arrays(_offsets(array), keys, items, type=data_type, mask=_mask(array))


def with_children(array: pa.Array, children: Sequence[pa.Array], data_type: pa.DataType) -> pa.Array:
    """Return the struct array with other members; each child is as long as `array`."""
    return pa.StructArray.from_arrays(children, fields=list(data_type), mask=_mask(array))


def to_map(array: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Convert a list array to a map array with these keys and values of all rows."""
    return pa.MapArray.from_arrays(_offsets(array), keys, items, mask=_mask(array))


def to_list(array: pa.Array) -> pa.Array:
    """Convert any of Arrow's kinds of lists to a list array, with nothing below its nulls."""
    # Not by a cast: that of list views leaves out the last offset.
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), array.flatten(), mask=_mask(array))


def without_hidden(array: pa.Array) -> pa.Array:
    """Return the list or map array with nothing below its nulls."""
    if array.null_count == 0:
        return array
    lengths = np.diff(array.offsets.to_numpy())
    if not lengths[array.is_null().to_numpy(zero_copy_only=False)].any():
        return array
    return array.take(pa.array(np.arange(len(array))))


def without_nulls(array: pa.Array) -> pa.Array:
    """Replace nulls by arbitrary values, for callers that ignore these."""
    kinds = pa.types
    if kinds.is_struct(array.type):
        children = [array.field(i) for i in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(array.type))
    if kinds.is_list(array.type):
        return pa.ListArray.from_arrays(_offsets(array), list_values(array), type=array.type)
    if kinds.is_map(array.type):
        return pa.MapArray.from_arrays(_offsets(array), *map_entries(array), type=array.type)
    _, *data = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [None, *data], 0, array.offset)


def _bounds(array: pa.Array) -> tuple[int, int]:
    if len(array) == 0:
        return 0, 0
    offsets = array.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _offsets(array: pa.Array) -> pa.Array:
    if len(array) == 0:
        return pa.array([0], pa.int32())
    offsets = array.offsets.to_numpy()
    return pa.array((offsets - offsets[0]).astype(np.int32, copy=False))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
