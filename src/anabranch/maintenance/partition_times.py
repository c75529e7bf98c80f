"""The time that the values of a partition stand for, as `partition.timestamp-pattern` and `-formatter` spell it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from anabranch.errors import OptionError
from anabranch.options import PARTITION_TIMESTAMP_FORMATTER, PARTITION_TIMESTAMP_PATTERN

_FIELDS = {
    "yyyy": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d{2})",
    "M": r"(?P<month>\d{1,2})",
    "dd": r"(?P<day>\d{2})",
    "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d{2})",
    "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d{2})",
    "m": r"(?P<minute>\d{1,2})",
    "ss": r"(?P<second>\d{2})",
    "s": r"(?P<second>\d{1,2})",
}
_FORMATTER = re.compile(r"'(?P<literal>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")
_USUAL = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.\d+)?)?)?"
)
_NAME = re.compile(r"\$(\w+)")


class PartitionTimes:
    """Reads the time of partitions from their values."""

    def __init__(self, keys: tuple[str, ...], options: Mapping[str, str]) -> None:
        """Args:
        keys: the partition columns.
        options: of the table.

        Raises `OptionError` for a formatter that is not understood, or a pattern with a column that is none.
        """
        self._keys = keys
        self._pattern = PARTITION_TIMESTAMP_PATTERN.of(options)
        formatter = PARTITION_TIMESTAMP_FORMATTER.of(options)
        self._format = _USUAL if formatter is None else _compiled(formatter)
        unknown = [name for name in _NAME.findall(self._pattern or "") if name not in keys]
        if unknown:
            raise OptionError(
                f"{PARTITION_TIMESTAMP_PATTERN.key} is '{self._pattern}', and '{unknown[0]}' is no partition column",
                hint=f"partition columns are: {', '.join(keys) or 'none'}.",
            )

    def of(self, values: Mapping[str, str | None]) -> datetime | None:
        """Return the time in UTC that a partition stands for; None if its values are none."""
        if self._pattern is None:
            text = values[self._keys[0]]
        elif any(values[name] is None for name in _NAME.findall(self._pattern)):
            text = None
        else:
            text = _NAME.sub(lambda found: str(values[found[1]]), self._pattern)
        match = None if text is None else self._format.fullmatch(text)
        if match is None:
            return None
        parts = {name: int(part) for name, part in match.groupdict().items() if part is not None}
        try:
            return datetime(**{"month": 1, "day": 1, **parts}, tzinfo=UTC)
        except ValueError:
            return None


def _compiled(formatter: str) -> re.Pattern[str]:
    text, place, seen = "", 0, set()
    while place < len(formatter):
        match = _FORMATTER.match(formatter, place)
        letters = None if match is None else match["letters"]
        if match is None or (letters is not None and (letters not in _FIELDS or letters[0] in seen)):
            raise OptionError(
                f"{PARTITION_TIMESTAMP_FORMATTER.key} is '{formatter}', in which '{formatter[place:]}' is not understood",
                hint="write yyyy, MM, dd, HH, mm and ss once each, other signs as they are and letters between quotes: "
                "yyyyMMdd, yyyy-MM-dd'T'HH.",
            )
        if letters is not None:
            seen.add(letters[0])
            text += _FIELDS[letters]
        else:
            literal = match["literal"]
            text += re.escape(match["other"] if literal is None else literal.replace("''", "'") or "'")
        place = match.end()
    if "y" not in seen:
        raise OptionError(
            f"{PARTITION_TIMESTAMP_FORMATTER.key} is '{formatter}', which has no year",
            hint="write yyyy in it: yyyyMMdd.",
        )
    return re.compile(text)
