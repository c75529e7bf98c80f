"""A racing change of placement (bucket key, folder names) and first commit detect each other by re-reading.

Snapshots are checked before a schema is put, and the schema before a snapshot is put, so a
change of placement and the first commit may miss each other. Both therefore check again after their put:
whatever the order, the later one sees the earlier, and at least one gives way.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import CommitConflictError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.option_change import differing_placement
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.log.context import TableContext


def placement_conflict(base: Base, schema_ids: set[int]) -> Conflict | None:
    """Return a conflict if files of these schemas do not lie where the base's schema says."""
    for schema_id in sorted(schema_ids - {base.schema.id}):
        differing = differing_placement(base.context.schemas.get(schema_id), base.schema)
        if differing is not None:
            return _conflict(base.context, schema_id, base.schema.id, differing)
    return None


def is_misplaced(context: TableContext, first: Snapshot) -> bool:
    """Whether the placement was changed while the first snapshot of a table was being made."""
    latest = context.schemas.latest()
    if latest is None or latest.id == first.schema_id:
        return False
    if differing_placement(context.schemas.get(first.schema_id), latest) is None:
        return False
    return not context.storage.exists(context.layout.snapshot_path(first.id + 1))  # built on: too late


def keep_placement(context: TableContext, before: TableSchema, after: TableSchema) -> None:
    """Take back a schema with a new placement that was put while rows were committed in the old one.

    Raises `CommitConflictError` if so.
    """
    differing = differing_placement(before, after)
    if differing is None:
        return
    head = context.snapshots.head()
    if head is None or all(s.schema_id >= after.id for s in context.snapshots.backwards(head)):
        return
    restored = False
    while not restored:
        newest = context.schemas.latest()
        assert newest is not None, "a version was just put"
        restored = context.schemas.add(
            replace(
                before,
                id=newest.id + 1,
                highest_field_id=newest.highest_field_id,
                time_millis=context.runtime.clock.now_millis(),
            )
        )
    conflict = _conflict(context, before.id, after.id, differing)
    raise CommitConflictError(
        f"{conflict.kind}: {conflict.message}", conflicts=(conflict,), hint=conflict.hint
    )


def _conflict(context: TableContext, written: int, now: int, option: str) -> Conflict:
    return Conflict(
        "PLACEMENT_CHANGED",
        f"option '{option}' of '{context.title}' differs between version {written} of the schema, with which rows "
        f"were written, and version {now}: they do not lie where it says",
        "write the rows again with a new handle; once rows are committed the option stays.",
    )
