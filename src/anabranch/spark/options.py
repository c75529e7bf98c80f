"""Options of a read or a write as Spark hands them over.

Spark makes all option names lower-case, so names with capitals are restored from the known ones. Options
of the table keep their names and lie over those stored in the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from anabranch.errors import OptionError
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.options import (
    ALL,
    CODE_VERSION,
    LINEAGE_ENTRY,
    OVERWRITE_PARTITION,
    PATH,
    SCAN_COLUMNS,
    SCAN_EXACT,
    SCAN_FILTER,
    SCAN_START_OFFSET,
    SCAN_TIMESTAMP,
    SCAN_VERSION,
    WAREHOUSE,
    check_options,
)

SPARK_OPTIONS = (
    WAREHOUSE,
    PATH,
    SCAN_FILTER,
    SCAN_COLUMNS,
    SCAN_VERSION,
    SCAN_TIMESTAMP,
    SCAN_EXACT,
    SCAN_START_OFFSET,
    OVERWRITE_PARTITION,
    CODE_VERSION,
    LINEAGE_ENTRY,
)
"""Options that exist on Spark's readers and writers beside those of tables."""

MOMENT_KEYS = tuple(option.key for option in MOMENT_OPTIONS)
"""Options that name the moment a batch read sees; there may be one of them."""

CHECKPOINT = "checkpointLocation"
QUERY_NAME = "queryName"

_KNOWN = {key.lower(): key for key in (*(o.key for o in ALL), CHECKPOINT, QUERY_NAME)}
_OWN_PREFIX = "anabranch."


def spelled(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their proper names. Raises `OptionError` for unknown ``anabranch.*`` names."""
    named = {_KNOWN.get(key.lower(), key): value for key, value in options.items()}
    for key in named:
        if key.startswith(_OWN_PREFIX) and key not in _KNOWN:
            near = difflib.get_close_matches(key, [k for k in _KNOWN if k.startswith(_OWN_PREFIX)], n=1)
            raise OptionError(
                f"unknown option '{key}'",
                hint=f"did you mean '{_KNOWN[near[0]]}'?"
                if near
                else "names of that prefix are Anabranch's own.",
            )
    check_options(table_options(named))
    return named


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those that a table understands or that some other engine may."""
    ours = {o.key for o in SPARK_OPTIONS} | {CHECKPOINT, QUERY_NAME}
    return {key: value for key, value in options.items() if key not in ours}
