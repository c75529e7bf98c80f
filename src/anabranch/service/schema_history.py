"""What one version of a schema changed in another, in words."""

from __future__ import annotations

from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.table_schema import TableSchema


def phrases(old: TableSchema, new: TableSchema) -> list[str]:
    """Return one phrase a change, such as ``added 'v'``."""
    return changes_between(old, new)
