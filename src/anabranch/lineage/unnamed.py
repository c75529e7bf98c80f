"""The lineage entry of a commit made outside of any job, by a process that has read tables.

Its writer is named after the program, or Spark's application. Such a commit gives no job a position.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from anabranch.lineage.model import EMBEDDED, LINEAGE_PROPERTY, LineageEntry
from anabranch.lineage.recording import unknown_rows
from anabranch.lineage.remembered import Handed

Origin = Mapping[str, str]
"""Properties of a commit that say where its rows come from."""

ORIGINS: Final[list[Callable[[Any, Handed | None], Origin | None]]] = []
"""Hooks that know more of the rows that this thread writes to a table; Spark has one for its callbacks."""

_OUTSIDE: Final = (
    "the rows were written outside of any job, and may be made of what this process had read before: {}; read and write inside "
    "of lake.job()"
)


def outside_of_jobs(table: Any, rows: Handed | None) -> Origin:
    """Return the properties for a commit of these rows; empty if this process knows of no table they may come from."""
    known = next((found for origin in ORIGINS if (found := origin(table, rows)) is not None), None)
    if known is not None:
        return known
    before = unknown_rows(rows)
    if rows is None and before is None:
        return {}
    problems: tuple[str, ...] = ()
    if before is not None:
        problems = (_OUTSIDE.format(before),)
    inputs = () if rows is None else rows.inputs
    entry = LineageEntry(_program(), None, None, EMBEDDED, inputs, problems, is_positioned=False)
    return {LINEAGE_PROPERTY: entry.to_json()}


def _program() -> str:
    """Return the name of the program."""
    path = Path(sys.argv[0]) if sys.argv else Path()
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name.strip() == name and name.isprintable() and name not in ("", "-c", "-m") else "python"
