"""Conversion of values from the JVM to literals of predicates."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr.nodes import Literal
from anabranch.expr.values import EPOCH_ORDINAL, Timestamp, Value, to_single

INTEGERS = ("byte", "short", "integer", "long")
"""Spark's integer types as in its JSON, narrowest first."""
DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def literal_of(data_type: Any, found: Any) -> Literal | None:
    """Return a literal for a Spark type and the JVM's text or value; None if we have no such literal."""
    if not isinstance(data_type, str):
        return None
    made = _MAKERS["decimal"] if DECIMAL.fullmatch(data_type) else _MAKERS.get(data_type)
    return None if made is None else Literal(made(found))


def literal_of_text(data_type: Any, text: str) -> Literal | None:
    """Return a literal from the JVM's text of a value: days of dates, microseconds of timestamps.

    None if there is no such literal, or if it cannot be told from null.
    """
    if text in ("null", "None") or not isinstance(data_type, str):
        return None
    if data_type == "date":
        return Literal(date.fromordinal(int(text) + EPOCH_ORDINAL)) if _has_ordinal(int(text)) else None
    if data_type == "binary":
        return None
    return literal_of(data_type, int(text) if data_type.startswith("timestamp") else text)


def _has_ordinal(days: int) -> bool:
    return 1 <= days + EPOCH_ORDINAL <= date.max.toordinal()


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise PredicateError(f"{text} is no date of the years 1 to 9999") from error


_MAKERS: dict[str, Callable[[Any], Value]] = {
    **dict.fromkeys(INTEGERS, int),
    "float": lambda text: to_single(float(text)),
    "double": float,
    "decimal": Decimal,
    "boolean": lambda text: text == "true",
    "string": str,
    "binary": bytes,
    "date": _date,
    "timestamp": lambda micros: Timestamp(micros * 1000, zoned=True),
    "timestamp_ntz": lambda micros: Timestamp(micros * 1000),
}
"""Constructors of literals by Spark type; other types have no literals here."""
