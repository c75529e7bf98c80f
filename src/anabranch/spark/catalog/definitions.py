"""Translation of CREATE TABLE and ALTER TABLE from Spark's terms into ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.schema import change as c
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import DataType
from anabranch.format.types.field_tree import After, First, Last, Position
from anabranch.kernel.scan.request import FORMATS
from anabranch.options import BUCKET, BUCKET_KEY, FILE_FORMAT
from anabranch.spark.catalog import java
from anabranch.spark.catalog.properties import (
    OWN_PREFIX,
    TableDefinition,
    set_properties,
    table_properties,
    unset_properties,
)
from anabranch.spark.types.columns import fields_from_spark, type_from_spark
from anabranch.table.alter import Alter

PROVIDER = "anabranch"
_BINARY = "UTF8_BINARY"
"""The collation that compares texts by their bytes."""


def definition(
    schema: Any, transforms: Any, properties: Any, *, default_provider: str | None = None
) -> TableDefinition:
    """Return the table definition for Spark's schema, transforms and properties.

    Args:
        schema: a ``StructType`` of the JVM.
        transforms: a ``Transform[]``: what stood in PARTITIONED BY and CLUSTERED BY.
        properties: a Java map: what stood in TBLPROPERTIES, OPTIONS, COMMENT, USING and LOCATION.
        default_provider: what Spark writes for USING where nobody named anything.

    Raises:
        UnsupportedFeatureError: Spark's grammar has it, tables do not.
        SchemaError: a column's type is none that a table can have.
    """
    given = java.python_map(properties)
    _check_location(given)
    _check_collation(given)
    partition_by, buckets = _placed(list(transforms))
    fields = fields_from_spark(java.python_struct(schema))
    options = {**_format(given, default_provider), **buckets, **table_properties(given)}
    return TableDefinition(fields, partition_by, options, given.get("comment"))


def like(schema: TableSchema, new: TableDefinition) -> TableDefinition:
    """Return the definition for CREATE TABLE LIKE: everything of the source table, overridden by `new`."""
    # The format of files is a matter of who writes them: that of another engine's table may be one we only read.
    kept = {k: v for k, v in schema.options.items() if not k.startswith(OWN_PREFIX) and k != FILE_FORMAT.key}
    return TableDefinition(
        schema.fields, tuple(schema.partition_keys), {**kept, **new.options}, schema.comment
    )


def _format(given: Mapping[str, str], default_provider: str | None) -> dict[str, str]:
    """Return the file format option for a USING clause."""
    provider = given.get("provider", PROVIDER).lower()
    if provider in (PROVIDER, default_provider):
        return {}
    if provider in FORMATS:
        return {FILE_FORMAT.key: provider}
    raise UnsupportedFeatureError(
        f"a table of this catalog cannot be made USING {provider}",
        feature="provider",
        hint=f"leave USING out, or name the format of its files: {', '.join(FORMATS)}.",
    )


def _check_location(given: Mapping[str, str]) -> None:
    if "location" in given or given.get("external") == "true":
        raise UnsupportedFeatureError(
            "a table of this catalog has no LOCATION of its own: it lies in the warehouse",
            feature="location",
            hint="leave LOCATION and EXTERNAL out.",
        )


def _check_collation(given: Mapping[str, str]) -> None:
    collation = given.get("collation", _BINARY)
    if collation != _BINARY:
        raise UnsupportedFeatureError(
            f"a table has no DEFAULT COLLATION: its texts are compared as they are, not by {collation}",
            feature="collation",
            hint=f"leave it out, and compare with COLLATE: WHERE name COLLATE {collation} = 'x'.",
        )


def _placed(transforms: Sequence[Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the partition columns and the bucket options."""
    keys: list[str] = []
    buckets: dict[str, str] = {}
    for transform in transforms:
        names = [list(reference.fieldNames()) for reference in transform.references()]
        plain = all(len(name) == 1 for name in names)
        match str(transform.name()):
            case "identity" if plain:
                keys.append(names[0][0])
            case "bucket" if plain:
                count = transform.numBuckets().value()
                buckets = {BUCKET.key: str(count), BUCKET_KEY.key: ",".join(name[0] for name in names)}
            case "sorted_bucket":
                raise UnsupportedFeatureError(
                    "the rows of a bucket are not kept sorted by the table itself",
                    feature="sorted-buckets",
                    hint="leave sortBy out, and sort the table when it is compacted: CALL lake.sys.sort_compact(...).",
                )
            case "cluster_by":
                raise UnsupportedFeatureError(
                    "CLUSTER BY is not kept by the table itself",
                    feature="cluster-by",
                    hint="leave it out, and sort the table when it is compacted: CALL lake.sys.sort_compact(...).",
                )
            case _:
                raise UnsupportedFeatureError(
                    f"a table cannot be partitioned by {transform.toString()}, only by columns as they are",
                    feature="partition-transforms",
                    hint="add a column with that value, and partition by it.",
                )
    return tuple(keys), buckets


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


def _changes(change: Any) -> list[c.SchemaChange]:
    match change.getClass().getSimpleName():
        case "SetProperty":
            return set_properties({change.property(): change.value()})
        case "RemoveProperty":
            return unset_properties([change.property()])
    return [_column_change(change)]


def _column_change(change: Any) -> c.SchemaChange:
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
            return c.AddColumn(name, new, change.comment(), _position(change.position()) or Last())
        case "DeleteColumn":
            return c.DropColumn(name)
        case "RenameColumn":
            return c.RenameColumn(name, change.newName())
        case "UpdateColumnType":
            return c.WidenColumn(name, _type(change.newDataType(), nullable=True, where=".".join(name)))
        case "UpdateColumnNullability":
            return c.SetNullable(name, change.nullable())
        case "UpdateColumnComment":
            return c.SetColumnComment(name, change.newComment())
        case "UpdateColumnPosition":
            return c.MoveColumn(name, _position(change.position()) or Last())
    raise UnsupportedFeatureError(
        f"column '{'.'.join(name)}' cannot be changed by {change.toString()}", feature="table-change"
    )


def _type(data_type: Any, *, nullable: bool, where: str) -> DataType:
    return type_from_spark(java.python_type(data_type), nullable=nullable, where=where)


def _position(position: Any) -> Position | None:
    if position is None:
        return None
    return After(position.column()) if position.getClass().getSimpleName() == "After" else First()
