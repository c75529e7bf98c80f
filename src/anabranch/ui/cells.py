"""Values for the page: plain JSON, in which what a browser's numbers cannot hold is text."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from typing import Any

_EXACT = 1 << 53
"""Whole numbers beyond this are rounded by JavaScript."""
_MAY_BE_ROUNDED = re.compile(r"\d{16}")
_MOST_CELL = 400
_MOST_BYTES = 64


def to_json(value: Any) -> bytes:
    """Encode an answer; ``<`` is escaped, so that it can also stand inside of a page."""
    text = _at_once(value)
    if text is None:
        text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").encode("ascii")


def _at_once(value: Any) -> str | None:
    """Encode without looking at each value in Python; None where one may need it.

    That is a number that is not finite, or one as long as those that JavaScript rounds.
    """
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_plain)
    except (ValueError, TypeError):
        return None
    return None if _MAY_BE_ROUNDED.search(text) else text


def cell(value: Any) -> str | None:
    """Return a table's value as text for people, cut where it is long; None for null."""
    match value:
        case None:
            return None
        case str():
            text = value
        case bool():
            text = "true" if value else "false"
        case bytes():
            text = "0x" + value[:_MOST_BYTES].hex() + ("..." if len(value) > _MOST_BYTES else "")
        case dt.datetime():
            text = value.isoformat(sep=" ")
        case dt.date() | dt.time():
            text = value.isoformat()
        case list() | tuple() | dict():
            text = json.dumps(_plain(value), ensure_ascii=False, default=str)
        case _:
            text = str(value)
    return text if len(text) <= _MOST_CELL else f"{text[: _MOST_CELL - 1]}…"


def _plain(value: Any) -> Any:
    match value:
        case None | str() | bool():
            return value
        case int():
            return value if -_EXACT < value < _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case Decimal() | bytes() | dt.date() | dt.time():
            return cell(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _plain(asdict(value))
        case _:
            return str(value)
