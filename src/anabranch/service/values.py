"""Values of rows as Python has them, also where Python has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


class First:
    """The first rows of batches; whether there are more is known when they were iterated over."""

    def __init__(self, batches: Iterable[pa.RecordBatch], most: int | None) -> None:
        self._batches, self._left = batches, most
        self.is_cut = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._left is None:
                yield batch
                continue
            self.is_cut = self.is_cut or batch.num_rows > self._left
            if self._left:
                yield batch.slice(0, self._left)
            self._left -= min(self._left, batch.num_rows)


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Each row as a dict. Dates and times of a column in which one is outside of Python's years are text."""
    names = rows.schema.names
    return [dict(zip(names, row, strict=True)) for row in tuples_of(rows)] if names else []


def tuples_of(rows: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Each row as a tuple, as `rows_of` has its values; columns may be called alike."""
    return list(zip(*(_values(column) for column in rows.columns), strict=True))


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # the years 1 to 9999; without pandas also nanoseconds
        return list(column.cast(_in_text(column.type)).to_pylist())


def _in_text(kind: Any) -> Any:
    """The type with text in place of dates and times, inside of others too."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_in_text(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_text(kind.key_type), _in_text(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_text(kind.value_type)))
    return kind
