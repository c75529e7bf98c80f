"""Dates, times and durations in plans of Spark Connect, which holds them as numbers: whether the program's text has them.

There they stand as calls, ``datetime(2024, 1, 31)``, or as texts that are parsed, ``"2024-01-31"``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyspark.sql.types import DateType, DayTimeIntervalType, TimestampNTZType, TimestampType

from anabranch.lineage.program_text import calls_of, is_written

_Number = Callable[[Any], Any]


def _nanos(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1_000


def _time(nanos: int) -> time:
    seconds, micros = divmod(nanos // 1_000, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


KINDS: Final[dict[str, tuple[type, _Number, _Number]]] = {
    "date": (date, DateType().toInternal, DateType().fromInternal),
    "timestamp": (datetime, TimestampType().toInternal, TimestampType().fromInternal),
    "timestamp_ntz": (datetime, TimestampNTZType().toInternal, TimestampNTZType().fromInternal),
    "day_time_interval": (timedelta, DayTimeIntervalType().toInternal, DayTimeIntervalType().fromInternal),
    "time": (time, _nanos, _time),
}
"""Of a literal, by its kind: the class of the value, and how it becomes the plan's number and back."""


def is_time_written(kind: str, number: Any) -> bool:
    """Whether the program's text has the value of a literal, as a call of constants or as text."""
    made, to_number, of_number = KINDS[kind]
    plain = number.nano if kind == "time" else number
    value = of_number(plain)
    return any(map(is_written, _spelled(value))) or plain in _made(made, to_number)


def _spelled(value: Any) -> Iterator[str]:
    """Yield the texts from which a value is parsed."""
    yield str(value)
    if isinstance(value, datetime):
        for form in ("auto", "minutes") if not value.second and not value.microsecond else ("auto",):
            yield from (value.isoformat(sep, form) for sep in " T")
        if value.time() == time():
            yield str(value.date())
    elif isinstance(value, time) and not value.second and not value.microsecond:
        yield value.isoformat("minutes")


def _made(kind: type, to_number: _Number) -> Iterator[Any]:
    """Yield the numbers of the values that calls of a class with nothing but constants make."""
    for call in calls_of(kind.__name__):
        try:
            values = [ast.literal_eval(part) for part in call.args]
            named = {
                str(part.arg): _zone(part.value) if part.arg == "tzinfo" else ast.literal_eval(part.value)
                for part in call.keywords
            }
            yield to_number(kind(*values, **named))
        except (ValueError, TypeError, ArithmeticError, LookupError, OSError, SyntaxError, RecursionError):
            continue  # it has more than constants, or is of another function of that name


def _zone(node: ast.expr) -> Any:
    """Return the time zone that an expression names. Raises `ValueError` if that is not known without running it."""
    if ast.unparse(node).rpartition(".")[2] in ("UTC", "utc"):
        return UTC
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "ZoneInfo":
        return ZoneInfo(*map(ast.literal_eval, node.args))
    return ast.literal_eval(node)
