"""Values of rows as Python objects, or as text where Python has no equivalent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return each row as a dict. A date or time column with values outside of Python's years becomes text."""
    names = rows.schema.names
    return [dict(zip(names, row, strict=True)) for row in tuples_of(rows)] if names else []


def tuples_of(rows: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return each row as a tuple, with values as in `rows_of`; duplicate column names are allowed."""
    return list(zip(*(_values(column) for column in rows.columns), strict=True))


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # the years 1 to 9999; without pandas also nanoseconds
        return list(column.cast(_in_text(column.type)).to_pylist())


def _in_text(kind: Any) -> Any:
    """Return the type with text in place of dates and times, also nested ones."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_in_text(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_text(kind.key_type), _in_text(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_text(kind.value_type)))
    return kind
