"""Mapping of INSERT rows to the columns of the table, by the rules of Spark's own INSERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import SchemaError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.spark.sql.insert import Insert
from anabranch.spark.types.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField


def in_columns(
    frame: DataFrame, statement: Insert, schema: TableSchema, *, also: str | None = None
) -> DataFrame:
    """Return the rows with the names and types of the table; columns not named are left out.

    Args:
        frame: what the query gives.
        statement: says whether columns go by name or by place, and has values of partition columns.
        schema: of the table.
        also: a column that is used and not stored; it goes by name.

    Raises `SchemaError` for columns that are too few, too many, unknown, or of a type that cannot be stored.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    columns = {field.name.lower(): field for field in spark_schema(schema.fields)}
    places = [place for place, name in enumerate(frame.columns) if name != also]
    # Names of a query's columns may occur twice; places do not.
    plain, types = frame.toDF(*map(_at, range(len(frame.columns)))), [f.dataType for f in frame.schema.fields]
    fixed = {key: value for key, value in statement.partition.items() if value is not None}
    for name in (*fixed, *statement.columns):
        _known(columns, name, schema)
    named = [frame.columns[place] for place in places]
    targets = _targets(named, statement, schema, {name.lower() for name in fixed})
    given = [
        _stored(F.col(_at(place)), types[place], _known(columns, target, schema))
        for place, target in zip(places, targets, strict=True)
    ]
    constants = [
        F.expr(value).cast(columns[name.lower()].dataType).alias(columns[name.lower()].name)
        for name, value in fixed.items()
    ]
    beside = [F.col(_at(frame.columns.index(also))).alias(also)] if also in frame.columns else []
    return plain.select(*given, *constants, *beside)


def _at(place: int) -> str:
    return f"column_{place}"


def _targets(names: list[str], statement: Insert, schema: TableSchema, fixed: set[str]) -> list[str]:
    """Return the table column's name for each column of the rows."""
    if statement.by_name:
        return names
    targets = list(statement.columns) or [f.name for f in schema.fields if f.name.lower() not in fixed]
    if len(targets) != len(names):
        raise SchemaError(
            f"the rows have {len(names)} columns, but they are for {len(targets)}: {', '.join(targets)}",
            hint="name the columns they are for, INSERT INTO t (a, b), or write INSERT INTO t BY NAME.",
        )
    return targets


def _known(columns: dict[str, StructField], name: str, schema: TableSchema) -> StructField:
    found = columns.get(name.lower())
    if found is None:
        raise SchemaError(
            f"the table has no column '{name}'",
            hint=f"its columns are: {', '.join(f.name for f in schema.fields)}.",
        )
    return found


def _stored(column, there: DataType, target: StructField):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - PySpark's own
    """Convert the column to its stored type. Raises `SchemaError` where Spark's INSERT would refuse it too."""
    from pyspark.sql.types import BooleanType, NullType, NumericType, StringType

    wanted = target.dataType
    is_text, wants_text = isinstance(there, StringType), isinstance(wanted, StringType)
    unsafe = (
        (is_text and not wants_text and not isinstance(there, NullType))
        or (isinstance(there, BooleanType) and isinstance(wanted, NumericType))
        or (isinstance(there, NumericType) and not isinstance(wanted, NumericType | StringType))
    )
    if unsafe and there != wanted:
        raise SchemaError(
            f"cannot safely cast {there.simpleString()} to {wanted.simpleString()}, the type of '{target.name}'",
            hint=f"say in the query how: CAST(... AS {wanted.simpleString()}).",
        )
    return (column if there == wanted else column.cast(wanted)).alias(target.name)
