"""Branches, as the command line shows and changes them."""

from __future__ import annotations

import getpass

from anabranch.kernel.branches.branch_info import BranchInfo
from anabranch.kernel.branches.delete import DeletedBranch
from anabranch.kernel.refs.moment import duration_text
from anabranch.service.refs import open_branch
from anabranch.table import Table


def branches(warehouse: str, table: str) -> tuple[Table, list[BranchInfo]]:
    """The table, and facts about main and each branch, main first. Raises `NotFoundError`."""
    view = open_branch(warehouse, table, None)
    return view, view.branch_infos()


def branch(table: Table, name: str) -> BranchInfo | None:
    """Facts about one branch; None if it is not listed."""
    return next((info for info in table.branch_infos() if info.name == name), None)


def create_branch(
    table: Table,
    name: str,
    *,
    tag: str | None,
    snapshot: str | None,
    savepoint: int | None,
    retained: str | None,
) -> BranchInfo:
    """Create a branch in the name of who is logged in; arguments as `Table.create_branch` takes them."""
    table.create_branch(
        name, tag, snapshot=snapshot, savepoint=savepoint, created_by=_user(), retained=retained
    )
    made = branch(table, name)
    assert made is not None, "it was created just now"
    return made


def delete_branch(table: Table, name: str) -> DeletedBranch:
    """Remove a branch. Raises `NotFoundError`, `InvalidInputError`."""
    return table.delete_branch(name)


def moved(info: BranchInfo) -> str:
    """How far a branch and main have moved since it began, in words: ``2 snapshots, +20 rows; main 3 snapshots, +3 rows``."""
    own, of_main = (
        _moved(info.snapshots_ahead, info.rows_ahead),
        _moved(info.snapshots_behind, info.rows_behind),
    )
    return f"{own}; main {of_main}"


def age(since: int | None, until: int | None) -> str:
    """The time between two moments in epoch milliseconds, in its two largest units."""
    return "" if since is None or until is None else duration_text(until - since)


def _moved(snapshots: int | None, rows: int | None) -> str:
    if not snapshots:
        return "not moved" if snapshots == 0 else "not known"
    counted = f"{snapshots:,} snapshot{'' if snapshots == 1 else 's'}"
    return counted if rows is None else f"{counted}, {rows:+,} rows"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in containers whose user has no name
        return None
