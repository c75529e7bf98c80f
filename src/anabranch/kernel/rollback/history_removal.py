"""Destructive rollback: removes the snapshots after the target, with what refers to them.

Every intermediate state is a complete table, so that a killed removal can be repeated and ends in the same
place: first a record of the removal (`anabranch.format.records.history_segment`; `removals`, which marks late writes on it as
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

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from anabranch.errors import CommitConflictError, InvalidInputError, NotFoundError
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, Snapshot
from anabranch.kernel.actions.rollback import difference_to
from anabranch.kernel.branches.delete import check_may_go, delete_branch
from anabranch.kernel.commit.base import Base
from anabranch.kernel.log import archive
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.commits import record_rewind
from anabranch.kernel.log.consumers import find_consumer
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.file_paths import data_file_paths
from anabranch.kernel.log.fork_pins import is_fork_pin
from anabranch.kernel.log.ledger import LedgerEntry, forget_after, recorded_after
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.merge_pins import is_merge_pin, unpin_after
from anabranch.kernel.log.moment import Moment, check_there
from anabranch.kernel.log.properties import MERGE_USER, PARENT_PROPERTY, ROLLBACK_PROPERTY
from anabranch.kernel.log.removal_marks import is_expiring
from anabranch.kernel.log.removals import record_removal
from anabranch.kernel.log.rollback_pins import is_removal_pinned, is_rollback_pin, pin_target, unpin
from anabranch.kernel.log.savepoint_log import savepoints
from anabranch.kernel.log.shared_past import check_still_main, held_in
from anabranch.kernel.log.tag_log import find_tag, find_tags, tag_names
from anabranch.kernel.refs.savepoints import delete_savepoint
from anabranch.kernel.refs.tag_removal import remove_exactly
from anabranch.kernel.rollback.whole import check_whole, refused
from anabranch.options import LEDGER_TIME_RETAINED


class HolderKind(StrEnum):
    """Kind of a reference."""

    TAG = "tag"
    SAVEPOINT = "savepoint"
    BRANCH = "branch"
    CONSUMER = "consumer"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Holder:
    """A reference to a snapshot."""

    kind: HolderKind
    name: str
    """Name of the tag, branch or consumer; id of the savepoint; commit user of the stream."""
    snapshot_id: int
    """The newest snapshot it refers to."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' (snapshot {self.snapshot_id})"


def holders_after(context: TableContext, target: Snapshot, later: Sequence[Snapshot]) -> list[Holder]:
    """Return all references to anything newer than `target`, in the order in which to release them.

    Args:
        target: the snapshot that stays.
        later: the snapshots after it.
    """
    saved = [s for s in savepoints(context) if s.saved_snapshot_id > target.id]
    pins = {savepoint.pin for savepoint in saved}
    tags = [tag for tag in find_tags(context, tag_names(context)) if tag.snapshot.id > target.id]
    return [
        *_streams(context, target.id, later),
        *_consumers(context, target.id),
        *(Holder(HolderKind.SAVEPOINT, str(s.id), s.saved_snapshot_id) for s in saved),
        *_branches(context, target.id, later),
        *(
            Holder(HolderKind.TAG, tag.name, tag.snapshot.id)
            for tag in tags
            if tag.name not in pins and not _is_pin(tag.name)
        ),
    ]


def release(context: TableContext, holder: Holder) -> None:
    """Remove the reference: its file or, for a branch, all that only it owns. Data files stay."""
    storage, layout = context.storage, context.layout
    match holder.kind:
        case HolderKind.TAG:
            tag = find_tag(context, holder.name)
            if tag is not None and tag.snapshot.id == holder.snapshot_id:  # not one put in its place since
                remove_exactly(context, tag)
        case HolderKind.CONSUMER:
            consumer = find_consumer(context, holder.name)
            if consumer is not None and consumer.unread_from == holder.snapshot_id + 1:  # nor one that moved
                storage.delete(layout.consumer_path(holder.name))
        case HolderKind.BRANCH:
            with suppress(NotFoundError):
                delete_branch(context, holder.name)
        case HolderKind.SAVEPOINT:
            with suppress(NotFoundError):  # somebody else was faster
                delete_savepoint(context, int(holder.name))
        case HolderKind.STREAM:
            return  # its commits go with the snapshots, and the ledger's pages are rewritten


def _is_pin(tag_name: str) -> bool:
    """Whether a tag is removed together with its owner: a rollback, a branch or a merge."""
    return is_rollback_pin(tag_name) or is_fork_pin(tag_name) or is_merge_pin(tag_name)


def _branches(context: TableContext, after: int, later: Sequence[Snapshot]) -> Iterator[Holder]:
    """Yield branches forked after the snapshot."""
    is_main = context.branch is None or context.main_generation is not None
    stamps = {snapshot.stamp for snapshot in later}
    for name in branch_names(context) if is_main else ():
        if name == context.branch:
            continue
        branch = context.on_branch(name)
        if branch.fork is not None:
            begun = branch.fork.snapshot
            # By stamp if main was replaced since, and has the snapshot as a part of its past.
            if begun.id > after and (begun.branch_uuid == context.branch_uuid or begun.stamp in stamps):
                yield Holder(HolderKind.BRANCH, name, begun.id)
            continue
        # For a branch made by another engine, its oldest known snapshot counts as its fork.
        known = [*branch.snapshots.ids(), *(tag.snapshot.id for tag in find_tags(branch, tag_names(branch)))]
        if known and min(known) > after:
            yield Holder(HolderKind.BRANCH, name, min(known))


def _consumers(context: TableContext, after: int) -> Iterator[Holder]:
    """Yield consumers that have read beyond the snapshot."""
    for info in context.storage.list(context.layout.consumer_folder):
        name = consumer_id_of(info.path)
        consumer = None if name is None else find_consumer(context, name)
        if name is not None and consumer is not None and consumer.unread_from > after + 1:
            yield Holder(HolderKind.CONSUMER, name, consumer.unread_from - 1)


def _streams(context: TableContext, after: int, later: Sequence[Snapshot]) -> Iterator[Holder]:
    """Yield streaming queries that committed after the snapshot, recently enough to come back."""
    newest = recorded_after(context, after)
    for snapshot in sorted(later, key=lambda snapshot: snapshot.id):
        if snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            newest[snapshot.commit_user] = LedgerEntry(
                snapshot.commit_identifier, snapshot.id, snapshot.time_millis
            )
    schema = context.schemas.latest()
    retained = LEDGER_TIME_RETAINED.of({} if schema is None else schema.options)
    oldest = context.runtime.clock.now_millis() - retained
    for user, entry in sorted(newest.items()):
        # A merge is not a query that comes back: it is merged again if that is asked for.
        if entry.time_millis >= oldest and not user.startswith(MERGE_USER):
            yield Holder(HolderKind.STREAM, user, entry.snapshot_id)


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
    if is_below and target.id < context.layout.first_own:
        raise refused(
            "BEFORE_REPLACEMENT",
            f"snapshot {target.id} of '{context.title}' was made on what was main before: main cannot go back behind snapshot "
            f"{context.layout.first_own}, with which it began",
            "roll back without 'destructive': that takes any moment that can be read.",
        )
    if not is_below or is_other or is_beside or target.delta_manifest_list == NO_LIST:
        raise refused(
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
        check_still_main(context)
        _check(context, removal, force=force)
    except (CommitConflictError, NotFoundError):
        unpin(context, user)
        raise
    record_rewind(context, target, removal.head)
    _store(context, target)  # it may be known from a tag only, and will be the newest
    record_removal(context.storage, context.layout, context.manifests, target, removal.snapshots)
    if not is_removal_pinned(context, target):
        # We stood still for so long that the pin was taken for one of a killed rollback. From now on it is not.
        pin_target(context, target, user)
        check_still_main(context)
        if _is_expiring(context, target.id):
            raise _expiring(context, target)
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
    _store(context, target)
    unpin(context, user)


def _store(context: TableContext, target: Snapshot) -> None:
    """Store the target again if it is missing, and say so: what lies below the earliest counts as put there late."""
    context.storage.put_if_absent(context.layout.snapshot_path(target.id), target.to_json())
    earliest = context.snapshots.hinted_earliest_id()
    if earliest is not None and earliest > target.id:
        context.storage.put(context.layout.earliest_hint_path, str(target.id).encode(), durable=False)


def _check(context: TableContext, removal: Removal, *, force: bool) -> None:
    check_branches_may_go(context, removal)
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
    is_held = held_in(context, context.branch)
    if any(is_held(snapshot.id) for snapshot in removal.snapshots):
        raise refused(
            "PAST_OF_MAIN",
            f"snapshots of '{context.title}' after {removal.target.id} belong to main's past: they cannot be removed here",
            "without 'destructive' nothing of the history goes away.",
        )
    if _is_expiring(context, removal.target.id):
        raise _expiring(context, removal.target)
    _check_readable(context, removal)
    now = plan_removal(context, removal.moment)
    if now.head.stamp != removal.head.stamp or not set(now.holders) <= set(removal.holders):
        raise refused(
            "HISTORY_MOVED",
            f"'{context.title}' was changed since it was looked at what to remove",
            "look again, then repeat it; stop the writers first.",
        )


def check_branches_may_go(context: TableContext, removal: Removal) -> None:
    """Raise `CommitConflictError` if a branch that began in what is removed cannot be deleted, whether or not that is forced."""
    for holder in removal.holders:
        if holder.kind is HolderKind.BRANCH:
            try:
                check_may_go(context, context.on_branch(holder.name))
            except InvalidInputError as error:
                raise refused(
                    "FORMER_MAIN_KEPT",
                    f"{len(removal.snapshots)} snapshots of '{context.title}' after {removal.target.id} cannot be removed, "
                    f"because {holder} began there: {error.message}",
                    f"{error.hint} Without 'destructive' nothing of the history goes away.",
                ) from error


def _is_expiring(context: TableContext, since: int) -> bool:
    """Whether an expiry may still remove snapshots from this number on from the branch's folder.

    That may be one of a branch that was main in between, and had its past there.
    """
    mains = {pointer.main.name for pointer in replacements(context) if pointer.main.name is not None}
    there = (mains & {*branch_names(context)}) - {context.branch} if mains else mains
    return any(is_expiring(one, since) for one in (context, *map(context.on_branch, sorted(there))))


def _check_readable(context: TableContext, removal: Removal) -> None:
    """Raise `CommitConflictError` if files of the target are gone, before what is whole is removed.

    Data files that the newest snapshot has too are not asked for: without them, nothing gets worse.
    """
    target = removal.target
    schema = context.schemas.get(target.schema_id)
    restored = difference_to(Base(context, removal.head, schema), target).restored
    check_whole(context, target, data_file_paths(restored.to_entries(), schema))


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


def _expiring(context: TableContext, target: Snapshot) -> CommitConflictError:
    return refused(
        "EXPIRY_UNDERWAY",
        f"snapshots of '{context.title}' from {target.id} on are expiring: none can be the newest or be numbered anew yet",
        "wait for the expiry; one that died counts for a week. Without 'destructive' any moment that can be read will do.",
    )
