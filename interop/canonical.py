"""Rows in one JSON form, whoever read them.

The form is that of the fixtures in `tests/data/paimon` (see the README there): every value is exact, rows
are sorted by their JSON text, so two readers agree if and only if their rows are equal. This module runs
in the peers' interpreters too: it needs nothing but pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

EPOCH = date(1970, 1, 1)
NANOS_PER_DAY = 86_400 * 10**9


def rows_of(table: Any) -> list[list[Any]]:
    """Canonical rows of a `pyarrow.Table`."""
    columns = [values_of(column.combine_chunks()) for column in table.columns]
    return sorted_rows(list(row) for row in zip(*columns, strict=True)) if columns else []


def table_of(rows: Iterable[Sequence[Any]], schema: Any) -> Any:
    """A `pyarrow.Table` of that schema from canonical rows; columns in the order of the schema."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array([parse(value, field.type) for value in column], field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def sorted_rows(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """Rows in the order of their JSON text."""
    return sorted(rows, key=text)


def text(value: Any) -> str:
    """The JSON text that orders rows and map entries."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def digest(columns: Sequence[str], rows: Iterable[list[Any]]) -> str:
    """SHA-256 of column names and sorted rows."""
    return hashlib.sha256("\n".join([text(list(columns)), *map(text, rows)]).encode()).hexdigest()


def values_of(array: Any) -> list[Any]:
    """Canonical values of a `pyarrow.Array`, nulls as None."""
    import pyarrow as pa
    from pyarrow import types

    t = array.type
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_of(chunk)]
    if types.is_dictionary(t):
        return values_of(array.dictionary_decode())
    if types.is_struct(t):
        return _structs(array)
    if types.is_map(t):
        return _maps(array)
    if types.is_list(t) or types.is_large_list(t):
        return _lists(array)
    if types.is_timestamp(t):
        per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[t.unit]
        zone = "Z" if t.tz else ""
        return [None if v is None else timestamp(v * per_unit) + zone for v in _integers(array)]
    if types.is_date32(t):
        return [None if v is None else day(v) for v in _integers(array)]
    if types.is_time32(t):
        per_unit = {"s": 10**9, "ms": 10**6}[t.unit]
        return [None if v is None else time(v * per_unit) for v in _integers(array)]
    if types.is_decimal(t):
        return [None if v is None else decimal(v, t.scale) for v in array.to_pylist()]
    if types.is_floating(t):
        return [None if v is None else number(v) for v in array.to_pylist()]
    if types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t):
        return [None if v is None else v.hex() for v in array.to_pylist()]
    return list(array.to_pylist())


def parse(value: Any, arrow_type: Any) -> Any:
    """What `pyarrow.array` takes for a canonical value of that Arrow type."""
    from pyarrow import types

    t = arrow_type
    if value is None:
        return None
    if types.is_struct(t):
        return {f.name: parse(value[f.name], f.type) for f in t}
    if types.is_map(t):
        return [(parse(k, t.key_type), parse(v, t.item_type)) for k, v in value]
    if types.is_list(t) or types.is_large_list(t):
        return [parse(v, t.value_type) for v in value]
    if types.is_timestamp(t):
        per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[t.unit]
        return timestamp_nanos(value) // per_unit
    if types.is_date32(t):
        return day_number(value)
    if types.is_time32(t):
        return time_nanos(value) // 10**6
    if types.is_decimal(t):
        return Decimal(value)
    if types.is_floating(t):
        return float(value)
    if types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t):
        return bytes.fromhex(value)
    return value


def number(value: float) -> float | str:
    """A FLOAT (widened) or DOUBLE."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def decimal(value: Decimal, scale: int) -> str:
    """All digits of the scale."""
    return f"{value:.{scale}f}"


def day(number_of_days: int) -> str:
    """A DATE from days since the epoch."""
    return (EPOCH + timedelta(days=number_of_days)).isoformat()


def day_number(text_: str) -> int:
    """Days since the epoch."""
    return (date.fromisoformat(text_) - EPOCH).days


def time(nanos: int) -> str:
    """A TIME from nanoseconds of the day."""
    seconds, fraction = divmod(nanos, 10**9)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"


def time_nanos(text_: str) -> int:
    """Nanoseconds of the day."""
    clock, _, fraction = text_.partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(fraction)


def timestamp(nanos: int) -> str:
    """A TIMESTAMP from nanoseconds since the epoch."""
    days, rest = divmod(nanos, NANOS_PER_DAY)
    return f"{day(days)}T{time(rest)}"


def timestamp_nanos(text_: str) -> int:
    """Nanoseconds since the epoch, of either kind of timestamp."""
    on, _, at = text_.removesuffix("Z").partition("T")
    return day_number(on) * NANOS_PER_DAY + time_nanos(at)


def _integers(array: Any) -> list[int | None]:
    import pyarrow as pa

    wide = array.type.bit_width == 64
    return list(array.cast(pa.int64() if wide else pa.int32()).to_pylist())


def _structs(array: Any) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [values_of(child) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, values, strict=True)) if ok else None
        for ok, values in zip(valid, zip(*columns, strict=True), strict=True)
    ]


def _lists(array: Any) -> list[Any]:
    values = iter(values_of(array.flatten()))
    lengths = array.value_lengths().to_pylist()
    return [None if n is None else [next(values) for _ in range(n)] for n in lengths]


def _maps(array: Any) -> list[Any]:
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    keys, items = values_of(array.keys), values_of(array.items)
    entries = [[k, v] for k, v in zip(keys, items, strict=True)]
    return [
        sorted(entries[start:end], key=text) if ok else None
        for ok, start, end in zip(valid, offsets, offsets[1:], strict=False)
    ]
