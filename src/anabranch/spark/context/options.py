"""Options of a read or a write as Spark hands them over.

Spark makes all option names lower-case, so names with capitals are restored from the known ones. Options
of the table keep their names and lie over those stored in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.errors import InvalidInputError, OptionError
from anabranch.format.schema.per_use import check_use
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.options import (
    ALL,
    CODE_VERSION,
    INCREMENTAL_BETWEEN,
    INCREMENTAL_BETWEEN_TIMESTAMP,
    LINEAGE_ENTRY,
    LOOKED_UP,
    MERGE_SCHEMA,
    OVERWRITE_IF_UNCHANGED_SINCE,
    OVERWRITE_PARTITION,
    PATH,
    SCAN_COLUMNS,
    SCAN_EXACT,
    SCAN_FILTER,
    SCAN_PUBLISHED,
    SCAN_START_OFFSET,
    SCAN_TIMESTAMP,
    SCAN_VERSION,
    STREAM_SCHEMA,
    WAREHOUSE,
    check_values,
)

SPARK_OPTIONS = (
    WAREHOUSE,
    PATH,
    SCAN_FILTER,
    SCAN_COLUMNS,
    SCAN_VERSION,
    SCAN_TIMESTAMP,
    SCAN_EXACT,
    SCAN_PUBLISHED,
    SCAN_START_OFFSET,
    OVERWRITE_PARTITION,
    OVERWRITE_IF_UNCHANGED_SINCE,
    MERGE_SCHEMA,
    CODE_VERSION,
    LINEAGE_ENTRY,
    LOOKED_UP,
    STREAM_SCHEMA,
)
"""Options of Spark's readers and writers besides those of tables."""

MOMENT_KEYS = tuple(option.key for option in MOMENT_OPTIONS)
"""Options that select the moment a batch read sees; at most one may be set."""

INCREMENTAL = (INCREMENTAL_BETWEEN.key, INCREMENTAL_BETWEEN_TIMESTAMP.key)
"""Options of a batch read of what was added between two moments."""

CHECKPOINT = "checkpointLocation"
QUERY_NAME = "queryName"

_KNOWN = {key.lower(): key for key in (*(o.key for o in ALL), CHECKPOINT, QUERY_NAME)}
_TRAVEL = {"versionasof": SCAN_VERSION.key, "timestampasof": SCAN_TIMESTAMP.key}
"""Spark's time travel options for catalog tables, in lower case, mapped to ours."""


_OWNER = "owner"
"""What Spark's own catalog says of every table that it is to have."""


def spelled(
    options: Mapping[str, str],
    *,
    besides: Iterable[str] = (),
    is_checked: bool = False,
    incremental: bool = False,
) -> dict[str, str]:
    """Return the options under their proper names.

    Those by which Spark finds the moment of a table of a catalog are left out: the catalog heard of it already.

    Args:
        options: as Spark hands them over.
        besides: unknown options that are allowed: those of the session or warehouse.
        is_checked: whether they were looked at before.
        incremental: whether they may ask for what was added between two moments: not those of a stream or a write.

    Raises `OptionError` for an unknown one.
    """
    named = {
        _KNOWN.get(key.lower(), key): value for key, value in options.items() if key.lower() not in _TRAVEL
    }
    if not incremental:
        refuse_incremental(named)
    if is_checked:
        check_values(table_options(named))
    else:
        check_use(named, also=(CHECKPOINT, QUERY_NAME, *besides))
    return named


def refuse_incremental(options: Mapping[str, str]) -> None:
    """Raise `OptionError` if a stream, a write or a read by Python asks for what was added between two moments."""
    for key in INCREMENTAL:
        if key in options:
            raise OptionError(
                f"option '{key}' is one of batch reads of classic sessions",
                hint="a stream reads what is added by itself; in Spark Connect, read from a classic session, or with "
                "table.changes(a, b) in Python.",
            )


def refuse_catalog_options(names: Iterable[str]) -> None:
    """Raise `OptionError` for options that tables of a catalog have: time travel, and the owner of a table of Spark's own."""
    for key in names:
        if key.lower() == _OWNER:
            raise OptionError(
                "a table of Spark's own catalog cannot be USING anabranch",
                hint="make it in the catalog of the warehouse: CREATE TABLE lake.db.t ..., df.writeTo('lake.db.t').create(). "
                "CREATE TEMPORARY VIEW v USING anabranch OPTIONS (path 'db.t') gives a table a name.",
            )
        ours = _TRAVEL.get(key.lower())
        if ours is not None:
            raise OptionError(
                f"option '{key}' is one for tables of a catalog, as in spark.read.option(...).table('lake.db.t')",
                hint=f"the data source has '{ours}'.",
            )


def refuse_moment(name: str, options: Mapping[str, str]) -> None:
    """Raise `InvalidInputError` if the options of a write into the table called `name` say which moment to read."""
    for key in MOMENT_KEYS:
        if key in options:
            raise InvalidInputError(
                f"rows are to be written into '{name}', but the write names a moment, {key} = '{options[key]}': the past "
                "cannot be written",
                hint="leave the option out; the option branch, or db.t$branch_fix, names a branch to write to.",
            )


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that belong to the table: all but those of Spark's readers and writers."""
    ours = {o.key for o in SPARK_OPTIONS} | {CHECKPOINT, QUERY_NAME}
    return {key: value for key, value in options.items() if key not in ours}
