"""Options of a read or a write as Spark hands them over.

Spark makes all option names lower-case, so names with capitals are restored from the known ones. Options
of the table keep their names and lie over those stored in the table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from anabranch.errors import OptionError
from anabranch.options import (
    ALL,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP_MILLIS,
    Option,
    check_options,
)

WAREHOUSE: Option[str | None] = Option("warehouse", str, None, "Path or URL of the warehouse.", "text")
PATH: Option[str | None] = Option(
    "path", str, None, "Name of the table (db.t), or its own path or URL.", "text"
)
SCAN_FILTER: Option[str | None] = Option(
    "scan.filter",
    str,
    None,
    "SQL condition on the table's columns; files that cannot match are not read, other rows are dropped.",
    "text",
)
SCAN_COLUMNS: Option[tuple[str, ...] | None] = Option(
    "scan.columns",
    lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    None,
    "Comma-separated columns to read; the others are not read from storage.",
    "list of columns",
)
SCAN_VERSION: Option[str | None] = Option(
    "scan.version", str, None, "Moment to read: a snapshot's id, snapshot.N, or a tag's name.", "text"
)
SCAN_TIMESTAMP: Option[str | None] = Option(
    "scan.timestamp", str, None, "Read the table as of this time, for example 2026-01-01 00:00:00.", "text"
)
OVERWRITE_PARTITION: Option[str | None] = Option(
    "overwrite.partition",
    str,
    None,
    "The partition that mode('overwrite') replaces, for example dt=2026-01-01/hour=3.",
    "text",
)
CODE_VERSION: Option[str | None] = Option(
    "anabranch.code-version", str, None, "Version of the job's code, for lineage; a git commit, say.", "text"
)

SPARK_OPTIONS = (
    WAREHOUSE,
    PATH,
    SCAN_FILTER,
    SCAN_COLUMNS,
    SCAN_VERSION,
    SCAN_TIMESTAMP,
    OVERWRITE_PARTITION,
    CODE_VERSION,
)
"""Options that exist on Spark's readers and writers beside those of tables."""

MOMENT_KEYS = tuple(
    option.key
    for option in (SCAN_SNAPSHOT_ID, SCAN_TAG_NAME, SCAN_TIMESTAMP_MILLIS, SCAN_TIMESTAMP, SCAN_VERSION)
)
"""Options that name the moment a batch read sees; there may be one of them."""

CHECKPOINT = "checkpointLocation"
QUERY_NAME = "queryName"

_KNOWN = {key.lower(): key for key in (*(o.key for o in (*ALL, *SPARK_OPTIONS)), CHECKPOINT, QUERY_NAME)}
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
