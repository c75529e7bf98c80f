"""Values of options that are not shown where others look on: passwords and keys that somebody stored in a table."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "*********(redacted)"
"""Shown in place of such a value, as Spark does."""

_KEYS: Final = re.compile(
    r"secret|passw(or)?d|token|credential|jaas|\bsas\b|(access|account|private|api)[-._]?key", re.IGNORECASE
)
_VALUES: Final = re.compile(
    r"://[^/@\s]+:[^/@\s]+@|(password|passwd|secret|token|sig|signature)=", re.IGNORECASE
)


def shown_option(key: str, value: str) -> str:
    """Return the value of an option, or `HIDDEN` if its key or the value itself looks like a secret."""
    return HIDDEN if _KEYS.search(key) or _VALUES.search(value) else value
