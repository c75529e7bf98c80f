"""Change the schema: a new version, put if nobody else put that version first."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import CommitRetriesExhaustedError, NotFoundError
from anabranch.kernel.context import TableContext
from anabranch.spec.schema import TableSchema
from anabranch.spec.schema_change import SchemaChange, apply_changes
from anabranch.spec.support import check_writable

_MOST_COLLISIONS = 100


def alter(context: TableContext, changes: Sequence[SchemaChange]) -> TableSchema:
    """Apply the changes to the newest schema, together or not at all.

    If another writer changes the schema at the same time the changes are applied to theirs, so they may
    be refused because of what the other did.

    Raises:
        SchemaError: a change does not fit the newest schema.
        NotFoundError: the table was dropped since it was opened, and perhaps created again.
    """
    for _ in range(_MOST_COLLISIONS):
        _check_there(context)
        latest = context.schemas.latest()
        assert latest is not None, "a table has a schema"
        check_writable(latest, path=context.layout.schema_path(latest.id))
        changed = apply_changes(
            latest,
            changes,
            time_millis=context.runtime.clock.now_millis(),
            has_snapshots=context.snapshots.head() is not None,
        )
        if context.schemas.add(changed):
            try:
                _check_there(context)
            except NotFoundError:
                context.storage.delete(context.layout.schema_path(changed.id))
                raise
            return changed
    raise CommitRetriesExhaustedError(
        f"the schema of '{context.title}' was changed by others {_MOST_COLLISIONS} times in a row",
        hint="try again.",
    )


def _check_there(context: TableContext) -> None:
    if context.is_replaced(None):
        raise NotFoundError(
            f"'{context.title}' was dropped and created again since it was opened",
            hint="open the table again to change the new one.",
        )
