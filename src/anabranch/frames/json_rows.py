"""Rows of JSON, one object a line, in the types of the table's columns.

What `read --json` prints is taken: numbers that JSON lacks are text (``"NaN"``), bytes base64, dates and times ISO 8601,
decimals text or numbers, maps lists of pairs, ``[["a", 1]]``, or objects.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import time
from decimal import Decimal, InvalidOperation
from typing import IO, Any, Final, Literal

import pyarrow as pa

from anabranch.arrow.python_values import Form, atoms_to_array, to_array
from anabranch.errors import SchemaError
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import fields_from_arrow


class _TwiceError(ValueError):
    """A key that an object has twice, of which decoders take the last."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_members)
_ROWS_AT_ONCE: Final = 1 << 16
_TEXT_AT_ONCE: Final = 32 << 20
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_ZONED: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_NANOS: Final = re.compile(r"\.\d{7}")
_SPELLED: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def batches(stream: IO[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a stream; members of an object that are no columns become columns of nulls, to be complained of.

    Raises:
        SchemaError: a value is none of its column.
        TypeError, ValueError: a line is no object of JSON; names the line.
    """
    fields = {field.name: field for field in fields_from_arrow(schema)}
    rows: list[tuple[int, dict[str, Any]]] = []
    size = 0
    text = io.TextIOWrapper(stream, "utf-8-sig")
    try:
        for number, line in enumerate(text, 1):
            if line.isspace():
                continue
            rows.append((number, _row(line, number)))
            size += len(line)
            if len(rows) == _ROWS_AT_ONCE or size > _TEXT_AT_ONCE:
                yield _batch(rows, fields)
                rows, size = [], 0
    finally:
        text.detach()  # the stream is its owner's to close
    if rows:
        yield _batch(rows, fields)


def _row(line: str, number: int) -> dict[str, Any]:
    try:
        row = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}, character {error.pos + 1}: {error.msg}") from error
    except _TwiceError as error:
        raise ValueError(f"line {number} has the key {_shown(str(error))} twice in one object") from error
    except (ValueError, InvalidOperation) as error:  # digits or exponents beyond what Python takes
        raise ValueError(f"line {number} has a number beyond all bounds: {error}") from error
    except RecursionError as error:
        raise ValueError(f"line {number} has objects or lists too deep inside of each other") from error
    if not isinstance(row, dict):
        raise TypeError(f"line {number} is no object: {_shown(row)}")
    return row


def _batch(numbered: Sequence[tuple[int, dict[str, Any]]], fields: Mapping[str, t.Field]) -> pa.RecordBatch:
    try:
        return _converted([row for _, row in numbered], fields)
    except SchemaError as error:
        if len(numbered) == 1:
            raise SchemaError(f"line {numbered[0][0]}: {error.message}", hint=error.hint) from error
        middle = len(numbered) // 2
        _batch(numbered[:middle], fields)
        return _batch(numbered[middle:], fields)  # one of the two has the value


def _converted(rows: Sequence[dict[str, Any]], fields: Mapping[str, t.Field]) -> pa.RecordBatch:
    names = dict.fromkeys([*fields, *(name for row in rows for name in row)])
    columns = [
        to_array([row.get(name) for row in rows], fields[name].type, name, _FORM)
        if name in fields
        else pa.nulls(len(rows))
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, list(names))


def _atoms(values: Sequence[Any], data_type: t.DataType, path: str) -> pa.Array:
    match data_type:
        case t.DateType():
            return _parsed(_texts(values, data_type, path), pa.date32(), data_type, path)
        case t.TimestampType():
            texts = _texts(values, data_type, path)
            return _parsed(texts, pa.timestamp(_unit(texts)), data_type, path)
        case t.LocalZonedTimestampType():
            texts = _texts(values, data_type, path)
            in_utc = [text if text is None or _ZONED.search(text, 11) else _utc(text) for text in texts]
            return _parsed(in_utc, pa.timestamp(_unit(texts), "UTC"), data_type, path)
    read = _READ.get(type(data_type))
    if read is None:
        for value in values if Decimal in set(map(type, values)) else ():
            if isinstance(value, Decimal):
                raise _refusal(value, data_type, path, "")
        return atoms_to_array(values, data_type, path)
    found = []
    for value in values:
        try:
            found.append(None if value is None else read(value))
        except (TypeError, ValueError) as error:
            raise _refusal(value, data_type, path, str(error)) from error
    return atoms_to_array(found, data_type, path)


def _keys(values: Sequence[Any], data_type: t.DataType, path: str) -> pa.Array:
    """Keys of maps, which an object has as text whatever their type."""
    if isinstance(
        data_type,
        t.BooleanType
        | t.TinyIntType
        | t.SmallIntType
        | t.IntType
        | t.BigIntType
        | t.FloatType
        | t.DoubleType,
    ):
        values = [_spelled(value) if isinstance(value, str) else value for value in values]
    return _atoms(values, data_type, path)


_FORM: Final = Form(_atoms, _keys)


def _spelled(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, InvalidOperation, RecursionError):
        return text


def _texts(values: Sequence[Any], data_type: t.DataType, path: str) -> list[str | None]:
    for value in values:
        if value is not None and not isinstance(value, str):
            raise _refusal(value, data_type, path, "expected text as of ISO 8601")
    return list(values)


def _unit(texts: Sequence[str | None]) -> Literal["us", "ns"]:
    """Microseconds, which reach all years, or nanoseconds where there are any."""
    return "ns" if any(text is not None and _NANOS.search(text) for text in texts) else "us"


def _utc(text: str) -> str:
    return f"{text}Z" if len(text) > len("2026-01-01") else f"{text}T00:00:00Z"


def _parsed(texts: Sequence[str | None], kind: pa.DataType, data_type: t.DataType, path: str) -> pa.Array:
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise SchemaError(f"column '{path}' is {data_type}, and a value does not fit: {error}") from error


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _SPELLED:
        return _SPELLED[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError('expected a number, "NaN", "Infinity" or "-Infinity"')
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) and not isinstance(value, float):
        raise ValueError("it is too large")
    return number


def _decimal(value: Any) -> Any:
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise ValueError("expected a number")
        try:
            return Decimal(value)
        except InvalidOperation as error:
            raise ValueError("its exponent is beyond all bounds") from error
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("expected text, in base64")
    return base64.b64decode(value, validate=True)


def _time(value: Any) -> time:
    if not isinstance(value, str):
        raise TypeError("expected text as of ISO 8601")
    return time.fromisoformat(value)


_READ: Final[dict[type[t.DataType], Callable[[Any], Any]]] = {
    t.FloatType: _float,
    t.DoubleType: _float,
    t.DecimalType: _decimal,
    t.BinaryType: _bytes,
    t.VarBinaryType: _bytes,
    t.TimeType: _time,
}
"""Values as Python has them, of those as JSON does."""


def _refusal(value: Any, data_type: t.DataType, path: str, why: str) -> SchemaError:
    text = f"column '{path}' is {data_type}, but a value is {_shown(value)}"
    return SchemaError(f"{text}: {why}" if why else text)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
