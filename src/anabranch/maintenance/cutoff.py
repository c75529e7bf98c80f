"""Parses ages and moments as people write them."""

from __future__ import annotations

from datetime import datetime

from anabranch.errors import InvalidInputError
from anabranch.kernel.refs.moments import to_millis
from anabranch.options import parse_duration

Cutoff = str | int | datetime
"""An age such as ``1 d``, or a time: text such as ``2026-01-31 12:00:00`` (UTC unless it names a zone), a datetime, or
epoch milliseconds."""


def cutoff_of(given: Cutoff, now_millis: int) -> int:
    """Return the moment in epoch milliseconds; an age counts back from now. Raises `InvalidInputError`."""
    if isinstance(given, str) and not given.strip().isdecimal():  # digits alone might be either, in any unit
        try:
            return now_millis - parse_duration(given)
        except ValueError:
            pass  # not an age, so a time
    try:
        return to_millis(given)
    except InvalidInputError:
        raise InvalidInputError(
            f"{given!r} is neither an age nor a time",
            hint="write an age such as '1 d' or '30 min', or a time such as '2026-01-31 12:00:00'.",
        ) from None
