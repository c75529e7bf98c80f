"""Branch maintenance: deletes expired branches and restores the pins of the others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.fork import FORK_FILE
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.branches.delete import delete_branch
from anabranch.kernel.branches.operations import is_deleted
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.fork_pins import ForkPinCare, tend_fork_pins
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.merge_pins import MergePinCare, tend_merge_pins
from anabranch.kernel.log.parallel import reading, stream
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.log.tag_log import find_tags, tag_names

_GRACE_MILLIS = 24 * 3_600_000
"""Minimum age at which an unfinished creation is undone."""


@dataclass(frozen=True, slots=True)
class BranchCare:
    """Result of `tend_branches`, by names of branches."""

    deleted: tuple[str, ...] = ()
    """Expired branches, those whose creation or removal had died, and leftovers of late
    writers."""
    pins: ForkPinCare = ForkPinCare()  # noqa: RUF009 - immutable
    merge_pins: MergePinCare = MergePinCare()  # noqa: RUF009 - immutable

    def __str__(self) -> str:
        said = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("deleted branches", self.deleted),
                ("restored the pins of branches", self.pins.restored),
                ("restored the pins of merges of branches", self.merge_pins.restored),
                ("found nothing left of the beginning of branches", self.pins.lost),
            )
            if names
        ]
        return "; ".join(said)


def tend_branches(main: TableContext, *, dry_run: bool = False) -> BranchCare:
    """Delete expired branches and repair the pins of the others. Two listings where there are no branches.

    Raises what `delete_branch` does for other reasons than that a branch is main.
    """
    deleted = []
    branches = [main.on_branch(name) for name in branch_names(main)]
    for branch, seen in zip(branches, stream(_state_of, branches, at=main.storage), strict=True):
        name = branch.layout.branch or ""
        # What was seen may be some branches ago; nothing is done on a state that is not the one there is now.
        state = seen if seen is BranchState.READY else state_of(branch)
        if state is BranchState.ABSENT and not dry_run:
            _remove_hints(branch)
        if state is BranchState.READY and branch.fork is not None and not dry_run:
            drop_expired(main, branch, branch.fork.snapshot)  # what a replacement left that died
        is_left_over = state is BranchState.LEFT_OVER
        if not (
            _is_abandoned(main, branch) if is_left_over else _is_over(main.on_branch(name), branch, state)
        ):
            continue
        if not dry_run:
            try:
                delete_branch(main, name)
            except (InvalidInputError, NotFoundError):  # it is main, or another process was faster
                continue
        deleted.append(name)
    left = [branch for branch in branches if branch.branch not in deleted] if not dry_run else branches
    fork_pins = tend_fork_pins(main, left, dry_run=dry_run)
    return BranchCare(tuple(deleted), fork_pins, tend_merge_pins(main, left, dry_run=dry_run))


def _state_of(branch: TableContext) -> BranchState:
    """The state of a branch; how it began is read with it, where that can be."""
    with suppress(CorruptTableError):
        assert branch.fork is None or branch.fork.name
    return state_of(branch)


def _is_over(branch: TableContext, seen: TableContext, state: BranchState) -> bool:
    """Whether a branch goes; what was read of it before only tells that it need not be looked at."""
    if state is BranchState.DELETING:
        return True
    if seen.fork is None or (state is not BranchState.BEGUN and seen.fork.time_retained is None):
        return False
    if branch.fork is None:
        return False
    kept = _GRACE_MILLIS + 1 if state is BranchState.BEGUN else branch.fork.time_retained
    if kept is None:
        return False
    try:
        # By the clock of the store: that of the machine that made it may have been wrong.
        over = branch.storage.info(branch.layout.branch_file_path(FORK_FILE)).modified_millis + kept
    except NotFoundError:
        return False  # another process is deleting it
    return branch.runtime.clock.now_millis() >= over and removal_time(branch) >= over


def _is_abandoned(main: TableContext, branch: TableContext) -> bool:
    """Whether a branch's remains are a day old and hold only what was deleted or exists elsewhere.

    Another engine's branch looks the same while it is made, or when its schemas were lost: that stays.
    """
    stored = [info.modified_millis for info in main.storage.list(branch.layout.branch_root, recursive=True)]
    newest = max(stored, default=None)
    if newest is None or branch.runtime.clock.now_millis() - newest <= _GRACE_MILLIS:
        return False
    if removal_time(main) - newest <= _GRACE_MILLIS:
        return False
    others = [main.on_branch(name) for name in (None, *branch_names(main)) if name != branch.branch]
    left = (branch.snapshots.find(number) for number in branch.snapshots.ids())
    tagged = (tag.snapshot for tag in find_tags(branch, tag_names(branch)))
    return all(found is None or _is_dispensable(main, found, others) for found in (*left, *tagged))


def _is_dispensable(main: TableContext, snapshot: Snapshot, others: Sequence[TableContext]) -> bool:
    """Whether a snapshot was made on a deleted branch, or is a copy of another branch's."""
    made_on = snapshot.properties.get(BRANCH_PROPERTY)
    if made_on is not None:
        return is_deleted(main, made_on) or any(made_on == other.branch_uuid for other in others)
    return any(
        found is not None and found.stamp == snapshot.stamp
        for found in (other.snapshots.find(snapshot.id) for other in others)
    )


def _remove_hints(branch: TableContext) -> None:
    """Remove what a writer left of a deleted branch, but nothing that is being put there now."""
    layout, storage = branch.layout, branch.storage
    storage.delete_many([layout.latest_hint_path, layout.earliest_hint_path])
    for folder in (layout.snapshot_folder, layout.branch_root):
        storage.delete_empty_folder(folder)


def drop_expired(main: TableContext, target: TableContext, fork: SnapshotRef) -> None:
    """Remove copied snapshots that main no longer has from a branch that never was main, oldest first.

    A replacement that died may have put them when their files were gone already. One that is under way loses
    only expired snapshots. A current or former main keeps its past, and expires it by itself.
    """
    with reading(main.storage) as begin:
        # In whatever order: what main had expired when it was looked at stays so, and what is copied later is newer.
        listed, of_main = begin(target.snapshots.ids), begin(main.snapshots.ids)
        is_of_main = begin(partial(_is_or_was_main, main, target))
        numbers = [number for number in listed() if number < fork.id]
        if not numbers or is_of_main():
            return
        oldest = min(of_main(), default=0)  # a main without any has lost them: they did not expire
    for number in numbers:
        copy = target.snapshots.find(number) if number < oldest else None
        if copy is not None:
            delete_snapshot(target, copy)


def _is_or_was_main(main: TableContext, target: TableContext) -> bool:
    uuid = target.branch_uuid
    known = replacements(main)
    return main.branch_uuid == uuid or any(
        uuid in (pointer.main.uuid, pointer.replaced.old.uuid) for pointer in known if pointer.replaced
    )
