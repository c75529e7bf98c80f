"""The folder of a partition, as text.

The folder is where a partition's files lie but not what the partition is: null, blank text and text
equal to the default name share one folder. The partition row in the manifests tells them apart. Since files
are found by computing their folder again, this text must equal, character by character, that of whoever
wrote them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from anabranch.errors import InvalidInputError, UnsupportedFeatureError
from anabranch.format.types import data_types as t

DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
"""Folder text of null and blank values, unless ``partition.default-name`` says otherwise."""

NANOS_PER_DAY = 86_400_000_000_000
NANOS_PER_SECOND = 1_000_000_000

_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{}[]^"])
# What Java calls white space: unlike Python's it leaves out the non-breaking spaces and U+0085.
_WHITE_SPACE = frozenset(
    [*"\t\n\x0b\f\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000"]
    + [chr(c) for c in range(0x2000, 0x200B) if c != 0x2007]
)


def partition_path(
    fields: Sequence[t.Field],
    values: Sequence[Any],
    *,
    legacy_names: bool = True,
    default_name: str = DEFAULT_PARTITION_NAME,
) -> str:
    """Folder of a partition, ``""`` if there are no partition fields.

    Args:
        fields: the partition fields in declared order.
        values: their physical values, in the same order.
        legacy_names: the table's ``partition.legacy-name``.
        default_name: the table's ``partition.default-name``.
    """
    return "/".join(
        f"{escape(field.name)}={escape(_folder_text(field.type, value, legacy_names, default_name))}"
        for field, value in zip(fields, values, strict=True)
    )


def partition_label(fields: Sequence[t.Field], values: Sequence[Any]) -> str:
    """A partition for people, ``""`` if there are no partition fields: no two partitions of a table have the same.

    As a rule it is the partition's folder. But blank texts stand as they are, a text equal to the name that stands for
    null begins with an escaped character, and years need not have four digits.
    """
    return "/".join(
        f"{escape(field.name)}={_label(field.type, value)}"
        for field, value in zip(fields, values, strict=True)
    )


def _label(data_type: t.DataType, value: Any) -> str:
    if value is None:
        return DEFAULT_PARTITION_NAME
    try:
        text = escape(value_text(data_type, value, legacy_names=False))
    except UnsupportedFeatureError:
        if isinstance(value, bytes):
            text = f"0x{value.hex()}"
        elif isinstance(data_type, t.DateType):
            text = _any_date(value)
        else:
            days, nanos = divmod(value, NANOS_PER_DAY)
            text = escape(_any_date(days) + _sql_timestamp(data_type, nanos)[len("1970-01-01") :])
    return f"%{ord(text[0]):02X}{text[1:]}" if text == DEFAULT_PARTITION_NAME else text


def _any_date(days: int) -> str:
    year, month, day = civil_date(days)
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"


def value_text(data_type: t.DataType, value: Any, *, legacy_names: bool = True) -> str:
    """Text of a physical value that is not null, before escaping.

    Raises:
        UnsupportedFeatureError: values of the type have no text that all engines agree on.
    """
    to_text = (_LEGACY_TEXT if legacy_names else _CAST_TEXT).get(type(data_type))
    if to_text is None:
        raise UnsupportedFeatureError(
            f"a partition column of type {data_type} has no folder name that engines agree on",
            feature="partition-column-type",
            hint="Partition by a column of another type.",
        )
    return to_text(data_type, value)


def escape(text: str) -> str:
    """The text with the characters that folder names cannot carry written as ``%XX``."""
    if _ESCAPED.isdisjoint(text):
        return text
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def unescape(text: str) -> str:
    """The inverse of `escape`; a ``%`` without two hexadecimal digits stays."""
    head, *rest = text.split("%")
    out = [head]
    for part in rest:
        digits = part[:2]
        if len(digits) == 2 and all(c in "0123456789abcdefABCDEF" for c in digits):
            out.append(chr(int(digits, 16)) + part[2:])
        else:
            out.append("%" + part)
    return "".join(out)


def parse_partition(text: str) -> dict[str, str]:
    """Names and texts of values from a partition as folders spell it: ``dt=2026-01-01/name=a%2Fb``.

    Blanks around names and values do not count. Raises `InvalidInputError`.
    """
    found: dict[str, str] = {}
    for part in text.split("/"):
        name, equals, value = part.partition("=")
        name = unescape(name.strip())
        if not equals or not name or name in found:
            raise InvalidInputError(
                f"'{text}' names no partition",
                hint="write column=value, several separated by '/': dt=2026-01-01/hour=3. What would be mistaken for "
                "that is written as in folders: %2F for '/', %25 for '%'.",
            )
        found[name] = unescape(value.strip())
    return found


def _folder_text(data_type: t.DataType, value: Any, legacy_names: bool, default_name: str) -> str:
    if value is None:
        return default_name
    text = value_text(data_type, value, legacy_names=legacy_names)
    return default_name if _WHITE_SPACE.issuperset(text) else text


# Numbers


def float_text(value: float, *, single: bool = False) -> str:
    """The shortest text that reads back as `value`, laid out as Java does (``1.0E10``, ``0.001``).

    With `single`, the value is a 32-bit float.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    sign, digits, exponent = _shortest_digits(value, single)
    if -3 <= exponent < 7:
        whole = digits[: exponent + 1].ljust(exponent + 1, "0") if exponent >= 0 else "0"
        fraction = digits[exponent + 1 :] if exponent >= 0 else "0" * (-exponent - 1) + digits
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest_digits(value: float, single: bool) -> tuple[str, str, int]:
    """Sign, decimal digits without trailing zeros, and the exponent of the first digit."""
    narrow: Callable[[float], Any] = np.float32 if single else float
    text = np.format_float_scientific(narrow(value), unique=True, trim="-")
    mantissa, _, exponent = text.partition("e")
    if len(mantissa.lstrip("-")) == 1:
        # Java prefers two digits to one where they come closer: 4.9E-324 is nearer than 5E-324.
        closer = f"{value:.1e}"
        if narrow(float(closer)) == narrow(value):
            mantissa, _, exponent = closer.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    return sign, mantissa.lstrip("-").replace(".", "").rstrip("0"), int(exponent)


def _decimal_text(data_type: t.DataType, value: Decimal) -> str:
    assert isinstance(data_type, t.DecimalType)
    return f"{value:.{data_type.scale}f}"


# Dates and times


def civil_date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.

    `datetime.date` ends at the years 1 and 9999; the values of a table do not.
    """
    # Years begin in March here, so that the leap day is the last day of a year.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def _iso_timestamp(_type: t.DataType, nanos: int) -> str:
    days, nano_of_day = divmod(nanos, NANOS_PER_DAY)
    year, month, day = civil_date(days)
    second_of_day, fraction = divmod(nano_of_day, NANOS_PER_SECOND)
    text = f"{_iso_year(year)}-{month:02}-{day:02}T{second_of_day // 3600:02}:{second_of_day // 60 % 60:02}"
    if second_of_day % 60 or fraction:
        text += f":{second_of_day % 60:02}"
    if fraction:
        digits = f"{fraction:09}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += f".{digits}"
    return text


def _iso_year(year: int) -> str:
    if year < 0:
        return f"-{-year:04}"
    return f"{year:04}" if year <= 9999 else f"+{year}"


def _sql_timestamp(data_type: t.DataType, nanos: int) -> str:
    # The instants of LTZ are shown in UTC. Java would show them in the zone of the process that writes,
    # which no reader can know.
    assert isinstance(data_type, t.TimestampType | t.LocalZonedTimestampType)
    days, nano_of_day = divmod(nanos, NANOS_PER_DAY)
    second_of_day, fraction = divmod(nano_of_day, NANOS_PER_SECOND)
    digits = f"{fraction:09}"
    digits = digits[: data_type.precision] + digits[data_type.precision :].rstrip("0")
    clock = f"{second_of_day // 3600:02}:{second_of_day // 60 % 60:02}:{second_of_day % 60:02}"
    return f"{_sql_date(data_type, days)} {clock}{'.' if digits else ''}{digits}"


def _sql_date(data_type: t.DataType, days: int) -> str:
    year, month, day = civil_date(days)
    if not 0 <= year <= 9999:
        raise UnsupportedFeatureError(
            f"the year {year} of a partition column of type {data_type} has no folder name with four digits",
            feature="partition-year",
            hint="Set partition.legacy-name to true, or keep the years within 0 to 9999.",
        )
    return f"{year:04}-{month:02}-{day:02}"


def _sql_time(data_type: t.DataType, millis: int) -> str:
    assert isinstance(data_type, t.TimeType)
    seconds, fraction = divmod(millis % 86_400_000, 1000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if data_type.precision == 0:
        return text
    digits = f"{fraction:03}"[: data_type.precision].rstrip("0")
    return f"{text}.{digits or '0'}"


def _sql_bytes(data_type: t.DataType, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnsupportedFeatureError(
            f"a partition value of type {data_type} is not text: {value[:32]!r}",
            feature="partition-column-type",
            hint="Partition by a column of another type.",
        ) from error


def _boolean_text(_type: t.DataType, value: bool) -> str:
    return "true" if value else "false"


def _plain_text(_type: t.DataType, value: Any) -> str:
    return str(value)


def _float_text(data_type: t.DataType, value: float) -> str:
    return float_text(value, single=isinstance(data_type, t.FloatType))


_ToText = Callable[[Any, Any], str]

# Legacy names are the text of the stored value, so that dates and times are numbers. Bytes are left out:
# Java writes the address of an object there, which nobody finds again.
_LEGACY_TEXT: dict[type[t.DataType], _ToText] = {
    t.BooleanType: _boolean_text,
    **dict.fromkeys(
        (t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType, t.DateType, t.TimeType), _plain_text
    ),
    **dict.fromkeys((t.CharType, t.VarCharType), _plain_text),
    **dict.fromkeys((t.FloatType, t.DoubleType), _float_text),
    t.DecimalType: _decimal_text,
    **dict.fromkeys((t.TimestampType, t.LocalZonedTimestampType), _iso_timestamp),
}

# The other names are what a cast to text gives.
_CAST_TEXT: dict[type[t.DataType], _ToText] = {
    **_LEGACY_TEXT,
    t.DateType: _sql_date,
    t.TimeType: _sql_time,
    **dict.fromkeys((t.TimestampType, t.LocalZonedTimestampType), _sql_timestamp),
    **dict.fromkeys((t.BinaryType, t.VarBinaryType), _sql_bytes),
}
