"""Rolls a branch back, either by a new commit or by removing later snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.rollback.history_removal import Removal, plan_removal, remove_after
from anabranch.kernel.rollback.roll_back import Changed, preview, roll_back


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """Result of a rollback, or a preview."""

    target: Snapshot
    """The requested moment."""
    snapshot: Snapshot | None
    """The newest snapshot afterwards; None for a dry run."""
    changed: Changed
    """Live files and rows that were removed and restored, as of the start."""
    removal: Removal | None = None
    """Snapshots that were removed and references to them; None unless it was destructive."""


def rollback(
    context: TableContext,
    version: str | int,
    *,
    destructive: bool = False,
    force: bool = False,
    dry_run: bool = False,
    planned: Removal | None = None,
) -> RollbackResult:
    """Return to an earlier moment. See `anabranch.table.Table.rollback`.

    Args:
        context: the branch.
        version: the moment.
        destructive: remove the snapshots after it instead of committing a new one.
        force: also remove references to them.
        dry_run: only return what would be done.
        planned: for a destructive rollback, the result of a dry run: if there is more to remove now, nothing is done.
    """
    moment, changed = preview(context, version)
    target = moment.snapshot
    if not destructive:
        made = None if dry_run else roll_back(context, version)
        return RollbackResult(target, made, changed)
    removal = planned or plan_removal(context, moment)
    if dry_run:
        return RollbackResult(target, None, changed, removal)
    remove_after(context, removal, force=force)
    return RollbackResult(target, context.snapshots.head(), changed, removal)
