"""Conversion of Python values to Arrow arrays, as exactly as their types allow.

PyArrow guesses a type from the values and then fits them to it: of a date and a time it makes two dates, of
clocks of different zones one. So it is told which values a column may have, and others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type

_WHOLE: Final = (int, np.integer)
_NUMBER: Final = (*_WHOLE, float, np.floating)
_ACCEPTED: Final[dict[type[t.DataType], tuple[type, ...]]] = {
    t.BooleanType: (bool, np.bool_),
    t.TinyIntType: _WHOLE,
    t.SmallIntType: _WHOLE,
    t.IntType: _WHOLE,
    t.BigIntType: _WHOLE,
    t.FloatType: _NUMBER,
    t.DoubleType: _NUMBER,
    t.DecimalType: (Decimal, *_WHOLE),
    t.CharType: (str,),
    t.VarCharType: (str,),
    t.BinaryType: (bytes, bytearray, memoryview),
    t.VarBinaryType: (bytes, bytearray, memoryview),
    t.DateType: (date,),
    t.TimeType: (time,),
    t.TimestampType: (datetime, np.datetime64),
    t.LocalZonedTimestampType: (datetime,),
}


_PLAIN: Final[dict[type[t.DataType], frozenset[type]]] = {
    kind: frozenset((*accepted, NoneType))
    for kind, accepted in _ACCEPTED.items()
    if not {date, time, datetime} & set(accepted)
}
"""Types of which every value is accepted, so that values need not be looked at one by one."""


@dataclass(frozen=True)
class Form:
    """How values that are not nested are written, where that is not as Python's own."""

    atoms: Callable[[Sequence[Any], t.DataType, str], pa.Array]
    """An array of values, their type and the path of their column. Raises `SchemaError`."""
    keys: Callable[[Sequence[Any], t.DataType, str], pa.Array]
    """The same for keys of maps."""

    def of_keys(self) -> Form:
        """The form of what is inside of keys."""
        return Form(self.keys, self.keys)


def rows_to_batch(rows: Sequence[Mapping[str, Any]], fields: Sequence[t.Field]) -> pa.RecordBatch:
    """Convert dictionaries to a batch of the columns they have; missing keys become null.

    Keys that are no columns become columns of nulls, for the caller to complain of. Raises `SchemaError`.
    """
    for row in rows:
        if not isinstance(row, Mapping):
            raise SchemaError(f"expected a dictionary for each row, found {type(row).__qualname__}")
    keys = dict.fromkeys(key for row in rows for key in row)
    if not keys:  # arrays would tell how many rows there are
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    by_name = {field.name: field for field in fields}
    columns = [
        to_array([row.get(key) for row in rows], by_name[key].type, key)
        if key in by_name
        else pa.nulls(len(rows))
        for key in keys
    ]
    return pa.RecordBatch.from_arrays(columns, [str(key) for key in keys])


def to_array(values: Sequence[Any], data_type: t.DataType, path: str, form: Form | None = None) -> pa.Array:
    """Values of a column as an array, of its Arrow type or one that still has more digits.

    Args:
        values: what Python has.
        data_type: the type of the column.
        path: the column's name, with the names around it if it is nested, for messages.
        form: how values that are not nested are written; as Python's own unless given.

    Raises:
        SchemaError: a value is of another type than the column's; names the column.
    """
    form = form or _PYTHON
    match data_type:
        case t.RowType(fields=fields):
            return _rows(values, fields, path, form)
        case t.ArrayType(element=element):
            lists = _collected(values, path, (list, tuple, np.ndarray))
            elements = [item for found in lists if found is not None for item in found]
            array = to_array(elements, element, f"{path}.element", form)
            return pa.ListArray.from_arrays(_offsets(lists), array, mask=_mask(lists))
        case t.MapType(key=key, value=value):
            return _maps(values, key, value, path, form)
        case t.MultisetType(element=element):
            return _maps(values, element, t.IntType(nullable=False), path, form)
        case _:
            return form.atoms(values, data_type, path)


def atoms_to_array(values: Sequence[Any], data_type: t.DataType, path: str) -> pa.Array:
    """Python's own values of a type that is not nested as an array. Raises `SchemaError`."""
    accepted = _ACCEPTED[type(data_type)]
    if not set(map(type, values)) <= _PLAIN.get(type(data_type), frozenset()):
        for value in values:
            if value is not None and not _is_accepted(value, accepted, data_type):
                raise _refusal(value, data_type, path)
    target = to_arrow_type(data_type)
    if pa.types.is_timestamp(target):
        # Python's times fit microseconds without loss; those of NumPy and pandas have more digits.
        fine = any(isinstance(v, np.datetime64) or getattr(v, "nanosecond", 0) for v in values)
        target = pa.timestamp("ns" if fine else "us", target.tz)
    elif isinstance(data_type, t.TimeType):
        target = pa.time64("us")
    try:
        array = pa.array(values, target)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"column '{path}' is {data_type}, and a value does not fit: {error}") from error
    if pa.types.is_floating(target):
        _check_finite(array, values, data_type, path)
    return array


_PYTHON: Final = Form(atoms_to_array, atoms_to_array)


def _check_finite(array: pa.Array, values: Sequence[Any], data_type: t.DataType, path: str) -> None:
    """Refuse numbers that are too large for a column, of which Arrow makes infinite ones."""
    for position in pc.indices_nonzero(pc.is_inf(array)).to_pylist():
        value = values[position]
        if not np.isinf(value):
            raise SchemaError(
                f"column '{path}' is {data_type}, and {value!r} is too large for it",
                hint="Widen the column, or write float('inf') where an infinite number is meant.",
            )


def _is_accepted(value: Any, accepted: tuple[type, ...], data_type: t.DataType) -> bool:
    if not isinstance(value, accepted):
        return False
    zone = getattr(value, "tzinfo", None)
    match data_type:
        case t.BooleanType():
            return True
        case t.DateType():
            return not isinstance(value, datetime)
        case t.TimestampType() | t.TimeType():
            return zone is None
        case t.LocalZonedTimestampType():
            return zone is not None
        case _:
            return not isinstance(value, bool)


def _refusal(value: Any, data_type: t.DataType, path: str) -> SchemaError:
    hint = None
    if isinstance(value, datetime) and isinstance(data_type, t.LocalZonedTimestampType):
        hint = "Say in which zone the time is: value.replace(tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))."
    elif isinstance(value, datetime) and isinstance(data_type, t.TimestampType):
        hint = "Drop the zone on purpose: value.astimezone(zone).replace(tzinfo=None)."
    elif isinstance(value, UUID):
        hint = "Give its text, str(value), or its 16 bytes, value.bytes."
    return SchemaError(f"column '{path}' is {data_type}, but a value is {value!r}", hint=hint)


def _rows(values: Sequence[Any], fields: Sequence[t.Field], path: str, form: Form) -> pa.Array:
    rows = _collected(values, path, (Mapping,))
    present = [row if row is not None else {} for row in rows]
    by_name = {field.name: field for field in fields}
    keys = dict.fromkeys(key for row in present for key in row) or by_name
    children = [
        to_array([row.get(key) for row in present], by_name[key].type, f"{path}.{key}", form)
        if key in by_name
        else pa.nulls(len(present))
        for key in keys
    ]
    return pa.StructArray.from_arrays(children, [str(key) for key in keys], mask=_mask(rows))


def _maps(values: Sequence[Any], key: t.DataType, value: t.DataType, path: str, form: Form) -> pa.Array:
    maps = [
        list(found.items()) if isinstance(found, Mapping) else found
        for found in _collected(values, path, (Mapping, list, tuple))
    ]
    pairs = [pair for found in maps if found is not None for pair in found]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise SchemaError(f"column '{path}' is a map, expected pairs of key and value, found {pair!r}")
    keys = to_array([k for k, _ in pairs], key, f"{path}.key", form.of_keys())
    if keys.null_count:
        raise SchemaError(f"column '{path}' is a map, and a key is null")
    items = to_array([v for _, v in pairs], value, f"{path}.value", form)
    return pa.MapArray.from_arrays(_offsets(maps), keys, items, mask=_mask(maps))


def _collected(values: Sequence[Any], path: str, kinds: tuple[type, ...]) -> list[Any]:
    for value in values:
        if value is not None and not isinstance(value, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise SchemaError(f"column '{path}' expects {expected}, found {value!r}")
    return list(values)


def _offsets(collections: Sequence[Any]) -> pa.Array:
    lengths = [0, *(0 if found is None else len(found) for found in collections)]
    return pa.array(np.cumsum(lengths).astype(np.int32))


def _mask(values: Sequence[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_())
