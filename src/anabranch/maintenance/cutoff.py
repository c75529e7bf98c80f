"""Ages and moments as people give them."""

from __future__ import annotations

from anabranch.errors import InvalidInputError
from anabranch.expr.values import parse_timestamp
from anabranch.options import parse_duration

Cutoff = str | int
"""An age such as ``1 d``, a time such as ``2026-01-31 12:00:00`` (UTC unless it names a zone), or epoch milliseconds."""


def cutoff_of(given: Cutoff, now_millis: int) -> int:
    """The moment in epoch milliseconds; an age counts back from now. Raises `InvalidInputError`."""
    if isinstance(given, int):
        return given
    try:
        return now_millis - parse_duration(given)
    except ValueError:
        parsed = parse_timestamp(given)
    if parsed is None:
        raise InvalidInputError(
            f"'{given}' is neither an age nor a time",
            hint="write an age such as '1 d' or '30 min', or a time such as '2026-01-31 12:00:00'.",
        )
    return parsed.nanos // 1_000_000
