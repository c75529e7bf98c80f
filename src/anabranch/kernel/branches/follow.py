"""Going on with the new main where main was replaced in the middle of an operation.

A commit collides with the seal of a replacement and is made again. A tag, a savepoint or a version of the schema does
not collide, so whoever put one looks again. The replacement announces itself before it copies tags and savepoints for
the last time: what was put before that look is copied, and who puts something after it finds the announcement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from anabranch.errors import SealedBranchError
from anabranch.kernel.branches.main import main_of
from anabranch.kernel.branches.seal import settled
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.context import TableContext

T = TypeVar("T")


def on_main(
    context: TableContext,
    operation: Callable[[TableContext], T],
    is_done: Callable[[TableContext, T], bool] | None = None,
) -> T:
    """What `operation` returns for the branch, or for the main that there is when it has come to its end.

    Args:
        context: the branch; one opened as main is followed to where main is.
        operation: puts something, and may be repeated on another branch.
        is_done: whether a new main has the result of the operation already; never if None.
    """
    if context.main_generation is None:
        return operation(context)
    context = main_of(context)
    result = operation(context)
    while True:
        main = settled(context)
        if main.branch == context.branch or (is_done is not None and is_done(main, result)):
            return result
        context, result = main, operation(main)


def check_carries_over(messages: Sequence[CommitMessage], old: TableContext, new: TableContext) -> None:
    """Raise `SealedBranchError` unless rows that were written for a main that was replaced can go to the new one.

    Their files lie in folders that all branches share, but each names its schema by a number, and the same number may
    mean another schema there.
    """
    known = set(new.schemas.ids())
    for schema_id in sorted({file.schema_id for message in messages for file in message.new_files}):
        written = old.schemas.get(schema_id)
        there = new.schemas.get(schema_id) if schema_id in known else None
        if there is None or (there.fields, there.partition_keys) != (written.fields, written.partition_keys):
            found = "has no such version" if there is None else "has another schema under that number"
            raise SealedBranchError(
                f"main of '{new.name}' was replaced while rows were being written in version {schema_id} of its "
                f"schema, and the new main {found}",
                hint="nothing was published: write the rows again, in the schema of the new main.",
            )
