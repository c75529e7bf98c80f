"""Finding and editing columns, nested ones as well.

A column is named by its name, or by a path to a field inside it: ``address.zip``, or the names as a tuple. In
a path ``element`` leads into an array and ``value`` into a map: ``orders.element.price``. Names that have a dot
themselves stand between back-ticks, as in ``address.`a.b```. The columns of a table are edited like the fields of
a row, so nested ones need nothing of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch.errors import SchemaError
from anabranch.format.types.data_types import ArrayType, DataType, Field, MapType, RowType

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
