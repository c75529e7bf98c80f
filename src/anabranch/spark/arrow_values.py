"""Arrow values between Spark's representation and a table's.

The two differ in the resolution of timestamps, in times of day (Spark has a number of milliseconds), and in
names and nullability inside nested types. Buffers are shared where nothing has to be computed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows under `schema`, whose columns stand in the same order.

    Raises `pyarrow.ArrowInvalid` if a value does not fit its new type.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [to_type(batch.column(i), field.type) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_type(array: Any, target: pa.DataType) -> Any:
    """The same values in type `target`; timestamps lose digits towards the past."""
    source = array.type
    if source.equals(target):
        return array
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return _rescaled(array.view(pa.int64()), source.unit, target.unit).view(target)
    if pa.types.is_time(source) and pa.types.is_int32(target):
        return to_type(array, pa.time32("ms")).view(target)
    if pa.types.is_int32(source) and pa.types.is_time32(target):
        return array.view(pa.time32("ms")).cast(target)
    if pa.types.is_time(source) and pa.types.is_time(target):
        return array.cast(target, safe=False)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(array, target)
    if _is_list(source) and pa.types.is_list(target):
        return _list(array, target)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _map(array, target)
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


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def _struct(array: Any, target: Any) -> Any:
    children = [to_type(array.field(i), target.field(i).type) for i in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _list(array: Any, target: Any) -> Any:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    validity, offsets = array.buffers()[:2]
    child = to_type(array.values, target.value_type)
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], array.null_count, array.offset, children=[child]
    )


def _map(array: Any, target: Any) -> Any:
    validity, offsets = array.buffers()[:2]
    keys, items = to_type(array.keys, target.key_type), to_type(array.items, target.item_type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], array.null_count, array.offset, children=[entries]
    )
