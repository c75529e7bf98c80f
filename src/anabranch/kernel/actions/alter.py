"""Change the schema: put a new version, if no other process put that version first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.expr.row_rules import check_rules
from anabranch.format.schema.change import SchemaChange, apply_changes, meant_ids
from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.field_tree import shift_field_ids
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.commit.in_history import keep_placement
from anabranch.kernel.log.context import TableContext, delete_exactly
from anabranch.kernel.log.field_ids import room_after

_MOST_COLLISIONS = 100
_MOST_REQUESTS = 3
"""How often to try putting a version on a store that does not answer."""


def alter(
    context: TableContext, changes: Sequence[SchemaChange], *, begun_on: TableSchema | None = None
) -> TableSchema:
    """Apply the changes to the newest schema, together or not at all. See `Alter.apply`.

    If others changed the schema since `begun_on`, the changes are applied to theirs, if they still mean
    the same: a column that was dropped and added again is another one.

    Args:
        changes: at least one; each sees the effect of those before it.
        begun_on: the schema that the changes were made for; None for the newest.
    """
    for _ in range(_MOST_COLLISIONS):
        _check_there(context)
        latest, changed = _changed(context, changes, begun_on)
        if changed is latest:
            return latest
        begun_on = begun_on or latest
        changed = _in_own_block(context, latest, changed)
        if _put(context, changed):
            _check_still_there(context, changed)
            keep_placement(context, latest, changed)
            return changed
    raise CommitRetriesExhaustedError(
        f"the schema of '{context.title}' was changed by others {_MOST_COLLISIONS} times in a row",
        hint="try again.",
    )


def preview(
    context: TableContext, changes: Sequence[SchemaChange], *, begun_on: TableSchema | None = None
) -> TableSchema:
    """Return the schema that `alter` would make now; nothing is written. Raises as `alter` does."""
    _check_there(context)
    return _changed(context, changes, begun_on)[1]


def _changed(
    context: TableContext, changes: Sequence[SchemaChange], begun_on: TableSchema | None
) -> tuple[TableSchema, TableSchema]:
    """Return the newest schema and the changed one; the same one twice if the changes have no effect."""
    latest = context.schemas.latest()
    if latest is not None and not context.schemas.look_again(latest.id):
        latest = context.schemas.latest()
    assert latest is not None, "a table has a schema"
    check_writable(latest, path=context.layout.schema_path(latest.id))
    begun_on = begun_on or latest
    changed = _applied(context, begun_on, changes)
    check_rules(changed)
    if latest != begun_on:
        changed = _replayed(context, begun_on, latest, changes)
    unchanged = (latest.fields, latest.options, latest.comment)
    return latest, latest if (changed.fields, changed.options, changed.comment) == unchanged else changed


def _applied(context: TableContext, schema: TableSchema, changes: Sequence[SchemaChange]) -> TableSchema:
    return apply_changes(
        schema,
        changes,
        time_millis=context.runtime.clock.now_millis(),
        has_snapshots=context.snapshots.head() is not None,
    )


def _in_own_block(context: TableContext, latest: TableSchema, changed: TableSchema) -> TableSchema:
    """Return the new version, with new field ids from the branch's own blocks."""
    before = latest.highest_field_id
    by = room_after(context, before, changed.highest_field_id - before) - before
    if not by:
        return changed
    fields = shift_field_ids(changed.fields, before, by)
    return replace(changed, fields=fields, highest_field_id=changed.highest_field_id + by)


def _replayed(
    context: TableContext, begun_on: TableSchema, latest: TableSchema, changes: Sequence[SchemaChange]
) -> TableSchema:
    """Apply changes made for one schema to a newer one. Raises `CommitConflictError` if they do not fit it."""
    try:
        changed = _applied(context, latest, changes)
        check_rules(changed)
        found = meant_ids(latest, changes)
    except (InvalidInputError, UnsupportedFeatureError) as error:
        raise _conflict(context, begun_on, latest, error.message) from error
    for change, then, now in zip(changes, meant_ids(begun_on, changes), found, strict=True):
        if then is not None and then <= begun_on.highest_field_id and then != now:
            name = getattr(change, "name", "")
            raise _conflict(context, begun_on, latest, f"'{name}' is another column now than was meant")
    return changed


def _conflict(
    context: TableContext, begun_on: TableSchema, latest: TableSchema, why: str
) -> CommitConflictError:
    done = changes_between(begun_on, latest)
    more = f" and {len(done) - 5} more" if len(done) > 5 else ""
    conflict = Conflict(
        "SCHEMA_CHANGED",
        f"others changed the schema of '{context.title}' from version {begun_on.id} to {latest.id} meanwhile: "
        f"{', '.join(done[:5]) or 'nothing that is left'}{more}. What was asked does not fit that: {why}",
        "look at the newest schema, and begin the change again.",
    )
    return CommitConflictError(
        f"{conflict.kind}: {conflict.message}", conflicts=(conflict,), hint=conflict.hint
    )


def _put(context: TableContext, schema: TableSchema) -> bool:
    """Store a version unless its number is taken. Raises `CommitOutcomeUnknownError`, `StorageError`."""
    for _ in range(_MOST_REQUESTS):
        try:
            return context.schemas.add(schema)
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            unknown = error  # asking again does no harm: the same bytes are the same version
    raise CommitOutcomeUnknownError(
        f"it is not known whether version {schema.id} of the schema of '{context.title}' was stored: "
        f"{unknown.message}",
        hint="look at the newest schema before changing it again.",
    ) from unknown


def _check_still_there(context: TableContext, schema: TableSchema) -> None:
    """Remove the stored version if the table was dropped or recreated meanwhile. Raises `NotFoundError`."""
    try:
        _check_there(context)
    except NotFoundError:
        delete_exactly(context.storage, context.layout.schema_path(schema.id), schema.to_json())
        raise


def _check_there(context: TableContext) -> None:
    if context.is_replaced(None):
        raise NotFoundError(
            f"'{context.title}' was dropped and created again since it was opened",
            hint="open the table again to change the new one.",
        )
