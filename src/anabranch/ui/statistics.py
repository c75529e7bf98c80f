"""Statistics of a table's columns, from those that its files carry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from anabranch import Table
from anabranch.system_tables import View, read_system_table
from anabranch.ui.cells import cell
from anabranch.verbs.legible import shortened_texts

_MOST_FILES = 2_000
"""Files whose statistics are looked at."""
_COLUMNS = ("null_value_counts", "min_value_stats", "max_value_stats")
_NUMERIC = ("DECIMAL",)
"""Types whose statistics are text, but compare as numbers."""


def column_statistics(view: Table) -> dict[str, Any]:
    """Return nulls, least and greatest value of each column; a value is None where a file does not say it.

    Of long texts files keep only the beginning: such a bound is no value of the column, and is said to be shortened.
    """
    at = View(view.context, view.snapshot, view.schema, pinned=view.moment is not None)
    files = read_system_table(at, "files", ["record_count", *_COLUMNS])
    looked_at = files.slice(0, _MOST_FILES)
    parsed = [[json.loads(text or "{}") for text in looked_at[name].to_pylist()] for name in _COLUMNS]
    counts = looked_at["record_count"].to_pylist()
    columns, kept = [], shortened_texts(view)
    for field in view.schema.fields:
        nulls, least, greatest = ([one.get(field.name) for one in side] for side in parsed)
        # A file that says no bound may hold anything, unless it holds nothing but nulls.
        is_said = [
            [
                bound is not None or count == rows
                for bound, count, rows in zip(side, nulls, counts, strict=True)
            ]
            for side in (least, greatest)
        ]
        is_number = field.type.spelling.startswith(_NUMERIC)
        low, high = (
            _extreme(side, is_number=is_number, greatest=is_greatest) if all(said) else None
            for side, said, is_greatest in ((least, is_said[0], False), (greatest, is_said[1], True))
        )
        length = kept.get(field.name)
        columns.append(
            {
                "name": field.name,
                "type": field.type.spelling,
                "nulls": sum(nulls) if nulls and all(n is not None for n in nulls) else None,
                "min": cell(low),
                "max": cell(high),
                "shortened": {"min": _is_shortened(low, length), "max": _is_shortened(high, length)},
            }
        )
    return {
        "files": files.num_rows,
        "looked_at": looked_at.num_rows,
        "rows": sum(files["record_count"].to_pylist()),
        "columns": columns,
    }


def _is_shortened(bound: Any, length: int | None) -> bool:
    """Return whether a bound may be only as much of a text as files keep; a text of exactly that length is not told apart."""
    return length is not None and isinstance(bound, str) and len(bound) >= length


def _extreme(values: Iterable[Any], *, is_number: bool, greatest: bool) -> Any:
    """Return the least or greatest of the known values; None if they do not compare."""
    known = [value for value in values if value is not None]
    pick = max if greatest else min
    try:
        return pick(known, key=Decimal if is_number else None, default=None)
    except (TypeError, InvalidOperation):
        return None
