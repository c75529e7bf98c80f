"""Rows in the canonical form of tests/data/paimon/README.md."""

import hashlib
import json
import math

import pyarrow as pa

from anabranch.format.types.data_types import (
    ArrayType,
    BinaryType,
    CharType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)


def _dump(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _civil(days):
    z = days + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    day = doy - (153 * mp + 2) // 5 + 1
    month = mp + 3 if mp < 10 else mp - 9
    return f"{yoe + era * 400 + (month <= 2):04d}-{month:02d}-{day:02d}"


def _clock(nanos):
    seconds, fraction = divmod(nanos, 10**9)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:09d}"


_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def value_of(scalar, data_type):
    """One Arrow scalar of a column of that type, canonical."""
    if not scalar.is_valid:
        return None
    match data_type:
        case FloatType() | DoubleType():
            number = scalar.as_py()
            if math.isnan(number):
                return "NaN"
            return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
        case DecimalType(scale=scale):
            return f"{scalar.as_py():.{scale}f}"
        case BinaryType() | VarBinaryType():
            return scalar.as_py().hex()
        case DateType():
            return _civil(scalar.value)
        case TimeType():
            return _clock(scalar.value * 10**6)
        case TimestampType() | LocalZonedTimestampType():
            days, nanos = divmod(scalar.value * _UNITS[scalar.type.unit], 86400 * 10**9)
            zone = "Z" if isinstance(data_type, LocalZonedTimestampType) else ""
            return f"{_civil(days)}T{_clock(nanos)}{zone}"
        case ArrayType(element=element):
            return [value_of(item, element) for item in scalar.values]
        case MultisetType(element=element):
            return _pairs(scalar, element, None)
        case MapType(key=key, value=value):
            return _pairs(scalar, key, value)
        case RowType(fields=fields):
            return {f.name: value_of(scalar[i], f.type) for i, f in enumerate(fields)}
        case CharType() | VarCharType():
            return scalar.as_py()
        case _:
            return scalar.as_py()


def _pairs(scalar, key, value):
    pairs = []
    for item in scalar.values:
        second = item[1].as_py() if value is None else value_of(item[1], value)
        pairs.append([value_of(item[0], key), second])
    return sorted(pairs, key=_dump)


def canonical_rows(table: pa.Table, fields):
    """Sorted rows of an Arrow table whose columns are these fields."""
    columns = [[value_of(s, f.type) for s in table.column(i)] for i, f in enumerate(fields)]
    return sorted((list(row) for row in zip(*columns, strict=True)), key=_dump)


def digest(names, rows):
    lines = [_dump(names), *(_dump(row) for row in rows)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
