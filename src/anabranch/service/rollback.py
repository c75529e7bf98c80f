"""Rolling a table back, looked at before and done."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.maintenance.rollback import RollbackResult, rollback
from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """Something that refers to a snapshot that would go."""

    kind: str
    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class RollbackInfo:
    """What a rollback does or did."""

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
    """Snapshots that go for good, newest first."""
    removed_references: tuple[HolderInfo, ...]
    """What refers to them, and goes with them if that is forced."""


@dataclass(frozen=True, slots=True)
class WatermarkInfo:
    """A watermark that was set anew."""

    table: str
    watermark: int | None
    """Epoch milliseconds; None for none."""
    before: int | None
    snapshot: int | None
    """The newest snapshot afterwards."""


def reset_watermark(table: Table, to: str | None) -> WatermarkInfo:
    """Set the watermark of a table anew. Raises as `Table.reset_watermark`."""
    before = table.watermark
    found = table.reset_watermark(to)
    if found is None:
        return WatermarkInfo(table.name, None, None, None)
    return WatermarkInfo(table.name, found.watermark, before, found.id)


def preview(table: Table, to: str, *, destructive: bool = False) -> tuple[RollbackInfo, RollbackResult]:
    """What a rollback would do, as a value to show and one to carry it out by."""
    result = rollback(table.context, to, destructive=destructive, dry_run=True)
    return _info(table, to, result), result


def carry_out(table: Table, to: str, planned: RollbackResult, *, force: bool = False) -> RollbackInfo:
    """Roll back as it was looked at. Raises as `Table.rollback`, also if a destructive one would remove more by now."""
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
