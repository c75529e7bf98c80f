"""Finding and editing columns, nested ones as well.

A column is named by its name, or by a path to a field inside it: ``address.zip``, or the names as a tuple. In
a path ``element`` leads into an array and ``value`` into a map: ``orders.element.price``. Names that have a dot
themselves stand between back-ticks, as in ``address.`a.b```. The columns of a table are edited like the fields of
a row, so nested ones need nothing of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch.errors import SchemaError
from anabranch.format.types.data_types import ArrayType, DataType, Field, MapType, MultisetType, RowType

Fields: TypeAlias = tuple[Field, ...]
Path: TypeAlias = str | tuple[str, ...]

_STEP = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True, slots=True)
class First:
    """Before all other columns."""


@dataclass(frozen=True, slots=True)
class Last:
    """After all other columns."""


@dataclass(frozen=True, slots=True)
class Before:
    """Directly before a column of the same row."""

    name: str


@dataclass(frozen=True, slots=True)
class After:
    """Directly after a column of the same row."""

    name: str


Position: TypeAlias = First | Last | Before | After


def steps_of(name: Path, fields: Fields = ()) -> tuple[str, ...]:
    """The path as a tuple.

    A text that is the name of one of `fields` means that one, dots or not. Raises `SchemaError` if the path is
    empty or its text is none.
    """
    if not isinstance(name, str):
        path = tuple(name)
    elif any(f.name == name for f in fields):
        path = (name,)
    else:
        path = _split(name)
    if not path:
        raise SchemaError("the path of a column is empty", hint="name the column.")
    return path


def shown(path: Sequence[str]) -> str:
    """The column as a message names it."""
    return f"column '{'.'.join(path)}'"


def enclosing_id(fields: Fields, path: Sequence[str]) -> int | None:
    """The id of the last field there is on a path; None if not even its column exists."""
    found: int | None = None
    inside: DataType = RowType(fields)
    for step in path:
        match inside:
            case RowType(fields=members):
                member = next((f for f in members if f.name == step), None)
                if member is None:
                    return found
                found, inside = member.id, member.type
            case ArrayType(element=inner) | MapType(value=inner):
                inside = inner
            case _:
                return found
    return found


def edit_siblings(fields: Fields, path: tuple[str, ...], edit: Callable[[Fields], Fields]) -> Fields:
    """The columns, those edited that stand in one row with the end of `path`. Raises `SchemaError`."""

    def edit_row(data_type: DataType) -> DataType:
        if not isinstance(data_type, RowType):
            raise SchemaError(
                f"{shown(path)} does not exist: {shown(path[:-1])} is {data_type} and has no fields",
                hint="paths lead through the fields of rows, 'element' of arrays and 'value' of maps.",
            )
        return replace(data_type, fields=edit(data_type.fields))

    return edit_type(fields, path[:-1], edit_row)


def edit_type(fields: Fields, path: tuple[str, ...], edit: Callable[[DataType], DataType]) -> Fields:
    """The columns, the type at the end of `path` edited; the empty path is the row of all columns.

    Raises:
        SchemaError: the path leads nowhere.
    """
    row = _edit_inside(RowType(fields), (), path, edit)
    assert isinstance(row, RowType)
    return row.fields


def find(siblings: Fields, path: tuple[str, ...]) -> Field:
    """The field that the last name of `path` names. Raises `SchemaError` naming those there are."""
    for f in siblings:
        if f.name == path[-1]:
            return f
    names = ", ".join(f.name for f in siblings[:20])
    raise SchemaError(f"{shown(path)} does not exist", hint=f"beside it there are {names}.")


def refuse_taken(siblings: Fields, path: tuple[str, ...]) -> None:
    """Raise `SchemaError` if a field has the last name of `path`."""
    if any(f.name == path[-1] for f in siblings):
        raise SchemaError(f"{shown(path)} exists already", hint="take another name.")


def inserted(siblings: Fields, f: Field, position: Position) -> Fields:
    """The fields with another one at its place. Raises `SchemaError` if that is beside a field not there."""
    match position:
        case First():
            index = 0
        case Last():
            index = len(siblings)
        case Before(name=name):
            index = siblings.index(find(siblings, (name,)))
        case After(name=name):
            index = siblings.index(find(siblings, (name,))) + 1
    return (*siblings[:index], f, *siblings[index:])


def _split(text: str) -> tuple[str, ...]:
    steps: list[str] = []
    position = 0
    while match := _STEP.match(text, position):
        steps.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        position = match.end()
        if position == len(text):
            return tuple(steps)
        if text[position] != ".":
            break
        position += 1
    if not text:
        return ()
    raise SchemaError(
        f"'{text}' is no path of a column",
        hint="write address.zip, with names that have dots between back-ticks, or give the names as a tuple.",
    )


def _edit_inside(
    data_type: DataType, done: tuple[str, ...], todo: tuple[str, ...], edit: Callable[[DataType], DataType]
) -> DataType:
    if not todo:
        return edit(data_type)
    here, rest = (*done, todo[0]), todo[1:]
    match data_type:
        case RowType(fields=fields):
            found = find(fields, here)
            changed = replace(found, type=_edit_inside(found.type, here, rest, edit))
            return replace(data_type, fields=tuple(changed if f is found else f for f in fields))
        case ArrayType(element=element) if here[-1] == "element":
            return replace(data_type, element=_edit_inside(element, here, rest, edit))
        case MapType(value=value) if here[-1] == "value":
            return replace(data_type, value=_edit_inside(value, here, rest, edit))
    raise SchemaError(
        f"{shown(here)} does not exist or cannot change: {shown(done)} is {data_type}",
        hint="paths lead through the fields of rows, 'element' of arrays and 'value' of maps.",
    )


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
