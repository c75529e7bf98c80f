"""Three-way merge of columns, field by field by id, including fields nested in rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from anabranch.format.types.data_types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    MultisetType,
    RowType,
    walk_fields,
)
from anabranch.format.types.field_tree import Fields
from anabranch.format.types.widening import is_wider
from anabranch.kernel.merge.conflict import MergeConflict

T = TypeVar("T")

_Path = tuple[str, ...]


def merge_columns(base: Fields, ours: Fields, theirs: Fields, found: list[MergeConflict]) -> Fields:
    """Return main's columns with the branch's changes; conflicts are added to `found`, with main's side as fallback."""
    merged = _merge_row(base, ours, theirs, (), found)
    seen: set[int] = set()
    for f in walk_fields(merged):
        if f.id in seen:
            _id_clash(found, f"the id {f.id} stands for '{f.name}' and for another field")
        seen.add(f.id)
    return merged


def three_way(base: T, ours: T, theirs: T, *, clash: T) -> T:
    """Return the value of the side that changed it; `clash` if both did, differently."""
    if ours in (theirs, base):
        return theirs
    return ours if theirs == base else clash


def _merge_row(base: Fields, ours: Fields, theirs: Fields, path: _Path, found: list[MergeConflict]) -> Fields:
    was, mine, other = ({f.id: f for f in fields} for fields in (base, ours, theirs))
    merged: dict[int, Field] = {}
    for field_id in {**mine, **other}:
        f = _merge_field(was.get(field_id), mine.get(field_id), other.get(field_id), path, found)
        if f is not None:
            merged[field_id] = f
    _refuse_same_names(merged.values(), mine, path, found)
    return tuple(merged[i] for i in _ordered([*was], [*mine], [*other], merged.keys()))


def _merge_field(
    base: Field | None, ours: Field | None, theirs: Field | None, path: _Path, found: list[MergeConflict]
) -> Field | None:
    if ours is None or theirs is None:
        return _one_sided(base, ours, theirs, path, found)
    where = (*path, ours.name)
    if base is None:
        if (ours.name, ours.type) != (theirs.name, theirs.type):
            _id_clash(
                found,
                f"the id {ours.id} is {_shown(where)}, {ours.type}, on main and "
                f"{_shown((*path, theirs.name))}, {theirs.type}, on the branch",
            )
        return ours
    name = three_way(base.name, ours.name, theirs.name, clash="")
    if not name:
        _add(
            found,
            "RENAME_CLASH",
            f"{_shown((*path, base.name))} was renamed to '{ours.name}' on main and to '{theirs.name}' on the branch",
            "rename it on one side as it is called on the other.",
        )
        name = ours.name
    default = three_way(base.default, ours.default, theirs.default, clash=ours.default)
    if default == ours.default != theirs.default != base.default:
        _add(
            found,
            "OPTION_CLASH",
            f"the default of {_shown(where)} is {ours.default!r} on main and {theirs.default!r} on the branch",
            "give it the same default on both.",
        )
    return replace(
        ours,
        name=name,
        type=_merge_type(base.type, ours.type, theirs.type, where, found),
        description=three_way(base.description, ours.description, theirs.description, clash=ours.description),
        default=default,
    )


def _one_sided(
    base: Field | None, ours: Field | None, theirs: Field | None, path: _Path, found: list[MergeConflict]
) -> Field | None:
    """Merge a field that one side lacks: added by the other, or dropped by this one."""
    there = ours or theirs
    assert there is not None, "the id is from one of the two"
    side, lacking = ("main", "the branch") if ours is not None else ("the branch", "main")
    where = _shown((*path, there.name))
    if base is None:
        if not there.type.nullable:
            _add(
                found,
                "NOT_NULL_CLASH",
                f"{where} was added on {side} as NOT NULL, but rows of {lacking} have no value for it",
                f"allow nulls in it on {side}.",
            )
        return there
    if (there.name, there.type, there.default) != (base.name, base.type, base.default):
        _add(
            found,
            "DROP_VS_CHANGE",
            f"{_shown((*path, base.name))} was dropped on {lacking}, but is '{there.name}', {there.type}, on {side} now",
            f"drop it on {side} as well, or undo what was changed there.",
        )
    return None


def _merge_type(
    base: DataType, ours: DataType, theirs: DataType, path: _Path, found: list[MergeConflict]
) -> DataType:
    if ours == theirs:
        return ours
    nullable = ours.nullable
    if ours.nullable != theirs.nullable:
        nullable = True
        if base.nullable:
            forbids = "main" if theirs.nullable else "the branch"
            _add(
                found,
                "NOT_NULL_CLASH",
                f"{_shown(path)} became NOT NULL on {forbids}, but the other side may hold nulls",
                f"allow nulls in it on {forbids} again.",
            )
    match base, ours, theirs:
        case RowType(fields=was), RowType(fields=mine), RowType(fields=other):
            return RowType(_merge_row(was, mine, other, path, found), nullable=nullable)
        case ArrayType(element=was), ArrayType(element=mine), ArrayType(element=other):
            return ArrayType(_merge_type(was, mine, other, (*path, "element"), found), nullable=nullable)
        case MultisetType(element=was), MultisetType(element=mine), MultisetType(element=other):
            return MultisetType(_merge_type(was, mine, other, (*path, "element"), found), nullable=nullable)
        case MapType(), MapType(), MapType():
            return MapType(
                _merge_type(base.key, ours.key, theirs.key, (*path, "key"), found),
                _merge_type(base.value, ours.value, theirs.value, (*path, "value"), found),
                nullable=nullable,
            )
    return _wider(ours, theirs, path, found).with_nullable(nullable)


def _wider(ours: DataType, theirs: DataType, path: _Path, found: list[MergeConflict]) -> DataType:
    if is_wider(theirs, ours):
        return ours
    if is_wider(ours, theirs):
        return theirs
    _add(
        found,
        "TYPE_CLASH",
        f"{_shown(path)} is {ours.spelling} on main and {theirs.spelling} on the branch, and neither holds all values "
        "of the other",
        "give both a type that holds the values of both.",
    )
    return ours


def _refuse_same_names(
    fields: Iterable[Field], ours: dict[int, Field], path: _Path, found: list[MergeConflict]
) -> None:
    by_name: dict[str, Field] = {}
    for f in fields:
        twin = by_name.setdefault(f.name, f)
        if twin is not f:
            on_main, other = (twin, f) if twin.id in ours else (f, twin)
            _add(
                found,
                "NAME_CLASH",
                f"{_shown((*path, f.name))} is one column on main, {on_main.type} with id {on_main.id}, and "
                f"another on the branch, {other.type} with id {other.id}",
                "rename one of them.",
            )


def _ordered(base: list[int], ours: list[int], theirs: list[int], there: Iterable[int]) -> list[int]:
    """Keep main's order unless only the branch moved fields; fields that side lacks go beside their neighbours."""
    shared = {*base} & {*ours} & {*theirs}
    was, mine, other = ([i for i in side if i in shared] for side in (base, ours, theirs))
    leading, following = (theirs, ours) if mine == was != other else (ours, theirs)
    kept = {*there}
    order = [i for i in leading if i in kept]
    known = {*order}
    rest = [i for i in following if i in kept]
    last_shared = max((n for n, i in enumerate(rest) if i in known), default=-1)
    for n, i in enumerate(rest):
        if i in known:
            continue
        if n > last_shared:
            order.append(i)
        else:
            order.insert(order.index(rest[n - 1]) + 1 if n else 0, i)
    return order


def _id_clash(found: list[MergeConflict], message: str) -> None:
    _add(
        found,
        "FIELD_ID_CLASH",
        f"{message}: an engine that does not know of the branches numbered columns of both",
        "copy the branch's rows; or drop one of the two columns, and overwrite what was written with it.",
    )


def _add(found: list[MergeConflict], kind: str, message: str, hint: str) -> None:
    found.append(MergeConflict(kind, message, hint))


def _shown(path: Sequence[str]) -> str:
    return f"column '{'.'.join(path)}'"
