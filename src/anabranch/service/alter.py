"""Changing the schema of a table, from changes as people type them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.format.schema.change_text import parse_change
from anabranch.format.schema.diff import changes_between
from anabranch.lake import Lake
from anabranch.service.tables import ColumnInfo, View, columns_of_schema, open_table


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its kind and text, as `anabranch.format.schema.change_text` lists them."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class AlterInfo:
    """What changes made of a schema, or would make."""

    table: str
    schema_before: int
    schema_id: int
    """The version that holds the changes; that of before if they change nothing."""
    changes: tuple[str, ...]
    """One phrase a difference between the two, such as ``dropped 'v'``."""
    columns: tuple[ColumnInfo, ...]
    applied: bool


def alter(lake: Lake, view: View, changes: Sequence[Change], *, dry_run: bool = False) -> AlterInfo:
    """Make the changes in their order, as one version of the schema.

    Raises:
        InvalidInputError: a text cannot be read, or a change does not fit; nothing was written.
        CommitConflictError: somebody else changed the schema at the same time.
    """
    table = open_table(lake, view)
    before = table.schema
    wanted = table.alter()
    for change in changes:
        wanted = wanted.with_change(parse_change(change.kind, change.text))
    after = wanted.preview() if dry_run else wanted.apply()
    return AlterInfo(
        table.name,
        before.id,
        after.id,
        tuple(changes_between(before, after)),
        columns_of_schema(after),
        not dry_run and after.id != before.id,
    )
