"""Rolling a branch back for good: the snapshots after the target are removed, with what refers to them.

Every moment of it is a whole table, so that a removal which was killed can be repeated and ends in the same
place: first a record of what goes (`anabranch.spec.rewind`; `removals`, by which what an overtaken writer builds on it is
known as a leftover), then the hint to the newest snapshot (which readers check), then the references to what goes,
then the snapshots, newest first, then what the archive has of such snapshots. Data files and manifests stay for expiry
and orphan cleaning, which ask what is reached.

Stop the writers first. A commit that lands while this works builds on what is being removed and goes with it; what
a writer of ours puts after a snapshot that is gone by then, that writer takes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from anabranch.errors import CommitConflictError
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.commit.ledger import forget_after
from anabranch.kernel.context import TableContext
from anabranch.kernel.exact import delete_snapshot
from anabranch.kernel.history import archive
from anabranch.kernel.merge.pins import unpin_after
from anabranch.kernel.properties import PARENT_PROPERTY, ROLLBACK_PROPERTY
from anabranch.kernel.removals import record_removal
from anabranch.kernel.rollback.holders import Holder, holders_after, release
from anabranch.kernel.rollback.pins import unpin
from anabranch.kernel.rollback.rewinds import record_rewind
from anabranch.spec.snapshot import NO_LIST, Snapshot


@dataclass(frozen=True, slots=True)
class Removal:
    """What rolling back for good takes away."""

    target: Snapshot
    """The newest snapshot afterwards."""
    snapshots: tuple[Snapshot, ...]
    """Those that go, newest first."""
    holders: tuple[Holder, ...]
    """What refers to them, and goes with them if that is forced."""

    @property
    def head(self) -> Snapshot:
        """The newest snapshot before."""
        return self.snapshots[0] if self.snapshots else self.target


def plan_removal(context: TableContext, target: Snapshot) -> Removal:
    """What `remove_after` would take away now.

    Raises `CommitConflictError` if `target` is not part of the current history.
    """
    head, found = context.snapshots.head(), context.snapshots.find(target.id)
    is_other = found is not None and found.stamp != target.stamp
    if head is None or head.id < target.id or is_other or target.delta_manifest_list == NO_LIST:
        raise _refused(
            "NOT_IN_HISTORY",
            f"snapshot {target.id} of the moment that was named is not part of the current history of "
            f"'{context.title}'",
            "roll back without 'destructive': that takes any moment that can be read.",
        )
    later = tuple(takewhile(lambda snapshot: snapshot.id > target.id, context.snapshots.backwards(head)))
    return Removal(target, later, tuple(holders_after(context, target, later)))


def remove_after(context: TableContext, removal: Removal, *, force: bool = False) -> None:
    """Carry the removal out.

    Args:
        context: the branch.
        removal: what `plan_removal` found; exactly that is removed.
        force: remove what refers to the snapshots as well.

    Raises:
        CommitConflictError: something refers to the snapshots and `force` is False, or the history or what refers
            to it has changed since the plan was made; nothing was removed.
    """
    if not removal.snapshots:
        archive.forget_after(context, removal.target.id)
        return
    _check(context, removal, force=force)
    snapshots, target = context.snapshots, removal.target
    record_rewind(context, target, removal.head)
    has_expired = snapshots.find(target.id) is None
    if has_expired:  # it is known from a tag only; when the others are gone it is the newest again
        context.storage.put_if_absent(context.layout.snapshot_path(target.id), target.to_json())
    record_removal(context.storage, context.layout, context.manifests, target, removal.snapshots)
    snapshots.take_back_hint(target.id)
    for holder in removal.holders:
        release(context, holder)
    forget_after(context, target.id)
    for snapshot in removal.snapshots:
        if ROLLBACK_PROPERTY in snapshot.properties:
            unpin(context, snapshot.commit_user)
    if context.branch is None or context.main_generation is not None:
        unpin_after(context, target.id)
    for snapshot in removal.snapshots:
        delete_snapshot(context, snapshot)
    _sweep(context, removal)
    archive.forget_after(context, target.id)
    if has_expired:
        context.storage.put(context.layout.earliest_hint_path, str(target.id).encode(), durable=False)


def _check(context: TableContext, removal: Removal, *, force: bool) -> None:
    if removal.holders and not force:
        listed = "; ".join(str(holder) for holder in removal.holders)
        raise CommitConflictError(
            f"STILL_REFERRED_TO: {len(removal.snapshots)} snapshots of '{context.title}' after "
            f"{removal.target.id} cannot be removed, because of {listed}",
            conflicts=removal.holders,
            hint="remove these first, or use force to remove exactly these; without 'destructive' nothing of the "
            "history goes away.",
        )
    now = plan_removal(context, removal.target)
    if now.head.stamp != removal.head.stamp or not set(now.holders) <= set(removal.holders):
        raise _refused(
            "HISTORY_MOVED",
            f"'{context.title}' was changed since it was looked at what to remove",
            "look again, then repeat it; stop the writers first.",
        )


def _sweep(context: TableContext, removal: Removal) -> None:
    """Remove what landed meanwhile on the snapshots that are gone, and says so; anything else is left to who finds it."""
    gone = {snapshot.stamp for snapshot in removal.snapshots}
    landed: list[Snapshot] = []
    for number in context.snapshots.ids():
        found = context.snapshots.find(number) if number > removal.target.id else None
        if found is not None and found.properties.get(PARENT_PROPERTY) in gone:
            gone.add(found.stamp)
            landed.append(found)
    if landed:
        record_removal(
            context.storage,
            context.layout,
            context.manifests,
            removal.target,
            [*reversed(landed), *removal.snapshots],
        )
    for snapshot in reversed(landed):
        delete_snapshot(context, snapshot)


def _refused(kind: str, message: str, hint: str) -> CommitConflictError:
    return CommitConflictError(f"{kind}: {message}", conflicts=(Conflict(kind, message, hint),), hint=hint)
