"""Opens the branches of a table for checks, even if their fork records are damaged or missing."""

from __future__ import annotations

from anabranch.errors import AnabranchError, CorruptTableError, UnsupportedFeatureError
from anabranch.format.records.fork import FORK_FILE
from anabranch.kernel.branches.lost_fork import is_fork_gone, recovered_fork
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.repair.problem import Kind, Problem


def as_found(main: TableContext, branch: TableContext, problems: list[Problem]) -> tuple[TableContext, bool]:
    """Open a branch, with a recovered fork record if needed; return it and whether its identity is known.

    Args:
        main: the main branch.
        branch: the branch to check.
        problems: problems with the record are added.
    """
    if branch.branch is None:
        return branch, True
    path = branch.layout.branch_file_path(FORK_FILE)
    try:
        if (
            branch.fork is not None
            or state_of(branch) is not BranchState.READY
            or not is_fork_gone(main, branch)
        ):
            return branch, True
        message = f"{path}: is gone, though branch '{branch.branch}' was made by us"
    except UnsupportedFeatureError as error:  # what it says is not ours to guess
        problems.append(Problem(Kind.BRANCH, error.message, path, branch.branch, hint=error.hint))
        return branch.with_fork(None), False
    except CorruptTableError as error:
        message = str(error.message)
    fork = recovered_fork(main, branch)
    again = (
        None
        if fork is None
        else (
            "make it again from the branch's pin and its schemas; how long the branch was to be kept is not known any more, so "
            "`maintain` does not delete it"
        )
    )
    hint = "`delete-branch` removes the branch; rows that main or tags have stay." if fork is None else None
    problems.append(
        Problem(
            Kind.BRANCH,
            f"{message}: who the branch is, where it began and what it may merge stands there",
            path,
            branch.branch,
            repair=again,
            hint=hint,
        )
    )
    return branch.with_fork(fork), fork is not None


def half_made(context: TableContext, *, is_main: bool) -> Problem | None:
    """Return the problem of a branch that is not complete; None if there is none."""
    state = state_of(context)
    if state is BranchState.READY:
        schemas = context.schemas.ids()
        return None if schemas else _without_schema(context, is_main=is_main)
    if state is BranchState.ABSENT and not is_main:
        return None
    if state is BranchState.BEGUN and hinted_id(context) is not None:
        return None  # it was complete: the hint comes after the first snapshot
    doing = {BranchState.BEGUN: "half made", BranchState.DELETING: "half deleted"}.get(state, "no branch")
    return Problem(
        Kind.MAIN_GONE if is_main else Kind.BRANCH,
        f"branch '{context.branch}' is {doing}: nobody brought it to its end",
        context.layout.branch_root,
        context.branch,
        severity="error" if is_main else "warning",
    )


def _without_schema(context: TableContext, *, is_main: bool) -> Problem:
    return Problem(
        Kind.SCHEMA,
        f"branch '{context.branch}' has no schema{', and it is main' if is_main else ''}",
        context.layout.schema_folder,
        context.branch,
    )


def hinted_id(context: TableContext) -> int | None:
    """Return the newest snapshot id according to the hint; None if it cannot be read."""
    try:
        text = context.storage.get(context.layout.latest_hint_path)
    except AnabranchError:
        return None
    return int(text) if len(text) <= 18 and text.isdigit() and int(text) > 0 else None
