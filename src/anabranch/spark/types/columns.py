"""Mapping of column types between Spark and a table.

| Table                        | Spark                   |
|------------------------------|-------------------------|
| BOOLEAN, TINYINT .. DOUBLE   | Boolean, Byte .. Double |
| DECIMAL(p, s), DATE          | the same                |
| CHAR, VARCHAR, STRING        | String                  |
| BINARY, VARBINARY, BYTES     | Binary                  |
| TIME(p)                      | Integer, milliseconds of the day |
| TIMESTAMP(p)                 | TimestampNTZ            |
| TIMESTAMP(p) WITH LOCAL TIME ZONE | Timestamp          |
| ARRAY, MAP, ROW              | Array, Map, Struct      |
| MULTISET<t>                  | Map<t, Integer>         |

Spark's timestamps have microseconds: digits 7 to 9 of a TIMESTAMP(7..9) are cut off (towards the past) on
reading. Writing loses nothing: a value with more digits than its column is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import PLAIN_ARROW
from anabranch.format.types.field_tree import assign_field_ids

_TO_SPARK: dict[type[t.DataType], st.DataType] = {
    t.BooleanType: st.BooleanType(),
    t.TinyIntType: st.ByteType(),
    t.SmallIntType: st.ShortType(),
    t.IntType: st.IntegerType(),
    t.BigIntType: st.LongType(),
    t.FloatType: st.FloatType(),
    t.DoubleType: st.DoubleType(),
    t.DateType: st.DateType(),
    t.TimeType: st.IntegerType(),
    t.TimestampType: st.TimestampNTZType(),
    t.LocalZonedTimestampType: st.TimestampType(),
    t.CharType: st.StringType(),
    t.VarCharType: st.StringType(),
    t.BinaryType: st.BinaryType(),
    t.VarBinaryType: st.BinaryType(),
}
_FROM_SPARK: dict[type[st.DataType], type[t.DataType]] = {
    st.BooleanType: t.BooleanType,
    st.ByteType: t.TinyIntType,
    st.ShortType: t.SmallIntType,
    st.IntegerType: t.IntType,
    st.LongType: t.BigIntType,
    st.FloatType: t.FloatType,
    st.DoubleType: t.DoubleType,
    st.DateType: t.DateType,
    st.TimestampType: t.LocalZonedTimestampType,
    st.TimestampNTZType: t.TimestampType,
    st.BinaryType: t.VarBinaryType,
}
_COMMENT = "comment"
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR_SPELLING = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)


def spark_schema(fields: Iterable[t.Field]) -> st.StructType:
    """Return the Spark schema of a table's columns, with their comments."""
    return st.StructType(
        [
            st.StructField(
                f.name,
                spark_type(f.type),
                f.type.nullable,
                {_COMMENT: f.description} if f.description else None,
            )
            for f in fields
        ]
    )


def spark_schema_json(fields: Iterable[t.Field]) -> str:
    """Return the Spark schema of a table's columns as JSON."""
    return _schema_json(tuple(fields))


@lru_cache(
    maxsize=512
)  # PySpark takes a millisecond for thirty columns, and planning asks for the same again and again
def _schema_json(fields: tuple[t.Field, ...]) -> str:
    return spark_schema(fields).json()


def catalog_schema_json(fields: Iterable[t.Field]) -> str:
    """Return the columns for Spark's catalog as JSON: with the lengths of texts, for ALTER TABLE and INSERT.

    CHAR(n) is told as VARCHAR(n): of a CHAR Spark would pad every value that it reads, compare the padded ones, and
    let no filter on it reach the files. Lengths inside of other types are not told.
    """
    return _catalog_json(tuple(fields))


@lru_cache(maxsize=512)
def _catalog_json(fields: tuple[t.Field, ...]) -> str:
    schema = spark_schema(fields)
    for field, ours in zip(schema, (f.type for f in fields), strict=True):
        if isinstance(ours, t.CharType | t.VarCharType) and ours.length < t.MAX_LENGTH:
            field.metadata = {**(field.metadata or {}), _CHAR_METADATA: f"varchar({ours.length})"}
    return schema.json()


def spark_type(data_type: t.DataType) -> st.DataType:
    """Return the Spark type in which values of `data_type` are read and written."""
    match data_type:
        case t.DecimalType(precision=precision, scale=scale):
            return st.DecimalType(precision, scale)
        case t.ArrayType(element=element):
            return st.ArrayType(spark_type(element), element.nullable)
        case t.MapType(key=key, value=value):
            return st.MapType(spark_type(key), spark_type(value), value.nullable)
        case t.MultisetType(element=element):
            return st.MapType(spark_type(element), st.IntegerType(), valueContainsNull=False)
        case t.RowType(fields=fields):
            return spark_schema(fields)
        case _:
            return _TO_SPARK[type(data_type)]


def fields_from_spark(schema: st.StructType) -> tuple[t.Field, ...]:
    """Return columns for a new table, with field ids. Raises `SchemaError` for types a table cannot hold."""
    return assign_field_ids(_fields(schema, ""))[0]


def frame_columns(frame: Any) -> tuple[t.Field, ...] | None:
    """Return the columns of a DataFrame; None if it is not one. Raises `SchemaError` for types a table cannot hold."""
    schema = getattr(frame, "schema", None)
    return fields_from_spark(schema) if isinstance(schema, st.StructType) else None


def type_from_spark(spark: st.DataType, *, nullable: bool = True, where: str = "the type") -> t.DataType:
    """Return the table type for a Spark type. Raises `SchemaError` naming `where`."""
    simple = _FROM_SPARK.get(type(spark))
    if simple is not None:
        return simple(nullable=nullable)
    match spark:
        case st.DecimalType():
            return t.DecimalType(spark.precision, spark.scale, nullable=nullable)
        case st.CharType():
            return t.CharType(spark.length, nullable=nullable)
        case st.VarcharType():
            return t.VarCharType(spark.length, nullable=nullable)
        case st.StringType() if spark.collation == "UTF8_BINARY":
            return t.VarCharType(nullable=nullable)
        case st.TimeType() if spark.precision <= 3:
            return t.TimeType(spark.precision, nullable=nullable)
        case st.ArrayType():
            element = type_from_spark(
                spark.elementType, nullable=spark.containsNull, where=f"{where}.element"
            )
            return t.ArrayType(element, nullable=nullable)
        case st.MapType():
            key = type_from_spark(spark.keyType, nullable=False, where=f"{where}.key")
            value = type_from_spark(spark.valueType, nullable=spark.valueContainsNull, where=f"{where}.value")
            return t.MapType(key, value, nullable=nullable)
        case st.StructType():
            return t.RowType(_fields(spark, f"{where}."), nullable=nullable)
    raise SchemaError(
        f"{where} has Spark type {spark.simpleString()}, which no column of a table can hold",
        hint=_advice(spark),
    )


def _fields(schema: st.StructType, prefix: str) -> tuple[t.Field, ...]:
    return tuple(
        t.Field(-1, f.name, _field_type(f, f"{prefix}{f.name}"), (f.metadata or {}).get(_COMMENT))
        for f in schema
    )


def _field_type(field: st.StructField, where: str) -> t.DataType:
    # Spark hides CHAR(n) and VARCHAR(n) of a DDL text in the metadata of a string column.
    spelled = _CHAR_SPELLING.fullmatch(str((field.metadata or {}).get(_CHAR_METADATA, "")))
    if spelled is not None:
        kind = t.CharType if spelled[1].lower() == "char" else t.VarCharType
        return kind(int(spelled[2]), nullable=field.nullable)
    return type_from_spark(field.dataType, nullable=field.nullable, where=where)


def _advice(spark: st.DataType) -> str:
    match spark:
        case st.TimeType():
            return "times of day are stored in milliseconds: cast it to TIME(3), or to a string."
        case st.StringType():
            return "cast it to a string without a collation."
        case st.NullType():
            return "give the column a type, for example CAST(NULL AS STRING)."
        case st.VariantType():
            return "keep it as text: to_json(column)."
        case st.DayTimeIntervalType() | st.YearMonthIntervalType():
            return "store its length as a number, for example CAST(column AS BIGINT)."
        case _:
            return "cast it to a type that tables have."


def arrow_schema(fields: Sequence[t.Field]) -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows of these columns from a Python source."""
    return pa.schema([_arrow_field(f.name, f.type) for f in fields])


def arrow_type(data_type: t.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark takes values of a column from a Python source.

    Spelled out here rather than asked of Spark, because where Spark keeps its own mapping, and with which
    parameters, changes from version to version; a test compares the two.
    """
    match data_type:
        case t.TimeType():
            return pa.int32()
        case t.TimestampType():
            return pa.timestamp("us")
        case t.LocalZonedTimestampType():
            return pa.timestamp("us", tz="UTC")
        case t.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case t.ArrayType(element=element):
            return pa.list_(_arrow_field("element", element))
        case t.MapType(key=key, value=value):
            return pa.map_(_arrow_field("key", key.with_nullable(False)), _arrow_field("value", value))
        case t.MultisetType(element=element):
            return arrow_type(t.MapType(element, t.IntType(nullable=False)))
        case t.RowType(fields=fields):
            return pa.struct([_arrow_field(f.name, f.type) for f in fields])
        case _:
            return PLAIN_ARROW[type(data_type)]


def _arrow_field(name: str, data_type: t.DataType) -> Any:
    return pa.field(name, arrow_type(data_type), nullable=data_type.nullable)
