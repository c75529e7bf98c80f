"""Refuses to remove files while snapshots are missing that were deleted by hand.

Files that only they reach are needed to restore them, but look unreachable.
"""

from __future__ import annotations

from anabranch.errors import CorruptTableError
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_decisions
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.parallel import each


def check_main_there(context: TableContext) -> TableContext:
    """Return main. Raises `CorruptTableError`: the main branch, or the pointer to it, is missing."""
    check_decisions(context)
    # One that was opened as main is main still, or a decision above the one that made it so says what is.
    main = main_of(context if context.main_generation is not None else context.on_branch(None))
    if main.branch is not None and state_of(main) in {BranchState.ABSENT, BranchState.LEFT_OVER}:
        raise CorruptTableError(
            f"branch '{main.branch}', which is main, is not there, so it is not known which files are needed",
            path=main.layout.branch_root,
            hint="somebody deleted or renamed it: `repair` brings it back.",
        )
    return main


def check_no_snapshot_missing(context: TableContext) -> None:
    """Raise `CorruptTableError` as `check_main_there`, and if the newest snapshot of a branch is missing."""
    main = check_main_there(context)

    def check(name: str | None) -> None:
        branch = main if name == main.branch else main.on_branch(name)
        try:
            branch.snapshots.head(strict=True)
        except CorruptTableError:
            if name is None or state_of(branch) in {BranchState.READY, BranchState.BEGUN}:
                raise
            # It is being deleted, or was.

    each(check, [None, *branch_names(main)], at=main.storage)
