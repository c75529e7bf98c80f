"""Translation of ALTER TABLE from Spark's changes into ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.schema.change import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetNullable,
    WidenColumn,
)
from anabranch.format.types.data_types import DataType
from anabranch.format.types.field_tree import After, First, Last, Position
from anabranch.spark.catalog import java
from anabranch.spark.catalog.properties import set_properties, unset_properties
from anabranch.spark.types.columns import type_from_spark
from anabranch.table.alter import Alter

_DEFAULT = "a column's DEFAULT"
_REFUSED = {
    "UpdateColumnDefaultValue": _DEFAULT,
    "ClusterBy": "CLUSTER BY",
    "AddConstraint": "a constraint",
    "DropConstraint": "a constraint",
}


def altered(alter: Alter, changes: Sequence[Any]) -> Alter:
    """Return `alter` with Spark's changes added to it.

    Raises `UnsupportedFeatureError` for a change that tables do not have, `SchemaError` for a type.
    """
    for change in changes:
        for ours in _changes(change):
            alter = alter.with_change(ours)
    return alter


def _changes(change: Any) -> list[SchemaChange]:
    match change.getClass().getSimpleName():
        case "SetProperty":
            return set_properties({change.property(): change.value()})
        case "RemoveProperty":
            return unset_properties([change.property()])
    return [_column_change(change)]


def _column_change(change: Any) -> SchemaChange:
    kind = change.getClass().getSimpleName()
    refused = _REFUSED.get(kind)
    if kind == "AddColumn" and change.defaultValue() is not None:
        refused = _DEFAULT
    if refused is not None:
        raise UnsupportedFeatureError(
            f"tables do not have {refused}", feature="table-change", hint="leave it out."
        )
    name = tuple(change.fieldNames())
    match kind:
        case "AddColumn":
            new = _type(change.dataType(), nullable=change.isNullable(), where=".".join(name))
            return AddColumn(name, new, change.comment(), _position(change.position()) or Last())
        case "DeleteColumn":
            return DropColumn(name)
        case "RenameColumn":
            return RenameColumn(name, change.newName())
        case "UpdateColumnType":
            return WidenColumn(name, _type(change.newDataType(), nullable=True, where=".".join(name)))
        case "UpdateColumnNullability":
            return SetNullable(name, change.nullable())
        case "UpdateColumnComment":
            return SetColumnComment(name, change.newComment())
        case "UpdateColumnPosition":
            return MoveColumn(name, _position(change.position()) or Last())
    raise UnsupportedFeatureError(
        f"column '{'.'.join(name)}' cannot be changed by {change.toString()}", feature="table-change"
    )


def _type(data_type: Any, *, nullable: bool, where: str) -> DataType:
    return type_from_spark(java.python_type(data_type), nullable=nullable, where=where)


def _position(position: Any) -> Position | None:
    if position is None:
        return None
    return After(position.column()) if position.getClass().getSimpleName() == "After" else First()
