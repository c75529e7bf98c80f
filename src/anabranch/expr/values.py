"""Values that predicates compare with: what Python hands in, how text is read, how SQL spells them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from anabranch.errors import PredicateError

NANOS_PER_SECOND = 1_000_000_000
NANOS_PER_DAY = 86_400 * NANOS_PER_SECOND
NANOS_PER_UNIT = {"s": NANOS_PER_SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_NANO = (1 - EPOCH_ORDINAL) * NANOS_PER_DAY
_LAST_NANO = (date.max.toordinal() - EPOCH_ORDINAL + 1) * NANOS_PER_DAY - 1
_MAX_DIGITS = 1_000
"""Longer numbers than any column holds are refused before arithmetic on them takes long."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, in nanoseconds, in the years 1 to 9999.

    `zoned` tells an instant (nanoseconds since the epoch) from a date and time on a clock whose zone is
    not known (nanoseconds since 1970-01-01 00:00 on that clock).
    """

    nanos: int
    zoned: bool = False

    def __post_init__(self) -> None:
        if not _FIRST_NANO <= self.nanos <= _LAST_NANO:
            raise PredicateError("a timestamp in a filter lies outside of the years 1 to 9999")

    def __str__(self) -> str:
        days, rest = divmod(self.nanos, NANOS_PER_DAY)
        seconds, fraction = divmod(rest, NANOS_PER_SECOND)
        day = date.fromordinal(days + EPOCH_ORDINAL).isoformat()
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        tail = f".{fraction:09}".rstrip("0") if fraction else ""
        return f"{day} {clock}{tail}{'Z' if self.zoned else ''}"


Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | time | Timestamp | None


def to_value(raw: Any) -> Value:
    """A Python, NumPy, pandas or Arrow scalar as one of the few kinds of value that literals hold.

    Raises:
        PredicateError: what was handed in is not a value a column can be compared with.
    """
    # The order matters: bool is an int, and a datetime is a date.
    match raw:
        case None | bool() | Timestamp():
            return raw
        case pa.Scalar():
            return _from_arrow(raw)
        case np.datetime64():
            return _from_numpy_moment(raw)
        case np.generic():
            return to_value(raw.item())
        case int():
            return _checked_int(int(raw))
        case float():
            return float(raw)
        case Decimal():
            return _checked_decimal(raw)
        case str():
            return _checked_text(str.__str__(raw))
        case bytes() | bytearray() | memoryview():
            return bytes(raw)
        case datetime():
            return _from_datetime(raw)
        case date():
            return date(raw.year, raw.month, raw.day)
        case time() if raw.tzinfo is None:
            return raw.replace(fold=0)
    raise PredicateError(
        f"a filter cannot compare with {raw!r} of type {type(raw).__name__}",
        hint="use a number, str, bytes, bool, Decimal, date, time without zone, datetime or None",
    )


def sql_text(value: Value) -> str:
    """The value as SQL spells it; parsing it gives the value back."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return _float_text(value)
        case Decimal():
            return format(value, "f") if _exponent(value) < 0 else f"{value:f}BD"
        case str():
            return quote_text(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case Timestamp(zoned=zoned):
            return f"TIMESTAMP_{'LTZ' if zoned else 'NTZ'} '{value}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"TIME '{value.isoformat()}'"


def quote_text(text: str) -> str:
    """A string in SQL quotes."""
    return "'" + text.replace("'", "''") + "'"


_NUMBER_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_TEXT = re.compile(r"(?i)nan|[+-]?inf(?:inity)?")
_DATE = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_TIME = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_ZONE = r"(?P<zone>Z|z|[+-][0-9]{2}(?::?[0-9]{2})?|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*)"
_DATE_TEXT = re.compile(_DATE)
_TIME_TEXT = re.compile(_TIME)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME}(?:\s*{_ZONE})?)?")

TIMESTAMP_FORM = "'YYYY-MM-DD HH:MM:SS[.fraction][zone]'"


def to_double(number: float | Decimal) -> float:
    """The nearest double; infinity beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def to_single(number: float) -> float:
    """The nearest single-precision number; infinity beyond the largest."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def parse_decimal(text: str) -> Decimal | None:
    """The number that the text spells, exactly; None if it spells none."""
    text = text.strip()
    return _checked_decimal(Decimal(text)) if _NUMBER_TEXT.fullmatch(text) else None


def parse_double(text: str) -> float | None:
    """The double nearest to the number that the text spells (``NaN`` and ``Infinity`` too), None if none."""
    text = text.strip()
    return float(text) if _NUMBER_TEXT.fullmatch(text) or _SPECIAL_TEXT.fullmatch(text) else None


def parse_date(text: str) -> date | None:
    """The day that ``YYYY-MM-DD`` names, None if it names none."""
    found = _DATE_TEXT.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return date(*(int(part) for part in found.groups()))
    except ValueError:
        return None


def parse_time_nanos(text: str) -> int | None:
    """Nanoseconds of the day for ``HH:MM[:SS[.fraction]]``, None if the text names no time of day."""
    found = _TIME_TEXT.fullmatch(text.strip())
    return None if found is None else _clock_nanos(*found.groups())


def parse_timestamp(text: str) -> Timestamp | None:
    """The moment that a date, or a date and time with or without a zone, names; None if it names none.

    A zone is ``Z``, an offset such as ``+02:00``, or a name such as ``Europe/Berlin``. Where clocks were
    set back the earlier moment is meant; where they were set forward the hour is counted on.
    """
    found = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if found is None:
        return None
    day = parse_date("-".join(found.groups()[:3]))
    clock = 0 if found[4] is None else _clock_nanos(*found.groups()[3:7])
    if day is None or clock is None:
        return None
    local = (day.toordinal() - EPOCH_ORDINAL) * NANOS_PER_DAY + clock
    if found["zone"] is None:
        return Timestamp(local)
    offset = _offset(found["zone"], day, clock)
    return None if offset is None else Timestamp(local - offset * NANOS_PER_SECOND, zoned=True)


def _clock_nanos(hour: str, minute: str, second: str | None, fraction: str | None) -> int | None:
    h, m, s = int(hour), int(minute), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    return (h * 3600 + m * 60 + s) * NANOS_PER_SECOND + int((fraction or "0").ljust(9, "0"))


def _offset(zone: str, day: date, clock: int) -> int | None:
    """Seconds that the zone was ahead of UTC then, None for an unknown zone."""
    if zone in {"Z", "z"}:
        return 0
    if zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        seconds = hours * 3600 + minutes * 60
        return None if minutes > 59 or seconds > 18 * 3600 else seconds * (-1 if zone[0] == "-" else 1)
    try:
        rules = ZoneInfo(zone)
        local = datetime(day.year, day.month, day.day, tzinfo=rules) + timedelta(microseconds=clock // 1000)
        offset = local.utcoffset()
    except (KeyError, ValueError, OSError, OverflowError):
        return None
    return None if offset is None else int(offset.total_seconds())


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "CAST('NaN' AS DOUBLE)"
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    text = repr(value)
    # Without an exponent it would be read back as a decimal.
    return text if "e" in text else f"{text}E0"


def _checked_int(value: int) -> int:
    if value.bit_length() > 3 * _MAX_DIGITS:
        raise PredicateError(f"a number in a filter has more than {_MAX_DIGITS} digits")
    return value


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), value
    return exponent


def _checked_decimal(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise PredicateError(
            f"a filter cannot compare with Decimal('{value}')", hint="use float('nan') or float('inf')"
        )
    if not -_MAX_DIGITS <= _exponent(value) <= _MAX_DIGITS or len(value.as_tuple().digits) > _MAX_DIGITS:
        raise PredicateError(f"a number in a filter has more than {_MAX_DIGITS} digits")
    if value.is_zero():
        value = value.copy_abs()
    # One form for each number of places: SQL has no way to write 1E+3 as a decimal.
    return Decimal(int(value)) if _exponent(value) > 0 else value


def _checked_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PredicateError(
            f"the text {value!r} in a filter is not valid Unicode: it has a lone surrogate"
        ) from error
    return value


def _from_datetime(raw: datetime) -> Value:
    if raw != raw:  # noqa: PLR0124 - pandas' NaT is a datetime that differs from itself
        return None
    offset = raw.utcoffset()
    micros = (raw.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if offset is not None:
        micros -= offset // timedelta(microseconds=1)
    # pandas' Timestamp is a datetime that carries nanoseconds besides.
    return Timestamp(micros * 1000 + int(getattr(raw, "nanosecond", 0)), zoned=offset is not None)


def _from_numpy_moment(raw: np.datetime64) -> Value:
    if np.isnat(raw):
        return None
    unit, step = np.datetime_data(raw.dtype)
    if unit in NANOS_PER_UNIT:
        return Timestamp(int(raw.astype(np.int64)) * step * NANOS_PER_UNIT[unit])
    return to_value(raw.astype("datetime64[D]" if unit in {"Y", "M", "W", "D"} else "datetime64[s]").item())


def _from_arrow(raw: Any) -> Value:
    if not raw.is_valid:
        return None
    if pa.types.is_timestamp(raw.type):
        return Timestamp(raw.value * NANOS_PER_UNIT[raw.type.unit], zoned=raw.type.tz is not None)
    try:
        return to_value(raw.as_py())
    except (OverflowError, ValueError) as error:
        raise PredicateError(
            f"a value of type {raw.type} in a filter lies outside of the years 1 to 9999"
        ) from error


RESERVED = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ESCAPE", "BETWEEN", "TRUE", "FALSE"})
"""Words that cannot name a column without back-ticks."""


def quote_name(name: str) -> str:
    """A name as SQL spells it, in back-ticks where it needs them."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def split_path(text: str) -> tuple[str, ...]:
    """The names in ``a.b`` or ``` `a.b`.c ```. Raises `PredicateError`."""
    names, at = [], 0
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            break
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            break
        at += 1
    raise PredicateError(
        f"{text!r} is no column name", hint="put names with special characters in back-ticks"
    )


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SEGMENT = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
