"""Columns of rows that were being written while a branch's schema was put in the place of the table's.

A writer's files keep the schema they were written with, so a column that somebody drops meanwhile is dropped from its
rows too: as if they had been written before. A replacement of main by a commit is another matter. It would have
replaced rows that came before it, and rows that come after it are checked against the new columns, so rows that were
written for the old columns and lost some of them fit in neither order.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.format.types.widening import is_wider
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.log.field_ids import begins_block


def lost_columns_conflict(base: Base, schema_ids: set[int]) -> Conflict | None:
    """A conflict if files of these schemas have columns that a replacement of main took away, or made narrower."""
    schemas = base.context.schemas
    for schema_id in sorted(schema_ids - {base.schema.id}):
        written = schemas.get(schema_id)
        if not any(_lost(written, written, base.schema)):
            continue
        numbers = range(schema_id + 1, base.schema.id + 1)
        schemas.fetch(numbers)
        before = written
        for after in filter(None, map(schemas.find, numbers)):
            # Whoever takes in a branch's schema goes on numbering in a fresh block; who drops columns does not.
            lost = next(_lost(written, before, after), None) if begins_block(before, after) else None
            if lost is not None:
                return Conflict(
                    "SCHEMA_CHANGED",
                    f"rows were written in version {schema_id} of the schema of '{base.context.title}', and a branch's "
                    f"schema took its place with version {after.id}, which does not hold their column '{lost.name}'",
                    "write the rows again, in the schema that the table has now.",
                )
            before = after
    return None


def _lost(written: TableSchema, before: TableSchema, after: TableSchema) -> Iterator[Field]:
    """The columns of a file that a version holds, and the next one not any more."""
    ours = {f.id for f in written.fields}
    there = {f.id: f for f in after.fields}
    for f in before.fields:
        kept = there.get(f.id)
        if f.id in ours and (kept is None or not is_wider(f.type, kept.type)):
            yield f
