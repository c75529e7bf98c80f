"""Three-way merge of options, key by key; those about columns follow their columns."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.schema.rules import is_assigned, with_assigned_key
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import (
    EXPRESSION,
    ROWTIME,
    WATERMARK_KEYS,
    WatermarkDefinition,
    watermark_definition,
)
from anabranch.format.types.field_tree import Fields
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.options import BUCKET_KEY, BUCKET_KEY_ASSIGNED, TABLE_UUID

_APART = frozenset({
    # Owned by the table; the branch's values are ignored.
    TABLE_UUID.key,
    # Compared by the columns they mean.
    BUCKET_KEY.key, BUCKET_KEY_ASSIGNED.key, *WATERMARK_KEYS,
})  # fmt: skip

_Key = str | tuple[int, str]
"""The key, or for ``fields.<column>.<what>`` the column's id and the rest."""


def merge_options(
    base: TableSchema, ours: TableSchema, theirs: TableSchema, fields: Fields, found: list[MergeConflict]
) -> dict[str, str]:
    """Return main's options with the branch's changes, for the merged columns; conflicts are added to `found`."""
    was, mine, other = (_by_column(schema) for schema in (base, ours, theirs))
    names = {f.id: f.name for f in fields}
    merged: dict[str, str] = {}
    for key in {**mine, **other}:
        if not isinstance(key, str) and key[0] not in names:
            continue  # its column is gone
        spelled = key if isinstance(key, str) else f"fields.{names[key[0]]}.{key[1]}"
        value = _three_way(spelled, was.get(key), mine.get(key), other.get(key), found)
        if value is not None:
            merged[spelled] = value
    if TABLE_UUID.key in ours.options:
        merged[TABLE_UUID.key] = ours.options[TABLE_UUID.key]
    merged |= _queue_key(ours, theirs, fields)
    merged |= _watermark(base, ours, theirs, fields, found)
    return with_assigned_key(merged, fields, ours.partition_keys) if is_assigned(ours.options) else merged


def _three_way(
    key: str, base: str | None, ours: str | None, theirs: str | None, found: list[MergeConflict]
) -> str | None:
    if ours in (theirs, base):
        return theirs
    if theirs != base:
        found.append(
            MergeConflict(
                "OPTION_CLASH",
                f"option '{key}' is {_value(ours)} on main and {_value(theirs)} on the branch, and was {_value(base)} "
                "when they parted",
                "give it the same value on both.",
            )
        )
    return ours


def _by_column(schema: TableSchema) -> dict[_Key, str]:
    """Return the options that are merged key by key."""
    # Longest name first: a column name may extend another by a dot and a suffix.
    columns = sorted(schema.fields, key=lambda f: -len(f.name))
    options: dict[_Key, str] = {}
    for key, value in schema.options.items():
        if key in _APART:
            continue
        column = next((f for f in columns if key.startswith(f"fields.{f.name}.")), None)
        if column is None:
            options[key] = value
        else:
            options[column.id, key.removeprefix(f"fields.{column.name}.")] = value
    return options


def _queue_key(ours: TableSchema, theirs: TableSchema, fields: Fields) -> dict[str, str]:
    """Return the bucket-key by current names. Both sides have the same, or one that has no effect."""
    chosen = theirs if is_assigned(ours.options) and not is_assigned(theirs.options) else ours
    if BUCKET_KEY.key not in chosen.options:
        return {}
    merged = {f.id: f.name for f in fields}
    text = chosen.options[BUCKET_KEY.key]
    ids = {f.name: f.id for f in chosen.fields}
    keys = [name.strip() for name in text.split(",")]
    renamed = [merged.get(ids.get(name, -1)) for name in keys]
    if is_assigned(chosen.options) and None in renamed:
        return {}  # its column is gone: another is assigned
    spelled = text if renamed == keys else ",".join(n or k for n, k in zip(renamed, keys, strict=True))
    options = {BUCKET_KEY.key: spelled}
    if BUCKET_KEY_ASSIGNED.key in chosen.options:
        options[BUCKET_KEY_ASSIGNED.key] = chosen.options[BUCKET_KEY_ASSIGNED.key]
    return options


@dataclass(frozen=True, slots=True)
class _Watermark:
    """A watermark definition by column id, independent of the column's name."""

    column_id: int
    delay_millis: int


def _watermark(
    base: TableSchema, ours: TableSchema, theirs: TableSchema, fields: Fields, found: list[MergeConflict]
) -> dict[str, str]:
    was, mine, other = (_defined(schema) for schema in (base, ours, theirs))
    if mine in (other, was):
        side, chosen = theirs, other
    else:
        side, chosen = ours, mine
        if other != was:
            found.append(
                MergeConflict(
                    "OPTION_CLASH",
                    f"the watermark is {_definition(ours)} on main and {_definition(theirs)} on the branch, and was "
                    f"{_definition(base)} when they parted",
                    "define the same one on both.",
                )
            )
    as_it_is = {key: side.options[key] for key in WATERMARK_KEYS if key in side.options}
    if not isinstance(chosen, _Watermark):
        return as_it_is
    column = next((f for f in fields if f.id == chosen.column_id), None)
    if column is None:
        found.append(
            MergeConflict(
                "DROP_VS_CHANGE",
                f"column '{side.options[ROWTIME]}' was dropped on one side, but the watermark of the other is "
                "defined by it",
                "define the watermark by another column, or by none.",
            )
        )
        return {}
    before = side.field_by_id(chosen.column_id)
    if before is not None and (before.name, before.type) == (column.name, column.type):
        return as_it_is  # other engines spell it in their own way
    return WatermarkDefinition(column.name, chosen.delay_millis).options(column.type)


def _defined(schema: TableSchema) -> _Watermark | tuple[str | None, ...] | None:
    """Parse the definition; as texts if only other engines understand it, None if there is none."""
    definition = watermark_definition(schema)
    if definition is not None:
        return _Watermark(schema.field(definition.column).id, definition.delay_millis)
    texts = tuple(schema.options.get(key) for key in (ROWTIME, EXPRESSION))
    return texts if any(texts) else None


def _definition(schema: TableSchema) -> str:
    return schema.options.get(EXPRESSION, "not defined")


def _value(value: str | None) -> str:
    return "not set" if value is None else f"'{value}'"
