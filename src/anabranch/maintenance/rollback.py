"""Rolling a branch back, both ways: as a new commit, or by removing what came later."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.rollback.history_removal import Removal, plan_removal, remove_after
from anabranch.kernel.rollback.roll_back import Changed, preview, roll_back


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """What a rollback did, or would do."""

    target: Snapshot
    """The moment that was asked for."""
    snapshot: Snapshot | None
    """The newest snapshot afterwards; None for a dry run."""
    changed: Changed
    """Live files and rows that went and came back, as seen when it began."""
    removal: Removal | None = None
    """Snapshots that were removed and what referred to them; None unless it was destructive."""


def rollback(
    context: TableContext,
    version: str | int,
    *,
    destructive: bool = False,
    force: bool = False,
    dry_run: bool = False,
    planned: Removal | None = None,
) -> RollbackResult:
    """Go back to an earlier moment. See `anabranch.table.Table.rollback`.

    Args:
        context: the branch.
        version: the moment.
        destructive: remove the snapshots after it instead of committing a new one.
        force: remove what refers to them as well.
        dry_run: only say what would be done.
        planned: of a destructive rollback, what a dry run said: if there is more by now, nothing is done.
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
