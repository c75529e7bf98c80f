"""Rollback of a table, previewed and carried out."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.maintenance.rollback import RollbackResult, rollback
from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """A reference to a snapshot that would be removed."""

    kind: str
    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class RollbackInfo:
    """Result of a rollback, or a preview."""

    table: str
    to: str
    target_snapshot: int
    destructive: bool
    done: bool
    """False for a dry run."""
    snapshot: int | None
    """The newest snapshot afterwards; None for a dry run."""
    files_removed: int
    rows_removed: int
    files_restored: int
    rows_restored: int
    removed_snapshots: tuple[int, ...]
    """Snapshots removed for good, newest first."""
    removed_references: tuple[HolderInfo, ...]
    """References to them, which are removed with them if forced."""


@dataclass(frozen=True, slots=True)
class WatermarkInfo:
    """A watermark that was reset."""

    table: str
    watermark: int | None
    """Epoch milliseconds; None for none."""
    before: int | None
    snapshot: int | None
    """The newest snapshot afterwards."""


def reset_watermark(table: Table, to: str | None) -> WatermarkInfo:
    """Reset the watermark of a table. Raises as `Table.reset_watermark`."""
    before = table.watermark
    found = table.reset_watermark(to)
    if found is None:
        return WatermarkInfo(table.name, None, None, None)
    return WatermarkInfo(table.name, found.watermark, before, found.id)


def preview(table: Table, to: str, *, destructive: bool = False) -> tuple[RollbackInfo, RollbackResult]:
    """Return what a rollback would do, as a value to show and one to carry it out with."""
    result = rollback(table.context, to, destructive=destructive, dry_run=True)
    return _info(table, to, result), result


def carry_out(table: Table, to: str, planned: RollbackResult, *, force: bool = False) -> RollbackInfo:
    """Roll back as previewed. Raises as `Table.rollback`, also if a destructive one would remove more by now."""
    result = rollback(
        table.context,
        to,
        destructive=planned.removal is not None,
        force=force,
        planned=planned.removal,
    )
    return _info(table, to, result)


def _info(table: Table, to: str, result: RollbackResult) -> RollbackInfo:
    changed, removal = result.changed, result.removal
    return RollbackInfo(
        table=table.name,
        to=to,
        target_snapshot=result.target.id,
        destructive=removal is not None,
        done=result.snapshot is not None,
        snapshot=None if result.snapshot is None else result.snapshot.id,
        files_removed=changed.files_removed,
        rows_removed=changed.rows_removed,
        files_restored=changed.files_restored,
        rows_restored=changed.rows_restored,
        removed_snapshots=() if removal is None else tuple(s.id for s in removal.snapshots),
        removed_references=()
        if removal is None
        else tuple(HolderInfo(str(h.kind), h.name, h.snapshot_id) for h in removal.holders),
    )
