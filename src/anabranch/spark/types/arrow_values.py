"""Conversion of Arrow values between Spark's representation and a table's.

The two differ in the resolution of timestamps, in times of day (Spark has a number of milliseconds), and in
names and nullability inside nested types. Buffers are shared where nothing has to be computed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to `schema`, whose columns are in the same order.

    Raises `pyarrow.ArrowInvalid` if a value does not fit its new type.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [to_type(batch.column(i), field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_type(array: Any, target: pa.DataType, *, exact: bool = False) -> Any:
    """Convert values to type `target`.

    Args:
        array: the values.
        target: their new type.
        exact: refuse timestamps with more digits than `target` has; otherwise they lose them towards the past.

    Raises `pyarrow.ArrowInvalid` if a value does not fit.
    """
    source, kinds = array.type, pa.types
    if source.equals(target):
        return array
    if kinds.is_timestamp(source) and kinds.is_timestamp(target) and not exact:
        return _rescaled(array.view(pa.int64()), source.unit, target.unit).view(target)
    if kinds.is_time(source) and kinds.is_int32(target):
        return array.cast(pa.time32("ms")).view(target)
    if kinds.is_int32(source) and kinds.is_time32(target):
        return array.view(pa.time32("ms")).cast(target)
    if kinds.is_struct(source) and kinds.is_struct(target):
        return _struct(array, target, exact=exact)
    if kinds.is_list(source) and kinds.is_list(target):
        return _list(array, target, exact=exact)
    if kinds.is_map(source) and kinds.is_map(target):
        return _map(array, target, exact=exact)
    return array.cast(target)


def _rescaled(values: Any, source: str, target: str) -> Any:
    factor, divisor = _PER_SECOND[target], _PER_SECOND[source]
    if factor >= divisor:
        return pc.multiply_checked(values, factor // divisor) if factor > divisor else values
    divisor //= factor
    quotient = pc.divide(values, divisor)
    remainder = pc.subtract(values, pc.multiply(quotient, divisor))
    # Division cuts off towards zero; moments before 1970 must go the other way.
    return pc.subtract(quotient, pc.less(remainder, pa.scalar(0)).cast(pa.int64()))


def _struct(array: Any, target: Any, *, exact: bool) -> Any:
    children = [to_type(array.field(i), target.field(i).type, exact=exact) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _list(array: Any, target: Any, *, exact: bool) -> Any:
    child = to_type(array.values, target.value_type, exact=exact)
    return _with_child(array, target, child)


def _map(array: Any, target: Any, *, exact: bool) -> Any:
    keys = to_type(array.keys, target.key_type, exact=exact)
    items = to_type(array.items, target.item_type, exact=exact)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return _with_child(array, target, entries)


def _with_child(array: Any, target: Any, child: Any) -> Any:
    """Replace the entries of a list or map. A slice keeps its place: its offsets count all entries there are."""
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), buffers, array.null_count, array.offset, children=[child]
    )
