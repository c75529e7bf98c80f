"""Rolling a branch back to an earlier state, as one new commit.

Content of the new snapshot, and why:

* Its delta list says what changed, as any overwrite does: DELETEs for files that go, ADDs for files that come
  back. Streams and record counts need that.
* Files that come back were deleted before, and some readers take for live what is added anywhere and deleted
  nowhere. So the base list is the previous snapshot's without the old entries of these files
  (`manifest_merge.without_files`): each file is added once in the whole snapshot.
* Data files are shared, not copied: rolling back costs no more than its metadata. Pins keep other engines from
  deleting them (`rollback_pins`), and that they are in the store is checked before the commit.
* The schema stays the newest, the watermark is the one that belongs to the rows of the target, sequence numbers of
  queues continue above those of the removed files.

The history in between stays; see `history_removal` for the other way.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from anabranch.errors import NotFoundError, StorageError
from anabranch.format.records.snapshot import CommitIdentity, Snapshot
from anabranch.kernel.actions.rollback import Difference, Rollback, difference_to
from anabranch.kernel.commit.base import Base
from anabranch.kernel.commit.transaction import NOT_PUBLISHED, CommitRequest, commit
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.moment import Moment, check_there
from anabranch.kernel.log.properties import ROLLBACK_PROPERTY
from anabranch.kernel.log.rollback_pins import brings_back, pin_result, pin_target, unpin
from anabranch.kernel.refs.moments import resolve_own
from anabranch.kernel.rollback.history_removal import (
    Removal,
    check_branches_may_go,
    plan_removal,
    remove_after,
)
from anabranch.kernel.rollback.whole import check_whole


@dataclass(frozen=True, slots=True)
class Changed:
    """Files and rows that a rollback removes and restores."""

    files_removed: int = 0
    rows_removed: int = 0
    files_restored: int = 0
    rows_restored: int = 0

    @classmethod
    def of(cls, difference: Difference) -> Changed:
        removed, restored = difference.removed.df["row_count"], difference.restored.df["row_count"]
        return cls(len(removed), int(removed.sum()), len(restored), int(restored.sum()))


def preview(context: TableContext, version: str | int) -> tuple[Moment, Changed]:
    """Return the target of a rollback and what it would change. Raises as `roll_back`."""
    target = _target(context, version)
    return target, Changed.of(difference_to(_newest(context), target.snapshot))


def roll_back(context: TableContext, version: str | int) -> Snapshot:
    """Make the live files those of an earlier moment, in one new snapshot of kind OVERWRITE. `version` is as `resolve` takes it.

    Everything committed since the target is undone; what is committed afterwards stays. If the live
    files are those of the target already, nothing is committed and the newest snapshot returned: so a killed
    rollback may be repeated.

    Raises:
        NotFoundError: there is no such moment, or it was removed while it was rolled back to.
        CommitConflictError: files of the target are missing; nothing was published.
        UnsupportedFeatureError: the target or the newest snapshot uses an unsupported feature.
        CommitError: as for any commit.
    """
    moment = _target(context, version)
    newest = _newest(context)
    if newest.snapshot is not None and difference_to(newest, moment.snapshot).is_empty:
        if ROLLBACK_PROPERTY in newest.snapshot.properties and brings_back(context, newest.snapshot):
            pin_result(context, newest.snapshot)  # in case the process that made it was killed before
        return newest.snapshot
    identity = CommitIdentity.batch(context.runtime)
    pin = pin_target(context, moment.snapshot, identity.user)
    try:
        check_there(context, moment)
        if pin is not None:
            check_whole(context, moment.snapshot)  # known from the cache, it may have gone from the store
        action = Rollback(moment.snapshot, str(version))
        request = CommitRequest(action, identity, pin=pin)
        made = commit(context, request, known_head=newest.snapshot).snapshot
    except NOT_PUBLISHED:  # after any other error the pin may be needed
        with suppress(StorageError):  # an expiry lets go of it later
            unpin(context, identity.user)
        raise
    assert made is not None, "the commit was made just now"
    if brings_back(context, made):
        pin_result(context, made)
    else:
        unpin(context, identity.user)
    return made


def _target(context: TableContext, version: str | int) -> Moment:
    moment = resolve_own(context, version)
    check_snapshot_readable(context, moment.snapshot)
    return moment


def _newest(context: TableContext) -> Base:
    schema = context.schemas.latest()
    if schema is None:
        raise NotFoundError(
            f"table '{context.title}' does not exist: there is no schema in {context.storage.url}",
            hint="`tables` lists those there are.",
        )
    return Base(context, context.snapshots.head(), schema)


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
    """Return to an earlier moment. See `Table.rollback`.

    `planned` is, for a destructive rollback, the result of a dry run: if there is more to remove now, nothing is done.
    """
    moment, changed = preview(context, version)
    target = moment.snapshot
    if not destructive:
        made = None if dry_run else roll_back(context, version)
        return RollbackResult(target, made, changed)
    removal = planned or plan_removal(context, moment)
    if dry_run:
        check_branches_may_go(context, removal)  # no force would help
        return RollbackResult(target, None, changed, removal)
    remove_after(context, removal, force=force)
    return RollbackResult(target, context.snapshots.head(), changed, removal)
