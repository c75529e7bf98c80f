"""Types between Spark and tables; no JVM is needed."""

import inspect

import pyarrow as pa
import pytest
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.data_types import Field
from anabranch.spark.types.columns import arrow_schema, fields_from_spark, spark_schema, type_from_spark

NOT_NULL = {"nullable": False}
ALL_TYPES = [
    t.BooleanType(),
    t.TinyIntType(**NOT_NULL),
    t.SmallIntType(),
    t.IntType(),
    t.BigIntType(**NOT_NULL),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(38, 18),
    t.DateType(),
    t.TimeType(3),
    *(t.TimestampType(p) for p in (0, 3, 6, 9)),
    *(t.LocalZonedTimestampType(p) for p in (0, 3, 6, 9)),
    t.CharType(3),
    t.VarCharType(7),
    t.VarCharType(),
    t.BinaryType(3),
    t.VarBinaryType(),
    t.ArrayType(t.IntType(**NOT_NULL)),
    t.ArrayType(t.LocalZonedTimestampType(9)),
    t.MapType(t.VarCharType(**NOT_NULL), t.DoubleType()),
    t.MultisetType(t.VarCharType()),
    t.RowType((Field(7, "a", t.BigIntType(**NOT_NULL)), Field(8, "b", t.ArrayType(t.TimeType(0))))),
]
FIELDS = tuple(Field(i, f"c{i}", data_type) for i, data_type in enumerate(ALL_TYPES))


def test_arrow_types_are_exactly_those_that_spark_expects():
    # Spark refuses batches whose schema differs in anything from its own mapping.
    zone = "timezone" if "timezone" in inspect.signature(to_arrow_schema).parameters else "timestamp_utc"
    expected = to_arrow_schema(spark_schema(FIELDS), **{zone: "UTC"})
    assert arrow_schema(FIELDS).equals(expected)


@pytest.mark.parametrize(
    ("spark", "table"),
    [
        (st.BooleanType(), t.BooleanType()),
        (st.ByteType(), t.TinyIntType()),
        (st.ShortType(), t.SmallIntType()),
        (st.IntegerType(), t.IntType()),
        (st.LongType(), t.BigIntType()),
        (st.FloatType(), t.FloatType()),
        (st.DoubleType(), t.DoubleType()),
        (st.DecimalType(20, 5), t.DecimalType(20, 5)),
        (st.DateType(), t.DateType()),
        (st.TimestampType(), t.LocalZonedTimestampType(6)),
        (st.TimestampNTZType(), t.TimestampType(6)),
        (st.TimeType(3), t.TimeType(3)),
        (st.StringType(), t.VarCharType()),
        (st.CharType(4), t.CharType(4)),
        (st.VarcharType(9), t.VarCharType(9)),
        (st.BinaryType(), t.VarBinaryType()),
        (st.ArrayType(st.LongType(), False), t.ArrayType(t.BigIntType(nullable=False))),
        (
            st.MapType(st.StringType(), st.ArrayType(st.ByteType()), False),
            t.MapType(t.VarCharType(nullable=False), t.ArrayType(t.TinyIntType(), nullable=False)),
        ),
    ],
)
def test_types_from_spark(spark, table):
    assert type_from_spark(spark) == table
    assert type_from_spark(spark, nullable=False) == table.with_nullable(False)


def test_columns_get_ids_comments_and_nested_fields():
    schema = (
        st.StructType()
        .add("id", st.LongType(), nullable=False)
        .add("place", st.StructType().add("x", st.DoubleType()).add("y", st.DoubleType(), False))
        .add("v", st.StringType(), metadata={"comment": "the value"})
        .add("code", st.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    )
    fields = fields_from_spark(schema)
    assert [(f.id, f.name, f.type.spelling, f.type.nullable) for f in fields] == [
        (0, "id", "BIGINT", False),
        (1, "place", "ROW<x DOUBLE, y DOUBLE NOT NULL>", True),
        (4, "v", "STRING", True),
        (5, "code", "CHAR(5)", True),
    ]
    assert [f.id for f in fields[1].type.fields] == [2, 3]
    assert fields[2].description == "the value"
    assert spark_schema(fields)["v"].metadata == {"comment": "the value"}


@pytest.mark.parametrize(
    ("spark", "advice"),
    [
        (st.NullType(), "give the column a type"),
        (st.VariantType(), "to_json"),
        (st.TimeType(6), "TIME(3)"),
        (st.DayTimeIntervalType(), "BIGINT"),
        (st.StringType("UNICODE_CI"), "without a collation"),
    ],
)
def test_types_that_no_table_holds_are_refused_with_advice(spark, advice):
    schema = st.StructType().add("a", st.ArrayType(st.StructType().add("inner", spark)))
    with pytest.raises(SchemaError, match=r"a\.element\.inner") as caught:
        fields_from_spark(schema)
    assert advice in caught.value.hint


def test_arrow_schema_keeps_nullability_inside_types():
    schema = arrow_schema(FIELDS)
    assert not schema.field("c1").nullable
    assert schema.field("c9").type == pa.int32()
    assert not schema.field("c23").type.value_field.nullable
