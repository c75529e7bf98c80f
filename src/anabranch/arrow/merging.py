"""Schema changes for rows with more, or wider, columns than the table has.

What changes by itself is what loses nothing and surprises nobody: a column that the table lacks is added, nullable, and a
column is widened within its kind: integers, FLOAT to DOUBLE, DECIMAL, VARCHAR. Everything else is refused with the call
that does it on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.arrow.convert import fit
from anabranch.errors import SchemaError
from anabranch.format.schema.change import AddColumn, SchemaChange, WidenColumn
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.widening import common_type, is_wider

_KINDS: tuple[tuple[type[t.DataType], ...], ...] = (
    (t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType),
    (t.FloatType, t.DoubleType),
    (t.DecimalType,),
    (t.VarCharType,),
)
"""Types of one kind. Integers do not become DOUBLE: pandas does that if a number is missing."""


def merging_changes(schema: TableSchema, incoming: Sequence[t.Field]) -> list[SchemaChange]:
    """Return the changes after which the table can take rows with these columns; none if it can already.

    Raises:
        SchemaError: a column has another kind of type, or differs from one of the table's only in upper and lower case.
    """
    fixed = {*schema.partition_keys, *schema.bucket_keys}
    return _members(schema.fields, incoming, (), fixed)


def _members(
    mine: Sequence[t.Field], others: Sequence[t.Field], parents: tuple[str, ...], fixed: set[str]
) -> list[SchemaChange]:
    by_name = {f.name: f for f in mine}
    by_lower = {f.name.lower(): f.name for f in mine}
    changes: list[SchemaChange] = []
    for other in others:
        path = (*parents, other.name)
        if other.name in by_name:
            is_fixed = not parents and other.name in fixed
            changes += _types(by_name[other.name].type, other.type, path, is_fixed=is_fixed)
            continue
        near = by_lower.get(other.name.lower())
        if near is not None:
            raise SchemaError(
                f"the data has a column '{'.'.join(path)}', the table '{'.'.join((*parents, near))}': they differ in "
                "upper and lower case only, so no column is added",
                hint=f"rename the column of the data to '{near}'.",
            )
        by_lower[other.name.lower()] = other.name
        changes.append(AddColumn(path, other.type.with_nullable(True), other.description))
    return changes


def _types(old: t.DataType, new: t.DataType, path: tuple[str, ...], *, is_fixed: bool) -> list[SchemaChange]:
    match old, new:
        case t.RowType(fields=mine), t.RowType(fields=others):
            return _members(mine, others, path, set())
        case t.ArrayType(element=mine), t.ArrayType(element=other):
            return _types(mine, other, (*path, "element"), is_fixed=False)
        case (t.MapType(), t.MapType()) if is_wider(new.key, old.key):
            return _types(old.value, new.value, (*path, "value"), is_fixed=False)
    if is_wider(new, old):
        return []
    wider = common_type(old, new)
    if wider is not None and not is_fixed and _is_of_one_kind(old, wider) and is_wider(old, wider):
        return [WidenColumn(path, wider.with_nullable(old.nullable))]
    if not _may_fit(new, old, path):
        raise _refusal(old, new, path)
    return []  # each value is looked at when it is written, as by any append


def _is_of_one_kind(old: t.DataType, new: t.DataType) -> bool:
    return any(isinstance(old, kind) and isinstance(new, kind) for kind in _KINDS)


def _may_fit(new: t.DataType, old: t.DataType, path: tuple[str, ...]) -> bool:
    """Whether some values of one type may be values of the other."""
    try:
        fit(pa.array([], to_arrow_type(new)), old.with_nullable(True), path[-1])
    except SchemaError:
        return False
    return True


def _refusal(old: t.DataType, new: t.DataType, path: tuple[str, ...]) -> SchemaError:
    name = ".".join(path)
    if is_wider(old, new):
        hint = f"convert the data, or widen the column on purpose: t.alter().widen_column('{name}', '{new.spelling}').apply()."
    else:
        hint = (
            f"convert the data to {old.spelling}, or give the values a column of their own: "
            f"t.alter().add_column('{name}_2', '{new.spelling}').apply()."
        )
    return SchemaError(
        f"column '{name}' is {old.spelling}, but the data has {new.spelling}, which no column becomes by itself",
        hint=hint,
    )
