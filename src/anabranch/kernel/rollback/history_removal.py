"""Destructive rollback: removes the snapshots after the target, with what refers to them.

Every intermediate state is a complete table, so that a killed removal can be repeated and ends in the same
place: first a record of the removal (`anabranch.format.records.rewind`; `removals`, which marks late writes on it as
leftovers), then the hint to the newest snapshot (which readers check), then the references to removed snapshots,
then the snapshots, newest first, then their archived metadata. Data files and manifests stay for expiry
and orphan cleaning, which check reachability.

A concurrent expiry may take the target for old: it read the history that is about to go. So the target is held
by a pin from before its last check until the end, and stored again if it is gone by then; the expiry, for its part,
checks after its removals whether what it kept still exists, and restores it if not. Whichever comes second sees
what the other did.

Stop the writers first. A commit that lands meanwhile builds on what is being removed and is removed with it; one of
our writers that puts a snapshot after a removed one takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from anabranch.errors import CommitConflictError, NotFoundError
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.actions.rollback import difference_to
from anabranch.kernel.commit.base import Base, Conflict
from anabranch.kernel.commit.presence import lost_files
from anabranch.kernel.log import archive
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.exact import delete_snapshot
from anabranch.kernel.log.file_paths import data_file_paths
from anabranch.kernel.log.ledger import forget_after
from anabranch.kernel.log.merge_pins import unpin_after
from anabranch.kernel.log.moment import Moment, check_there
from anabranch.kernel.log.properties import PARENT_PROPERTY, ROLLBACK_PROPERTY
from anabranch.kernel.log.removals import record_removal
from anabranch.kernel.log.rewinds import record_rewind
from anabranch.kernel.log.rollback_pins import pin_target, unpin
from anabranch.kernel.rollback.holders import Holder, holders_after, release


@dataclass(frozen=True, slots=True)
class Removal:
    """Plan of a destructive rollback."""

    moment: Moment
    """The moment whose snapshot will be the newest."""
    snapshots: tuple[Snapshot, ...]
    """The snapshots to remove, newest first."""
    holders: tuple[Holder, ...]
    """References to them, removed with them if forced."""

    @property
    def target(self) -> Snapshot:
        """The newest snapshot afterwards."""
        return self.moment.snapshot

    @property
    def head(self) -> Snapshot:
        """The newest snapshot before."""
        return self.snapshots[0] if self.snapshots else self.target


def plan_removal(context: TableContext, moment: Moment) -> Removal:
    """Plan what `remove_after` would remove now.

    Raises `CommitConflictError` if the moment is not part of the current history.
    """
    target = moment.snapshot
    head, found = context.snapshots.head(), context.snapshots.find(target.id)
    is_other = found is not None and found.stamp != target.stamp
    known = () if head is None else tuple(context.snapshots.down_to(head, target.id))
    # A gap above it is what has expired, which a tag or savepoint outlives; a number alone is a late writer's there.
    is_beside = moment.found_by == "snapshot" and bool(known) and known[-1].stamp != target.stamp
    is_below = head is not None and head.id >= target.id
    if not is_below or is_other or is_beside or target.delta_manifest_list == NO_LIST:
        raise _refused(
            "NOT_IN_HISTORY",
            f"snapshot {target.id} of the moment that was named is not part of the current history of "
            f"'{context.title}'",
            "roll back without 'destructive': that takes any moment that can be read.",
        )
    later = tuple(takewhile(lambda snapshot: snapshot.id > target.id, known))
    return Removal(moment, later, tuple(holders_after(context, target, later)))


def remove_after(context: TableContext, removal: Removal, *, force: bool = False) -> None:
    """Carry out the removal.

    Args:
        context: the branch.
        removal: the result of `plan_removal`; exactly that is removed.
        force: remove what refers to the snapshots as well.

    Raises:
        CommitConflictError: something refers to the snapshots and `force` is False, or the history or what refers
            to it has changed since the plan was made; nothing was removed.
        NotFoundError: the moment was removed meanwhile; nothing was removed.
    """
    snapshots, target = context.snapshots, removal.target
    user = target.stamp  # the same if it is repeated, so that nothing is left of a killed one
    if not removal.snapshots:
        archive.forget_after(context, target.id)
        unpin(context, user)
        return
    pin_target(context, target, user)
    try:
        _check(context, removal, force=force)
    except (CommitConflictError, NotFoundError):
        unpin(context, user)
        raise
    record_rewind(context, target, removal.head)
    had_expired = _store(
        context, target
    )  # and is known from a tag: when the others are gone it is the newest again
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
    if _store(context, target) or had_expired:
        context.storage.put(context.layout.earliest_hint_path, str(target.id).encode(), durable=False)
    unpin(context, user)


def _store(context: TableContext, target: Snapshot) -> bool:
    """Store the target again if it is missing; return whether it was."""
    return context.storage.put_if_absent(context.layout.snapshot_path(target.id), target.to_json())


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
    check_there(context, removal.moment)
    _check_readable(context, removal)
    now = plan_removal(context, removal.moment)
    if now.head.stamp != removal.head.stamp or not set(now.holders) <= set(removal.holders):
        raise _refused(
            "HISTORY_MOVED",
            f"'{context.title}' was changed since it was looked at what to remove",
            "look again, then repeat it; stop the writers first.",
        )


def _check_readable(context: TableContext, removal: Removal) -> None:
    """Raise `CommitConflictError` if files of the target are gone, before what is whole is removed.

    The cache may know its manifests though another engine's expiry has begun to take it away. Data files that the newest
    snapshot has too are not asked for: without them, nothing gets worse.
    """
    target, layout = removal.target, context.layout
    lists = [layout.manifest_path(name) for name in (target.base_manifest_list, target.delta_manifest_list)]
    metas = context.manifests.of_snapshot(target)
    paths = [*lists, *(layout.manifest_path(meta.file_name) for meta in metas)]
    schema = context.schemas.get(target.schema_id)
    restored = difference_to(Base(context, removal.head, schema), target).restored
    paths += data_file_paths(restored.to_entries(), schema)
    if lost := lost_files(context, paths):
        raise _refused(
            "TARGET_NOT_WHOLE",
            f"{len(lost)} of {len(paths)} files of snapshot {target.id} of '{context.title}' are gone, the first is {lost[0]}",
            "roll back to a newer moment; `verify` tells what is damaged.",
        )


def _sweep(context: TableContext, removal: Removal) -> None:
    """Remove and report what landed meanwhile on the removed snapshots; other leftovers are handled when found."""
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
