"""Rows that differ, put side by side: by the column whose values name a row on either side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from anabranch.frames.row_values import tuples_of
from anabranch.ui.cells import cell

_CHANGE = "_change"
_PLACE = "place"

Row = Sequence[str | None]
Pair = tuple[int | None, int | None]


def side_by_side(changes: pa.Table, most: int) -> dict[str, Any]:
    """Arrange removed and added rows in pairs: first the changed ones, then those of one side only.

    Args:
        changes: rows that differ, with ``_change``.
        most: pairs to return.
    """
    marks = changes[_CHANGE].to_pylist()
    rows = changes.drop_columns([_CHANGE])
    removed = [place for place, mark in enumerate(marks) if mark == "delete"]
    added = [place for place, mark in enumerate(marks) if mark == "insert"]
    key = _key(rows, removed, added)
    pairs = list(_pairs(rows, removed, added, key, most))
    taken = sorted({place for pair in pairs for place in pair if place is not None})
    texts = [[cell(value) for value in row] for row in tuples_of(rows.take(pa.array(taken, pa.int64())))]
    at = dict(zip(taken, texts, strict=True))
    return {
        "columns": rows.schema.names,
        "key": key,
        "pairs": [tuple(None if place is None else at[place] for place in pair) for pair in pairs],
    }


def _pairs(
    rows: pa.Table, removed: list[int], added: list[int], key: str | None, most: int
) -> Iterator[Pair]:
    if key is None:
        # Some of both: who looks shall not see one side only.
        yield from ((place, None) for place in removed[: max(most // 2, most - len(added))])
        yield from ((None, place) for place in added[: max(most // 2, most - len(removed))])
        return
    left, right = _side(rows, key, removed), _side(rows, key, added)
    both = left.join(right, on=key, suffix="_right", maintain_order="left").select(_PLACE, f"{_PLACE}_right")
    paired = set(both[_PLACE]) | set(both[f"{_PLACE}_right"])
    both = both.head(most)
    yield from both.iter_rows()
    alone, fresh = ([place for place in side if place not in paired] for side in (removed, added))
    room = most - both.height
    yield from ((place, None) for place in alone[: max(room // 2, room - len(fresh))])
    yield from ((None, place) for place in fresh[: max(room // 2, room - len(alone))])


def _key(rows: pa.Table, removed: list[int], added: list[int]) -> str | None:
    """Return the column whose values, at most once on each side, pair the most rows; None if none pairs any."""
    best, found = 0, None
    names = rows.schema.names
    for name in names if removed and added else ():
        if names.count(name) > 1 or not _names_rows(rows.schema.field(name).type):
            continue
        left, right = (_side(rows, name, side) for side in (removed, added))
        if left[name].n_unique() < left.height or right[name].n_unique() < right.height:
            continue
        common = left.join(right, on=name, how="semi").height
        if common > best:
            best, found = common, name
    return found


def _names_rows(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(
        is_text or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_temporal(kind)
    )


def _side(rows: pa.Table, name: str, places: list[int]) -> pl.DataFrame:
    """Return a column of some rows, without nulls, with their places. A null pairs with nothing."""
    values = pl.from_arrow(rows[name].take(pa.array(places, pa.int64())))
    assert isinstance(values, pl.Series), "a column becomes a series"
    return pl.DataFrame({name: values, _PLACE: places}).drop_nulls(name)
