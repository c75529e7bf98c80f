"""Continues an operation on the new main if main was replaced in the middle of it.

A commit collides with the seal of a replacement and is made again. A tag, a savepoint or a version of the schema does
not collide, so whoever put one checks again. The replacement announces itself before its last copy of tags and
savepoints: what was put before that copy is included, and a later put finds the announcement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from anabranch.errors import SealedBranchError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.seals import settled
from anabranch.kernel.merge.declare import declared, declared_as

T = TypeVar("T")


def on_main(
    context: TableContext,
    operation: Callable[[TableContext], T],
    is_done: Callable[[TableContext, T], bool] = lambda _main, _result: False,
) -> T:
    """Run `operation` on the branch, again if main was replaced meanwhile, and return its last result.

    Args:
        context: the branch; one opened as main is followed to the current main.
        operation: puts something, and may be repeated on another branch.
        is_done: whether a new main already has a result of the operation; by default never.

    Raises `NotFoundError`: the table or branch was dropped since it was opened, even if recreated under its name.
    """
    if context.main_generation is None:
        with reading(context.storage) as begin:
            is_same, naming = (
                begin(context.check_same_branch),
                begin(partial(main_of, context.on_branch(None))),
            )
            is_same()
            main = naming()
        # A branch that was opened before it became main, or became main again, inherits since then.
        return operation(replace(context, past=main.past) if main.branch == context.branch else context)
    context.check_same_table()
    context = main_of(context)
    results = [operation(context)]
    while True:
        main = settled(context)
        if main.branch == context.branch:
            return results[-1]
        for result in results:  # it may have what was put in any of those before it
            if is_done(main, result):
                return result
        context = main
        results.append(operation(main))


def carried_over(
    messages: Sequence[CommitMessage], old: TableContext, new: TableContext
) -> tuple[CommitMessage, ...]:
    """Convert rows written for a replaced main into rows of the new one.

    Their files lie in folders that all branches share, but name their schema by id, and the same id may
    mean another schema there. A file goes under the version of the new main that has the same columns.

    Raises `SealedBranchError`: there is no such version.
    """
    own = [new.schemas.get(schema_id) for schema_id in reversed(new.schemas.ids())]
    versions = {
        schema_id: _version_of(old.schemas.get(schema_id), own, new)
        for schema_id in {file.schema_id for message in messages for file in message.new_files}
    }
    return tuple(
        replace(
            message,
            new_files=tuple(
                declared(file, old.schemas.get(file.schema_id), versions[file.schema_id])
                for file in message.new_files
            ),
        )
        for message in messages
    )


def _version_of(written: TableSchema, own: Sequence[TableSchema], new: TableContext) -> TableSchema:
    ids = {field.id for field in written.fields}
    fitting = [v for v in own if ids <= {field.id for field in v.fields}]
    alike = [v for v in fitting if v.partition_keys == written.partition_keys]
    found = declared_as(written, alike[0], alike) if alike else None
    if found is None:
        raise SealedBranchError(
            f"main of '{new.name}' was replaced while rows were being written in version {written.id} of its schema, and "
            "the new main has no version with these columns",
            hint="nothing was published: write the rows again, in the schema of the new main.",
        )
    return found
