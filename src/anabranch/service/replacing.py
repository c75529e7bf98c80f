"""Replacement of main, for the command line."""

from __future__ import annotations

from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.service.branches import user
from anabranch.service.refs import open_branch

__all__ = ["ReplaceResult", "replace_main_branch", "undo_replace"]


def replace_main_branch(
    warehouse: str,
    table: str,
    name: str,
    *,
    expect_main: str | None,
    mode: str,
    wait: str | bool | None,
    force: bool,
    require_audit: str | None,
    reason: str | None,
    dry_run: bool,
) -> ReplaceResult:
    """Make a branch main, in the name of the logged-in user; as `Table.replace_main_branch` takes it."""
    return open_branch(warehouse, table, None).replace_main_branch(
        name,
        expect_main=expect_main,
        mode=mode,
        wait=wait,
        force=force,
        require_audit=require_audit,
        by=user(),
        reason=reason,
        dry_run=dry_run,
    )


def undo_replace(
    warehouse: str, table: str, *, number: int | None, alone: bool, reason: str | None
) -> ReplaceResult:
    """Undo a replacement of main, in the name of the logged-in user; as `Table.undo_replace` takes it."""
    return open_branch(warehouse, table, None).undo_replace(number, alone=alone, by=user(), reason=reason)
