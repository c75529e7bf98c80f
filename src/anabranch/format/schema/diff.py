"""Differences between two versions of a schema, in words: fields by their ids, options by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import shown_option
from anabranch.format.types.data_types import ArrayType, DataType, Field, MapType, MultisetType, RowType


def changes_between(old: TableSchema, new: TableSchema) -> list[str]:
    """One phrase a change, such as ``dropped 'v'``: columns as `old` orders them, new ones, options, comments."""
    before = {place.field.id: place for place in _places((), RowType(old.fields))}
    after = {place.field.id: place for place in _places((), RowType(new.fields))}
    return [
        *(phrase for i, place in before.items() for phrase in _fate(place, after.get(i))),
        *(f"added '{place.name}'" for i, place in after.items() if i not in before),
        *_moves(old, new),
        *_options(old.options, new.options),
        *(["changed the table's comment"] if old.comment != new.comment else []),
    ]


@dataclass(frozen=True, slots=True)
class _Place:
    """A field and the names that lead to it."""

    field: Field
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join(self.path)


def _places(path: tuple[str, ...], data_type: DataType) -> Iterator[_Place]:
    match data_type:
        case RowType(fields=fields):
            for f in fields:
                yield _Place(f, (*path, f.name))
                yield from _places((*path, f.name), f.type)
        case ArrayType(element=inner) | MultisetType(element=inner):
            yield from _places((*path, "element"), inner)
        case MapType(key=key, value=value):
            yield from _places((*path, "key"), key)
            yield from _places((*path, "value"), value)
        case _:
            return


def _fate(old: _Place, new: _Place | None) -> Iterator[str]:
    if new is None:
        yield f"dropped '{old.name}'"
        return
    if new.field.name != old.field.name:
        yield f"renamed '{old.name}' to '{new.name}'"
    before, after = _own(old.field.type), _own(new.field.type)
    if before != after:
        yield f"changed '{new.name}' from {before} to {after}"
    if new.field.default != old.field.default:
        said = "" if new.field.default is None else f" to '{new.field.default}'"
        yield f"{'set' if said else 'removed'} the default of '{new.name}'{said}"
    if new.field.description != old.field.description:
        yield f"changed the comment of '{new.name}'"


def _own(data_type: DataType) -> DataType:
    """The type without the fields inside, which are looked at one by one."""
    match data_type:
        case RowType():
            return replace(data_type, fields=())
        case ArrayType(element=inner) | MultisetType(element=inner):
            return replace(data_type, element=_own(inner))
        case MapType(key=key, value=value):
            return replace(data_type, key=_own(key), value=_own(value))
        case _:
            return data_type


def _moves(old: TableSchema, new: TableSchema) -> Iterator[str]:
    """Top-level columns that both have, in another order."""
    before = [f.id for f in old.fields if new.field_by_id(f.id) is not None]
    after = [f.id for f in new.fields if old.field_by_id(f.id) is not None]
    if before != after:
        yield "changed the order of columns"


def _options(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"removed option '{key}'"
        elif old.get(key) != new[key]:
            yield f"set option '{key}' to '{shown_option(key, new[key])}'"


def ids_inside(field: Field) -> set[int]:
    """Return the ids of the fields inside of a column, at any depth."""
    return {place.field.id for place in _places((), field.type)}


def has_other_form(old: TableSchema, new: TableSchema) -> bool:
    """Whether a column of both versions has another name or type in the newer one, or fields inside of it have.

    Columns that were only added or dropped do not matter, nor do nulls that were allowed since.
    """
    now = {field.id: field for field in new.fields}
    both = ((field, now[field.id]) for field in old.fields if field.id in now)
    return any(was.name != field.name or not fits(was.type, field.type) for was, field in both)


def fits(written: DataType, declared: DataType) -> bool:
    """Whether a column of one type can be read as the other: equal, except that nulls may become allowed."""
    if written.nullable and not declared.nullable:
        return False
    match written, declared:
        case RowType(fields=old), RowType(fields=new):
            return [(f.id, f.name) for f in old] == [(f.id, f.name) for f in new] and all(
                fits(a.type, b.type) for a, b in zip(old, new, strict=True)
            )
        case (ArrayType(element=old), ArrayType(element=new)) | (
            MultisetType(element=old),
            MultisetType(element=new),
        ):
            return fits(old, new)
        case MapType(), MapType():
            return fits(written.key, declared.key) and fits(written.value, declared.value)
    return written.with_nullable(True) == declared.with_nullable(True)
