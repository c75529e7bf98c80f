"""The forms in which users hand in a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.schema.ddl import ColumnList, parse_column_list
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import fields_from_arrow
from anabranch.format.types.data_types import Field


def to_columns(schema: Any) -> ColumnList:
    """Columns of a `pyarrow.Schema`, a `TableSchema`, fields, a Spark StructType or DDL text.

    Only DDL text can define a watermark beside them. Raises `SchemaError` for anything else.
    """
    match schema:
        case str():
            return parse_column_list(schema)
        case pa.Schema():
            return ColumnList(fields_from_arrow(schema))
        case TableSchema():
            return ColumnList(schema.fields)
        case [*fields] if all(isinstance(f, Field) for f in fields):
            return ColumnList(tuple(fields))
    if type(schema).__module__.startswith("pyspark."):
        from anabranch.spark.types.columns import fields_from_spark

        return ColumnList(fields_from_spark(schema))
    raise SchemaError(
        f"cannot read a schema from {type(schema).__name__}",
        hint="pass a pyarrow.Schema, a Spark StructType, or text such as 'id BIGINT NOT NULL, v STRING'.",
    )
