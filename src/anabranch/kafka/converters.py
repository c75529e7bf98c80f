"""Strict conversion of JSON, CSV and Avro values to column types: what does not fit is an error, never a NULL."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.types import data_types as t

Convert = Callable[[Any], Any]


class BadValueError(Exception):
    """A value cannot be converted; the message is a predicate that follows the value's name."""


_BITS: Final[dict[type[t.DataType], int]] = {
    t.TinyIntType: 8,
    t.SmallIntType: 16,
    t.IntType: 32,
    t.BigIntType: 64,
    t.TimeType: 32,
}
_ARROW: Final[dict[type[t.DataType], pa.DataType]] = {
    t.BooleanType: pa.bool_(),
    t.TinyIntType: pa.int8(),
    t.SmallIntType: pa.int16(),
    t.IntType: pa.int32(),
    t.BigIntType: pa.int64(),
    t.TimeType: pa.int32(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us"),
    t.LocalZonedTimestampType: pa.timestamp("us", tz="UTC"),
    t.CharType: pa.string(),
    t.VarCharType: pa.string(),
    t.BinaryType: pa.binary(),
    t.VarBinaryType: pa.binary(),
}
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def arrow_of(data_type: t.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark takes values of a column. Raises `UnsupportedFeatureError`."""
    match data_type:
        case t.DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case t.ArrayType(element=element):
            return pa.list_(arrow_of(element))
        case t.MapType(key=t.CharType() | t.VarCharType(), value=value):
            return pa.map_(pa.string(), arrow_of(value))
        case t.RowType(fields=fields):
            return struct_of(fields)
    found = _ARROW.get(type(data_type))
    if found is None:
        raise UnsupportedFeatureError(
            f"values of records cannot be read as {data_type.spelling}",
            feature="kafka-value-type",
            hint="maps have keys of text; read other types as STRING and convert them in the query.",
        )
    return found


def struct_of(fields: Sequence[t.Field]) -> pa.StructType:
    """Return the Arrow struct type of all columns. Raises as `arrow_of`."""
    return pa.struct([(f.name, arrow_of(f.type)) for f in fields])


def row_of(fields: Sequence[t.Field], zone: ZoneInfo) -> Convert:
    """Return a converter from a JSON object to a row, by the exact names of columns.

    Keys that are no column are left out. A key that differs from a column in upper and lower case only, or an object
    without any of the columns, is an error: they would become NULLs.
    """
    columns = [(f.name, of_json(f.type, zone), f.type.nullable) for f in fields]
    names = {f.name for f in fields}
    lower = {f.name.lower(): f.name for f in fields}

    def convert(found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise BadValueError(f"is {_kind(found)}, and no object")
        if names.isdisjoint(found):
            raise BadValueError(
                f"has none of the columns {', '.join(sorted(names)[:10])}{_case_hint(found, lower)}"
            )
        row = {name: _column(name, convert, found.get(name), nullable) for name, convert, nullable in columns}
        for key in found.keys() - names:
            name = lower.get(key.lower())
            if name is not None and name not in found:
                raise BadValueError(f"has the key '{key}', and the column is '{name}'")
        return row

    return convert


def row_of_texts(fields: Sequence[t.Field], zone: ZoneInfo) -> Convert:
    """Return a converter from the texts of a CSV line to a row, by position; an empty text is NULL."""
    columns = [(f.name, of_text(f.type, zone), f.type.nullable) for f in fields]

    def convert(found: Sequence[str]) -> dict[str, Any]:
        if len(found) != len(columns):
            raise BadValueError(f"has {len(found)} values for {len(columns)} columns")
        return {
            name: _column(name, convert, text or None, nullable)
            for (name, convert, nullable), text in zip(columns, found, strict=True)
        }

    return convert


def of_json(data_type: t.DataType, zone: ZoneInfo) -> Convert:
    """Return a converter from JSON values, or Avro's, which also has bytes, dates and times of its own."""
    match data_type:
        case t.BooleanType():
            return _boolean
        case t.FloatType() | t.DoubleType():
            return _double
        case t.DecimalType(precision=precision, scale=scale):
            return lambda value: _decimal(value, precision, scale)
        case t.CharType() | t.VarCharType():
            return _text
        case t.BinaryType() | t.VarBinaryType():
            return _bytes
        case t.DateType():
            return _date
        case t.TimestampType():
            return _local_time
        case t.LocalZonedTimestampType():
            return lambda value: _instant(value, zone)
        case t.ArrayType(element=element):
            return _array(of_json(element, zone), nullable=element.nullable)
        case t.MapType(value=inner):
            return _map(of_json(inner, zone), nullable=inner.nullable)
        case t.RowType(fields=fields):
            return row_of(fields, zone)
    bits = _BITS[type(data_type)]
    return lambda value: _integer(value, bits)


def of_text(data_type: t.DataType, zone: ZoneInfo) -> Convert:
    """Return a converter from text that is not JSON. Raises `UnsupportedFeatureError` for nested types."""
    match data_type:
        case t.BooleanType():
            return _boolean_text
        case t.FloatType() | t.DoubleType() | t.DecimalType():
            inner = of_json(data_type, zone)
            return lambda text: inner(_number(text))
        case t.ArrayType() | t.MapType() | t.RowType():
            raise UnsupportedFeatureError(
                f"CSV has no {data_type.spelling}",
                feature="kafka-value-type",
                hint="use JSON, or read it as STRING.",
            )
    if type(data_type) in _BITS:
        bits = _BITS[type(data_type)]
        return lambda text: _integer(_whole(text), bits)
    return of_json(data_type, zone)


def _column(name: str, convert: Convert, value: Any, nullable: bool) -> Any:
    if value is None:
        if not nullable:
            raise BadValueError(f"has no value for '{name}', which is NOT NULL")
        return None
    try:
        return convert(value)
    except BadValueError as error:
        raise BadValueError(f"has a wrong '{name}', which {error}") from None


def _case_hint(found: Mapping[str, Any], lower: Mapping[str, str]) -> str:
    near = next((key for key in found if key.lower() in lower), None)
    return "" if near is None else f", but the key '{near}'"


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null",
        bytes: "bytes", date: "a date", datetime: "a time", time: "a time of day",
    }  # fmt: skip
    return kinds.get(type(value), "a number")


def _no(value: Any, wanted: str) -> BadValueError:
    return BadValueError(f"is {_kind(value)}, and no {wanted}")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _no(value, "boolean")
    return value


def _boolean_text(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadValueError("is neither true nor false")
    return text.lower() == "true"


def _integer(value: Any, bits: int) -> int:
    if type(value) is time and bits == _BITS[t.TimeType]:
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1000 + value.microsecond // 1000
    if type(value) is not int:
        raise _no(value, "whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise BadValueError(f"does not fit into {bits} bits")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadValueError("is no whole number") from None


def _number(text: str) -> Decimal | str:
    if text in _SPECIAL:
        return text
    try:
        return Decimal(text)
    except InvalidOperation:
        raise BadValueError("is no number") from None


def _double(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _no(value, "number")
    try:
        return float(value)
    except OverflowError:
        raise BadValueError("is too large") from None


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _no(value, "number")
    try:
        found = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise BadValueError(f"does not fit into DECIMAL({precision}, {scale})") from None
    if len(found.as_tuple().digits) > precision:
        raise BadValueError(f"does not fit into DECIMAL({precision}, {scale})")
    return found


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise BadValueError("is bytes, and no text")
    if isinstance(value, UUID):
        return str(value)
    found = (
        value
        if isinstance(value, str)
        else json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    )
    try:
        found.encode()
    except UnicodeEncodeError:
        raise BadValueError("has half a character") from None
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _no(value, "text in Base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise BadValueError("is no text in Base64") from None


def _date(value: Any) -> date:
    if type(value) is date:
        return value
    if not isinstance(value, str):
        raise _no(value, "date such as '2026-01-31'")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise BadValueError("is no date such as '2026-01-31'") from None


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or len(value) <= 10:
        raise BadValueError("is no time such as '2026-01-31 23:59:59.999'")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise BadValueError("is no time such as '2026-01-31 23:59:59.999'") from None


def _local_time(value: Any) -> datetime:
    found = _time(value)
    if isinstance(value, datetime):
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
    if found.tzinfo is not None:
        raise BadValueError("has a zone, and the column is a TIMESTAMP without one")
    return found


def _instant(value: Any, zone: ZoneInfo) -> datetime:
    found = _time(value)
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        raise BadValueError("is too far away") from None


def _array(convert: Convert, *, nullable: bool) -> Convert:
    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _no(value, "array")
        return [_column("element", convert, one, nullable) for one in value]

    return converted


def _map(convert: Convert, *, nullable: bool) -> Convert:
    def converted(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _no(value, "object")
        return [(_text(key), _column("value", convert, one, nullable)) for key, one in value.items()]

    return converted
