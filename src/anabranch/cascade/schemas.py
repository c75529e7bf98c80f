"""Takes what main's schema got since a snapshot into a branch that begins with it, so that publishing loses none of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.errors import CommitRetriesExhaustedError, InvalidInputError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.merge.schema import merge_schemas

_MOST_COLLISIONS = 5


def take_in_schema(main: TableContext, branch: TableContext, fork_schema: int) -> Sequence[str]:
    """Change a branch's schema as main's was changed since; return the changes, in words. Repeated it changes nothing.

    Args:
        main: the table.
        fork_schema: id of the schema in which the branch begins.

    Raises `InvalidInputError`: both were changed, and the changes do not go together.
    """
    now = main.schemas.latest()
    if now is None or now.id == fork_schema:
        return ()
    base = main.schemas.get(fork_schema)
    for _ in range(_MOST_COLLISIONS):
        own = branch.schemas.latest()
        assert own is not None, "a branch has a schema"
        merged = merge_schemas(base, own, _with_new_columns_nullable(base, now))
        if isinstance(merged, list):
            raise InvalidInputError(
                f"the schema of '{main.name}' was changed since the snapshot with which its branch '{branch.branch}' begins, and "
                f"that does not go together with the branch: {'; '.join(one.message for one in merged)}",
                hint="begin at a tag that was made after the change; or change the branch's schema so that it fits.",
            )
        if not merged.changes:
            return ()
        # Ids of columns to come are taken from the branch's own block, whichever those of main are.
        version = replace(
            merged.schema,
            highest_field_id=own.highest_field_id,
            time_millis=branch.runtime.clock.now_millis(),
        )
        if branch.schemas.add(version):
            return merged.changes
    raise CommitRetriesExhaustedError(
        f"the schema of '{branch.title}' was changed by others {_MOST_COLLISIONS} times in a row",
        hint="try again.",
    )


def _with_new_columns_nullable(base: TableSchema, now: TableSchema) -> TableSchema:
    """Return main's schema with nulls in columns that the rows of the branch do not have."""
    known = {one.id for one in base.fields}
    fields = tuple(
        one if one.id in known else replace(one, type=one.type.with_nullable(True)) for one in now.fields
    )
    return replace(now, fields=fields)
