"""Branches, for the command line."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TypeVar

from anabranch.errors import CommitConflictError, NotFoundError
from anabranch.kernel.branches.branch_info import BranchInfo
from anabranch.kernel.branches.delete import DeletedBranch
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.result import MergeResult
from anabranch.lineage.lag import BranchLag
from anabranch.runtime import SYSTEM
from anabranch.service.refs import open_branch
from anabranch.table import Table

T = TypeVar("T")

__all__ = [
    "BranchInfo",
    "BranchLag",
    "MergeResult",
    "branch",
    "branches",
    "create_branch",
    "delete_branch",
    "lags",
    "merge_branch",
    "moved",
    "repeatedly",
    "user",
]


def branches(warehouse: str, table: str) -> tuple[Table, list[BranchInfo]]:
    """Return the table, and facts about main and each branch, main first. Raises `NotFoundError`."""
    view = open_branch(warehouse, table, None)
    return view, view.branch_infos()


def lags(table: Table) -> list[BranchLag]:
    """Return how far each branch is behind main, by name; half-created and half-deleted branches are left out."""
    names = [
        info.name for info in table.branch_infos() if not info.is_main and info.tag and info.state == "ready"
    ]
    found = []
    for name in names:
        with suppress(NotFoundError):  # it was deleted meanwhile
            found.append(table.branch_lag(name))
    return found


def repeatedly(look: Callable[[], T], every_seconds: float, times: int | None) -> Iterator[T]:
    """Yield the result of `look` repeatedly, with pauses between; so many times, for ever if None."""
    for number in count() if times is None else range(times):
        if number:
            SYSTEM.sleeper.sleep(every_seconds)
        yield look()


def branch(table: Table, name: str) -> BranchInfo:
    """Return facts about one branch, even a half-created or half-deleted one. Raises `NotFoundError`."""
    found = next((info for info in table.branch_infos() if info.name == name), None)
    if found is None:
        raise NotFoundError(
            f"branch '{name}' does not exist in '{table.name}'", hint="`branches` lists those there are."
        )
    return found


def create_branch(
    table: Table,
    name: str,
    *,
    tag: str | None,
    snapshot: str | None,
    savepoint: int | None,
    retained: str | None,
) -> BranchInfo:
    """Create a branch in the name of the logged-in user; arguments as for `Table.create_branch`."""
    table.create_branch(
        name, tag, snapshot=snapshot, savepoint=savepoint, created_by=user(), retained=retained
    )
    return branch(table, name)


def delete_branch(table: Table, name: str) -> DeletedBranch:
    """Delete a branch. Raises `NotFoundError`, `InvalidInputError`."""
    return table.delete_branch(name)


def merge_branch(
    table: Table,
    name: str,
    *,
    resolve: Sequence[str],
    allow_source_overlap: bool,
    require_audit: str | None,
    dry_run: bool,
) -> MergeResult:
    """Merge a branch into main, or only preview it. Conflicts are part of the result.

    Args:
        table: the table.
        name: of the branch.
        resolve: ``ours`` or ``theirs`` for all conflicts, or ``<partition>:ours`` for one.
        allow_source_overlap: as `Table.merge_branch` takes it.
        require_audit: name of the checks that the branch must have passed.
        dry_run: only plan it.

    Raises what `Table.merge_branch` raises, but for conflicts between the branch and main.
    """
    try:
        return table.merge_branch(
            name,
            resolve=_choices(resolve),
            allow_source_overlap=allow_source_overlap,
            require_audit=require_audit,
            dry_run=dry_run,
        )
    except CommitConflictError as error:
        found = tuple(c for c in error.conflicts if isinstance(c, MergeConflict))
        if not found or len(found) < len(error.conflicts):
            raise
        return MergeResult(name, conflicts=found)


def _choices(given: Sequence[str]) -> dict[str, str]:
    """Parse ``theirs`` and ``dt=a:ours`` into choices by partition."""
    choices = {}
    for text in given:
        partition, _, choice = text.rpartition(":")
        choices[partition or "*"] = choice
    return choices


def moved(info: BranchInfo) -> str:
    """Describe how far a branch and main moved since the fork: ``2 snapshots, +20 rows; main 3 snapshots, +3 rows``."""
    own, of_main = (
        _moved(info.snapshots_ahead, info.rows_ahead),
        _moved(info.snapshots_behind, info.rows_behind),
    )
    return f"{own}; main {of_main}"


def _moved(snapshots: int | None, rows: int | None) -> str:
    if not snapshots:
        return "not moved" if snapshots == 0 else "not known"
    counted = f"{snapshots:,} snapshot{'' if snapshots == 1 else 's'}"
    return counted if rows is None else f"{counted}, {rows:+,} rows"


def user() -> str | None:
    """Return the logged-in user; None if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in containers whose user has no name
        return None
