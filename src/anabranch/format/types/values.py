"""Physical values: the Python values that rows of partitions, keys and statistics are made of.

BOOLEAN bool; integers int; FLOAT and DOUBLE float; DECIMAL `decimal.Decimal` with the scale of its type; text str;
bytes bytes; DATE int days since 1970-01-01; TIME int milliseconds of the day; TIMESTAMP, with or without
local zone, int nanoseconds since the epoch, of any size; null None. No step goes through `datetime`, which
knows neither nanoseconds nor years beyond 9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.buffers import ArrowArray, ArrowColumn

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
