"""References that hold snapshots after a moment, and must be released before these are removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from anabranch.kernel.branches.delete import delete_branch
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.consumers import find_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import is_fork_pin
from anabranch.kernel.log.ledger import LedgerEntry, recorded_after
from anabranch.kernel.log.merge_facts import MERGE_USER
from anabranch.kernel.log.merge_pins import is_merge_pin
from anabranch.kernel.log.rollback_pins import is_rollback_pin
from anabranch.kernel.log.savepoint_log import savepoints
from anabranch.kernel.log.tag_log import find_tag, find_tags, tag_names
from anabranch.kernel.refs.savepoints import delete_savepoint
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
        context: the branch.
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
                storage.delete(layout.tag_path(holder.name))
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
            # By stamp if main was replaced since, and has the snapshot as a part of its copied past.
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
