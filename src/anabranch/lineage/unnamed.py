"""What a commit of rows says that is made outside of any job, by a process that has read tables.

Who writes is called as the program, as Spark calls it by its application. Such a commit tells no job how far it has come.
"""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.lineage.model import EMBEDDED, LineageEntry
from anabranch.lineage.recording import unknown_rows
from anabranch.lineage.remembered import Handed


def outside_of_jobs(rows: Handed | None) -> LineageEntry | None:
    """The entry of a commit of these rows; None if this process knows of no table that they may be made of."""
    before = unknown_rows(rows)
    if rows is None and before is None:
        return None
    problems: tuple[str, ...] = ()
    if before is not None:
        problems = (
            "the rows were written outside of any job, and may be made of what this process had read before: "
            f"{before}; read and write inside of lake.job()",
        )
    inputs = () if rows is None else rows.inputs
    return LineageEntry(_program(), None, None, EMBEDDED, inputs, problems, is_positioned=False)


def _program() -> str:
    """What the program is called."""
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
    return name if name.strip() == name and name.isprintable() and name not in ("", "-c", "-m") else "python"
