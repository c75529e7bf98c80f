"""Numbers of fields: how columns and the fields inside them get ids that are never used twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anabranch.errors import SchemaError
from anabranch.format.types.data_types import ArrayType, DataType, Field, MapType, MultisetType, RowType
from anabranch.format.types.grammar import UNASSIGNED_ID

__all__ = [
    "SYSTEM_FIELD_IDS_START",
    "UNASSIGNED_ID",
    "assign_field_ids",
    "assign_type_ids",
    "shift_field_ids",
]

SYSTEM_FIELD_IDS_START = 1_073_741_823
"""Ids from here on belong to system columns."""


def assign_field_ids(fields: Iterable[Field], start: int = -1) -> tuple[tuple[Field, ...], int]:
    """Number columns and the fields inside their types.

    A column is numbered before what its type holds; a field inside a row after it. All engines number
    so, and two that create the same table agree.

    Args:
        fields: the columns; ids they have are replaced.
        start: the largest id in use, -1 for a new table.

    Returns:
        The numbered columns and the largest id now in use.

    Raises:
        SchemaError: there are no ids left.
    """
    highest = start
    numbered = []
    for f in fields:
        highest += 1
        own_id = highest
        data_type, highest = assign_type_ids(f.type, highest)
        numbered.append(replace(f, id=own_id, type=data_type))
    if highest >= SYSTEM_FIELD_IDS_START:
        raise SchemaError(
            f"the columns need the field id {highest}, but ids end before {SYSTEM_FIELD_IDS_START}",
            hint="copy the rows into a new table, whose ids start anew.",
        )
    return tuple(numbered), highest


def shift_field_ids(fields: tuple[Field, ...], above: int, by: int) -> tuple[Field, ...]:
    """The columns, every id larger than `above` made larger by `by`, inside their types as well."""
    return tuple(
        replace(f, id=f.id + by if f.id > above else f.id, type=_shift_type_ids(f.type, above, by))
        for f in fields
    )


def assign_type_ids(data_type: DataType, start: int) -> tuple[DataType, int]:
    """The type with its inner fields numbered from `start` + 1, and the largest id now in use."""
    match data_type:
        case ArrayType(element=element) | MultisetType(element=element):
            element, highest = assign_type_ids(element, start)
            return replace(data_type, element=element), highest
        case MapType(key=key, value=value):
            key, highest = assign_type_ids(key, start)
            value, highest = assign_type_ids(value, highest)
            return replace(data_type, key=key, value=value), highest
        case RowType(fields=fields):
            highest = start
            numbered = []
            for f in fields:
                inner, highest = assign_type_ids(f.type, highest)
                highest += 1
                numbered.append(replace(f, id=highest, type=inner))
            return replace(data_type, fields=tuple(numbered)), highest
        case _:
            return data_type, start


def _shift_type_ids(data_type: DataType, above: int, by: int) -> DataType:
    match data_type:
        case ArrayType(element=element) | MultisetType(element=element):
            return replace(data_type, element=_shift_type_ids(element, above, by))
        case MapType(key=key, value=value):
            return replace(
                data_type, key=_shift_type_ids(key, above, by), value=_shift_type_ids(value, above, by)
            )
        case RowType(fields=fields):
            return replace(data_type, fields=shift_field_ids(fields, above, by))
        case _:
            return data_type
