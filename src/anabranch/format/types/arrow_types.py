"""Types of the table as Arrow types, and back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Literal

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.field_tree import assign_field_ids
from anabranch.format.types.grammar import MAX_DEPTH, UNASSIGNED_ID


def to_arrow_type(data_type: t.DataType) -> pa.DataType:
    """The Arrow type of a column.

    Text is string and bytes binary whatever their length; DECIMAL is decimal128, TIME time32[ms];
    timestamps take the unit s, ms, us or ns for up to 0, 3, 6 or 9 digits, and UTC with a local zone. A
    MULTISET is a map from element to its count.
    """
    simple = PLAIN_ARROW.get(type(data_type))
    if simple is not None:
        return simple
    match data_type:
        case t.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case t.TimestampType(precision=precision):
            return _timestamp(precision, None)
        case t.LocalZonedTimestampType(precision=precision):
            return _timestamp(precision, "UTC")
        case t.ArrayType(element=element):
            return pa.list_(_inner("element", element))
        case t.MapType(key=key, value=value):
            return pa.map_(to_arrow_type(key), _inner("value", value))
        case t.MultisetType(element=element):
            return pa.map_(to_arrow_type(element), _inner("value", t.IntType(nullable=False)))
        case t.RowType(fields=fields):
            return pa.struct([to_arrow_field(f) for f in fields])
        case _:
            raise AssertionError(data_type)


def to_arrow_field(f: t.Field) -> pa.Field[Any]:
    """The Arrow field of a column: name, type and nullability, nothing else."""
    return pa.field(f.name, to_arrow_type(f.type), nullable=f.type.nullable)


def to_arrow_schema(fields: Iterable[t.Field]) -> pa.Schema:
    """The Arrow schema of rows with these columns."""
    return _schema_of(_Same(fields)) if isinstance(fields, tuple) else _made(fields)


@lru_cache(maxsize=64)
def _schema_of(fields: _Same) -> pa.Schema:
    """That of a table, which is asked for at every write, and may have thousands of columns."""
    return _made(fields.fields)


def _made(fields: Iterable[t.Field]) -> pa.Schema:
    return pa.schema([to_arrow_field(f) for f in fields])


class _Same:
    """Fields that are the same only as themselves: to compare thousands takes as long as what it would save."""

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[t.Field, ...]) -> None:
        self.fields = fields

    def __hash__(self) -> int:
        return id(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.fields is other.fields


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table with these columns and no row."""
    # Not Schema.empty_table, which imports pandas where it is installed: that takes longer than planning a small table.
    return pa.Table.from_batches([], schema)


def from_arrow_type(arrow: pa.DataType, nullable: bool = True) -> t.DataType:
    """The column type that holds every value of an Arrow type. Fields of rows get the id -1.

    Timestamps get 0, 3, 6 or 9 digits for the unit s, ms, us or ns, and a local zone if they have any zone.

    Raises:
        SchemaError: there is none: unsigned integers, date64, durations, dictionaries and others.
    """
    return _from_arrow(arrow, 1).with_nullable(nullable)


def fields_from_arrow(schema: pa.Schema) -> tuple[t.Field, ...]:
    """The columns of an Arrow schema, numbered as those of a new table; metadata ``description`` is kept.

    Raises:
        SchemaError: a column has a type that no column type can hold; names the column.
    """
    return assign_field_ids(_field(f, 1) for f in schema)[0]


PLAIN_ARROW: dict[type[t.DataType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.TinyIntType: pa.int8(),
    t.SmallIntType: pa.int16(),
    t.IntType: pa.int32(),
    t.BigIntType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimeType: pa.time32("ms"),
    t.CharType: pa.string(),
    t.VarCharType: pa.string(),
    t.BinaryType: pa.binary(),
    t.VarBinaryType: pa.binary(),
}
"""Of types without parameters that matter."""
_FROM_ARROW: dict[pa.DataType, t.DataType] = {
    pa.bool_(): t.BooleanType(),
    pa.int8(): t.TinyIntType(),
    pa.int16(): t.SmallIntType(),
    pa.int32(): t.IntType(),
    pa.int64(): t.BigIntType(),
    pa.float32(): t.FloatType(),
    pa.float64(): t.DoubleType(),
    pa.date32(): t.DateType(),
    pa.string(): t.VarCharType(),
    pa.large_string(): t.VarCharType(),
    pa.string_view(): t.VarCharType(),
    pa.binary(): t.VarBinaryType(),
    pa.large_binary(): t.VarBinaryType(),
    pa.binary_view(): t.VarBinaryType(),
}
_Unit = Literal["s", "ms", "us", "ns"]
_TIMESTAMP_DIGITS: dict[_Unit, int] = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _timestamp_unit(precision: int) -> _Unit:
    return next(unit for unit, digits in _TIMESTAMP_DIGITS.items() if precision <= digits)


@cache
def _timestamp(precision: int, zone: str | None) -> pa.DataType:
    return pa.timestamp(_timestamp_unit(precision), tz=zone)


def _inner(name: str, data_type: t.DataType) -> Any:
    return pa.field(name, to_arrow_type(data_type), nullable=data_type.nullable)


def _from_arrow(arrow: pa.DataType, depth: int) -> t.DataType:
    if depth > MAX_DEPTH:
        raise SchemaError(f"types are nested more than {MAX_DEPTH} deep")
    simple = _FROM_ARROW.get(arrow)
    if simple is not None:
        return simple
    kinds = pa.types
    if kinds.is_fixed_size_binary(arrow) and arrow.byte_width > 0:
        return t.BinaryType(arrow.byte_width)
    if kinds.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return t.DecimalType(arrow.precision, arrow.scale)
    if kinds.is_time(arrow):
        return t.TimeType()
    if kinds.is_timestamp(arrow):
        digits = _TIMESTAMP_DIGITS[arrow.unit]
        return t.TimestampType(digits) if arrow.tz is None else t.LocalZonedTimestampType(digits)
    if kinds.is_map(arrow):
        key = _from_arrow(arrow.key_type, depth + 1).with_nullable(False)
        return t.MapType(
            key, _from_arrow(arrow.item_type, depth + 1).with_nullable(arrow.item_field.nullable)
        )
    if kinds.is_struct(arrow):
        return t.RowType(tuple(_field(inner, depth + 1) for inner in arrow.fields))
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return t.ArrayType(_from_arrow(arrow.value_type, depth + 1).with_nullable(arrow.value_field.nullable))
    raise SchemaError(f"no column type holds Arrow's {arrow}", hint=_advice(arrow))


def _field(f: pa.Field[Any], depth: int) -> t.Field:
    try:
        data_type = _from_arrow(f.type, depth).with_nullable(f.nullable)
    except SchemaError as error:
        raise SchemaError(f"column '{f.name}': {error.message}", hint=error.hint) from error
    description = (f.metadata or {}).get(b"description")
    return t.Field(
        UNASSIGNED_ID,
        f.name,
        data_type,
        None if description is None else description.decode("utf-8", "replace"),
    )


def _advice(arrow: pa.DataType) -> str:
    kinds = pa.types
    if kinds.is_unsigned_integer(arrow):
        wider = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}.get(str(arrow), "decimal128(20, 0)")
        return f"cast the column to {wider}."
    if kinds.is_dictionary(arrow):
        return f"cast the column to {arrow.value_type}."
    if kinds.is_date64(arrow):
        return "cast the column to date32, or to timestamp('ms') if it has times of day."
    if kinds.is_float16(arrow):
        return "cast the column to float32."
    if kinds.is_duration(arrow):
        return "cast the column to int64 and say the unit in its name."
    if kinds.is_null(arrow):
        return "the column has no type of its own; cast it to the one it should have."
    return "cast the column to a supported type."
