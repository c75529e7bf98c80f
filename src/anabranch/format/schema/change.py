"""Changes of a schema, as values, and what they make of it; columns and places are named as in `field_tree`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from anabranch.errors import SchemaError
from anabranch.format.schema.option_change import (
    check_changed_options,
    option_set,
    options_renamed,
    options_settled,
)
from anabranch.format.schema.rules import check_inner_fields, check_partition_keys, is_assigned, without_key
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import NEWEST_VERSION, TableSchema
from anabranch.format.schema.watermark import EXPRESSION, ROWTIME
from anabranch.format.text.names import check_column_name
from anabranch.format.types.data_types import DataType, Field, VarCharType
from anabranch.format.types.field_tree import (
    Fields,
    Last,
    Path,
    Position,
    assign_field_ids,
    edit_siblings,
    edit_type,
    enclosing_id,
    find,
    inserted,
    refuse_taken,
    shown,
    steps_of,
)
from anabranch.format.types.grammar import UNASSIGNED_ID, check_depth
from anabranch.format.types.widening import widen
from anabranch.options import BUCKET_KEY, FULL_COMPACTION_DELTA_COMMITS, FULL_COMPACTION_SCALABLE


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new nullable column; rows written before read null."""

    name: Path
    type: DataType
    comment: str | None = None
    position: Position = field(default_factory=Last)
    default: str | None = None
    """What rows get that are written without a value; rows that are there stay null."""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a column; its id, and so its values, never come back."""

    name: Path


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a column another name; its id and values stay."""

    name: Path
    new_name: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Give a column a type that holds every value of the old one; its nullability stays."""

    name: Path
    type: DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Allow nulls in a column; to forbid them is refused unless they are forbidden already."""

    name: Path
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Give a column another place among its siblings."""

    name: Path
    position: Position


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    """Describe a column; None removes the description."""

    name: Path
    comment: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Give a column the value that nulls become when they are written; None for none. It is spelt as text."""

    name: Path
    default: str | None


@dataclass(frozen=True, slots=True)
class SetComment:
    """Describe the table; None removes the description."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class SetOption:
    """Give a table option a value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveOption:
    """Return a table option to its default; nothing happens if it is not set."""

    key: str


SchemaChange: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | WidenColumn
    | SetNullable
    | MoveColumn
    | SetColumnComment
    | SetDefault
    | SetComment
    | SetOption
    | RemoveOption
)


def apply_changes(
    schema: TableSchema, changes: Sequence[SchemaChange], *, time_millis: int, has_snapshots: bool
) -> TableSchema:
    """The next version of a schema: all changes in their order, or none.

    Args:
        schema: the newest schema of the table.
        changes: at least one; each sees what those before it did.
        time_millis: now, in milliseconds since the epoch.
        has_snapshots: whether anything was ever committed; some options are fixed from then on.

    Raises:
        SchemaError: a change does not fit the columns.
        OptionError: an option cannot have that value, or cannot change any more.
        InvalidNameError: a new name is not acceptable.
        UnsupportedFeatureError: an option would need what this version does not implement.
    """
    if not changes:
        raise SchemaError("there is nothing to change", hint="give at least one change.")
    changed = schema
    for change in changes:
        changed = _apply(changed, change)
    changed = replace(changed, options=options_settled(schema, changed))
    for f in changed.fields:
        check_depth(f.type)
    check_partition_keys(changed.fields, changed.partition_keys)
    check_changed_options(schema, changed, has_snapshots=has_snapshots)
    check_writable(changed, path=None)
    return replace(changed, id=schema.id + 1, time_millis=time_millis, version=NEWEST_VERSION)


def meant_ids(schema: TableSchema, changes: Sequence[SchemaChange]) -> list[int | None]:
    """Return for each change the id of its field, or of the one that encloses it; None for the table.

    Raises as `apply_changes` does, as far as columns are concerned.
    """
    ids: list[int | None] = []
    for change in changes:
        match change:
            case SetComment() | SetOption() | RemoveOption():
                ids.append(None)
            case _:
                ids.append(enclosing_id(schema.fields, steps_of(change.name, schema.fields)))
        schema = _apply(schema, change)
    return ids


def _apply(schema: TableSchema, change: SchemaChange) -> TableSchema:
    match change:
        case AddColumn():
            return _add(schema, change)
        case DropColumn():
            return _drop(schema, change)
        case RenameColumn():
            return _rename(schema, change)
        case WidenColumn():
            return _widen(schema, change)
        case SetNullable():
            return _set_nullable(schema, change)
        case MoveColumn():
            return _move(schema, change)
        case SetColumnComment():
            return _describe(schema, change)
        case SetDefault():
            return _set_default(schema, change)
        case SetComment():
            return replace(schema, comment=change.comment)
        case SetOption():
            return replace(schema, options=option_set(schema.options, change.key, change.value))
        case RemoveOption():
            gone = {change.key}
            if change.key == FULL_COMPACTION_DELTA_COMMITS.key:
                gone.add(FULL_COMPACTION_SCALABLE.key)  # the name under which scalable tables store it
            return replace(schema, options={k: v for k, v in schema.options.items() if k not in gone})


def _add(schema: TableSchema, change: AddColumn) -> TableSchema:
    path = steps_of(change.name, schema.fields)
    check_column_name(path[-1], nested=len(path) > 1)
    check_depth(change.type)
    check_inner_fields(change.type, shown(path))
    if not change.type.nullable:
        raise SchemaError(
            f"{shown(path)} would be NOT NULL, but rows written before have no value for it",
            hint="add it without NOT NULL.",
        )
    if change.default is not None:
        _refuse_inner_default(path)
    new = Field(UNASSIGNED_ID, path[-1], change.type, change.comment, change.default)
    (new,), highest = assign_field_ids([new], schema.highest_field_id)

    def edit(siblings: Fields) -> Fields:
        refuse_taken(siblings, path)
        return inserted(siblings, new, change.position)

    fields = edit_siblings(schema.fields, path, edit)
    return replace(schema, fields=fields, highest_field_id=highest)


def _drop(schema: TableSchema, change: DropColumn) -> TableSchema:
    path = steps_of(change.name, schema.fields)
    _refuse_partition_key(schema, path, "dropped")
    if len(path) == 1 and path[0] in schema.bucket_keys:
        raise SchemaError(
            f"{shown(path)} cannot be dropped: it decides the bucket of a row",
            hint="copy the rows into a table with another bucket-key.",
        )

    if len(path) == 1 and path[0] == schema.options.get(ROWTIME):
        raise SchemaError(
            f"{shown(path)} cannot be dropped: the watermark of the table is defined by it",
            hint=f"remove the options '{ROWTIME}' and '{EXPRESSION}' first; the same change may do both.",
        )

    def edit(siblings: Fields) -> Fields:
        dropped = find(siblings, path)
        if len(siblings) == 1:
            raise SchemaError(
                f"{shown(path)} is the last one and cannot be dropped", hint="add another before."
            )
        return tuple(f for f in siblings if f is not dropped)

    fields = edit_siblings(schema.fields, path, edit)
    options = schema.options if len(path) > 1 else _options_without(schema, path[0])
    return replace(schema, fields=fields, options=options)


def _options_without(schema: TableSchema, column: str) -> dict[str, str]:
    """The options, without those about the column."""
    options = {k: v for k, v in schema.options.items() if not k.startswith(f"fields.{column}.")}
    was_key = is_assigned(options) and options.get(BUCKET_KEY.key) == column
    return without_key(options) if was_key else options


def _rename(schema: TableSchema, change: RenameColumn) -> TableSchema:
    path = steps_of(change.name, schema.fields)
    new = _last_name(change.new_name, path)
    _refuse_partition_key(schema, path, "renamed")
    check_column_name(new, nested=len(path) > 1)

    def edit(siblings: Fields) -> Fields:
        renamed = find(siblings, path)
        if new != renamed.name:
            refuse_taken(siblings, (*path[:-1], new))
        return tuple(replace(f, name=new) if f is renamed else f for f in siblings)

    fields = edit_siblings(schema.fields, path, edit)
    options = schema.options if len(path) > 1 else options_renamed(schema.options, path[0], new)
    return replace(schema, fields=fields, options=options)


def _last_name(new_name: str, path: tuple[str, ...]) -> str:
    """The new name of a field, which may be given as its whole path."""
    if len(path) == 1 or "." not in new_name:
        return new_name
    *parents, name = steps_of(new_name)
    if tuple(parents) != path[:-1]:
        raise SchemaError(
            f"{shown(path)} cannot become '{new_name}': a renamed field stays in its row",
            hint="give the new name alone.",
        )
    return name


def _widen(schema: TableSchema, change: WidenColumn) -> TableSchema:
    path = steps_of(change.name, schema.fields)
    _refuse_partition_key(schema, path, "given another type")

    def edit(old: DataType) -> DataType:
        new = widen(old, change.type, shown(path))
        # The bucket of a row is a hash of the bytes its type has; only the length of text is not in them.
        if path[0] in schema.bucket_keys and new != old and not isinstance(new, VarCharType):
            raise SchemaError(
                f"{shown(path)} cannot become {new.spelling}: it decides the bucket of a row, and equal "
                "values would land in other buckets than before",
                hint="copy the rows into a new table.",
            )
        return new

    return replace(schema, fields=edit_type(schema.fields, path, edit))


def _set_nullable(schema: TableSchema, change: SetNullable) -> TableSchema:
    path = steps_of(change.name, schema.fields)

    def edit(old: DataType) -> DataType:
        if old.nullable and not change.nullable:
            raise SchemaError(
                f"{shown(path)} cannot become NOT NULL: it may be null in rows that were written before",
                hint="add a column for the new rows, or copy the rows into a table that has it NOT NULL.",
            )
        return old.with_nullable(change.nullable)

    return replace(schema, fields=edit_type(schema.fields, path, edit))


def _move(schema: TableSchema, change: MoveColumn) -> TableSchema:
    path = steps_of(change.name, schema.fields)

    def edit(siblings: Fields) -> Fields:
        moved = find(siblings, path)
        return inserted(tuple(f for f in siblings if f is not moved), moved, change.position)

    return replace(schema, fields=edit_siblings(schema.fields, path, edit))


def _describe(schema: TableSchema, change: SetColumnComment) -> TableSchema:
    path = steps_of(change.name, schema.fields)

    def edit(siblings: Fields) -> Fields:
        described = find(siblings, path)
        return tuple(replace(f, description=change.comment) if f is described else f for f in siblings)

    return replace(schema, fields=edit_siblings(schema.fields, path, edit))


def _set_default(schema: TableSchema, change: SetDefault) -> TableSchema:
    path = steps_of(change.name, schema.fields)
    _refuse_inner_default(path)

    def edit(siblings: Fields) -> Fields:
        found = find(siblings, path)
        return tuple(replace(f, default=change.default) if f is found else f for f in siblings)

    return replace(schema, fields=edit_siblings(schema.fields, path, edit))


def _refuse_inner_default(path: tuple[str, ...]) -> None:
    if len(path) > 1:
        raise SchemaError(
            f"{shown(path)} is inside of another column and cannot have a default",
            hint="give the value with every row.",
        )


def _refuse_partition_key(schema: TableSchema, path: tuple[str, ...], what: str) -> None:
    if len(path) == 1 and path[0] in schema.partition_keys:
        raise SchemaError(
            f"{shown(path)} is a partition key and cannot be {what}",
            hint="copy the rows into a table that is partitioned differently.",
        )
