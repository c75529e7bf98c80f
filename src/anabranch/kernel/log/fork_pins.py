"""Tags that pin the snapshot a branch was forked from, so that no engine's expiry removes its files.

Main and the branch share the files of that snapshot, and each may delete them from its own history. Engines that do
not check other branches still spare tagged snapshots; so there is a tag, ``anabranch-fork-<uuid of the branch>``, that
never expires, on both sides. The one on main is put before anything else of a new branch and removed after everything
else of a deleted one: a pin without a branch was left by a process that died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError
from anabranch.format.records.fork import Fork
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import stream
from anabranch.kernel.log.ref_log import delete_tags, find_tag, put_tag, tag_times
from anabranch.kernel.log.store_clock import day_old

_PREFIX = f"{RESERVED_TAG_PREFIX}fork-"


def fork_pin(branch_uuid: str) -> str:
    """Return the name of a branch's fork tag."""
    return f"{_PREFIX}{branch_uuid}"


def is_fork_pin(tag_name: str) -> bool:
    """Whether a tag is a fork pin."""
    return tag_name.startswith(_PREFIX)


def pinned_branch_of(tag_name: str) -> str:
    """Return the uuid of the branch that a fork pin belongs to."""
    return tag_name.removeprefix(_PREFIX)


def pin_fork(context: TableContext, branch_uuid: str, snapshot: Snapshot) -> None:
    """Tag the fork snapshot of a branch, on main or on the branch itself."""
    put_tag(context, fork_pin(branch_uuid), snapshot)


def unpin_fork(main: TableContext, branch_uuid: str) -> None:
    """Remove a branch's fork tag from main."""
    main.storage.delete(main.layout.tag_path(fork_pin(branch_uuid)))


def fork_snapshot(branch: TableContext, main: TableContext | None = None) -> Snapshot | None:
    """Return the fork snapshot of a branch from wherever it is still stored; None if lost, or made by another engine.

    Args:
        main: the main branch, if that is not in the table's own folder.
    """
    fork = branch.fork
    if fork is None:
        return None
    places = [branch, *([] if main is None else [main]), branch.on_branch(None)]
    damaged: CorruptTableError | None = None
    for place in places:
        for find in (_snapshot(fork.snapshot.id), _tagged(fork.tag), _tagged(fork_pin(fork.branch_uuid))):
            try:
                found = find(place)
            except CorruptTableError as error:
                damaged = error
                continue
            if found is not None and found.stamp == fork.snapshot.stamp:
                return found
    if damaged is not None:
        raise damaged
    return None


def _snapshot(number: int) -> Callable[[TableContext], Snapshot | None]:
    return lambda place: place.snapshots.find(number)


def _tagged(name: str) -> Callable[[TableContext], Snapshot | None]:
    def find(place: TableContext) -> Snapshot | None:
        tag = find_tag(place, name)
        return None if tag is None else tag.snapshot

    return find


@dataclass(frozen=True, slots=True)
class ForkPinCare:
    """Result of `tend_fork_pins`, by names of branches and pins."""

    restored: tuple[str, ...] = ()
    """Branches that lacked a pin, on main or on the branch."""
    lost: tuple[str, ...] = ()
    """Branches whose fork snapshot is lost: they can be read, but not merged relative to their fork."""
    released: tuple[str, ...] = ()
    """Removed pins of branches that were never completed, or are deleted."""


def tend_fork_pins(
    main: TableContext, branches: Sequence[TableContext] | None = None, *, dry_run: bool = False
) -> ForkPinCare:
    """Put back what others removed, and remove what those left that died while they made or deleted a branch.

    Args:
        main: the main branch.
        branches: all others, as they were found; None to look for them.
    """
    if branches is None:
        branches = [main.on_branch(name) for name in branch_names(main)]
    pinned = {name: made for name, made in tag_times(main).items() if is_fork_pin(name)}
    restored, lost, needed = [], [], set()
    is_known = True
    for branch, has_pin in zip(branches, stream(_has_pin, branches, at=main.storage), strict=True):
        name = branch.branch or ""
        try:
            if branch.fork is None or (main.branch == name):
                continue
        except CorruptTableError:
            is_known = False  # so any pin may be the one of this branch
            continue
        pin = fork_pin(branch.fork.branch_uuid)
        is_on_main = belongs_on_main(branch.fork, branch, main)
        if is_on_main:
            needed.add(pin)
        # Only branches that were found before main's tags were listed have to have one there.
        missing = [*([main] if is_on_main and pin not in pinned else []), *([] if has_pin else [branch])]
        missing = [side for side in missing if not side.storage.exists(side.layout.tag_path(pin))]
        if not missing or state_of(branch) is not BranchState.READY:
            continue
        try:
            snapshot = fork_snapshot(branch, main)
        except CorruptTableError:
            continue  # `repair` may restore the branch first
        if snapshot is None or not _is_readable(main, snapshot):
            lost.append(name)
            continue
        for side in missing if not dry_run else ():
            pin_fork(side, branch.fork.branch_uuid, snapshot)
        restored.append(name)
    released = day_old(main, {p: made for p, made in pinned.items() if is_known and p not in needed})
    if not dry_run:
        delete_tags(main, released)
    return ForkPinCare(tuple(restored), tuple(lost), tuple(released))


def _has_pin(branch: TableContext) -> bool:
    """Whether the pin on the branch itself is there; also if it is not known what it is called."""
    try:
        uuid = None if branch.fork is None else branch.fork.branch_uuid
    except CorruptTableError:
        return True
    return uuid is None or branch.storage.exists(branch.layout.tag_path(fork_pin(uuid)))


def belongs_on_main(fork: Fork, branch: TableContext, main: TableContext) -> bool:
    """Whether main is to hold on to what a branch began with: not where the version of the schema is not main's.

    So it is with a branch that was begun on a main whose replacement was taken back. A tag there would name a version
    that main lacks, or another one of that number; what main shares with the branch is older than that replacement.
    """
    if fork.snapshot.branch_uuid == main.branch_uuid:
        return True
    theirs = branch.schemas.find(fork.schema_id)
    return theirs is None or main.schemas.find(fork.schema_id) == theirs


def _is_readable(main: TableContext, snapshot: Snapshot) -> bool:
    """Whether its metadata is readable; a tag of an unreadable snapshot would block every expiry."""
    try:
        main.manifests.entries(main.manifests.of_snapshot(snapshot))
    except AnabranchError:
        return False
    return True


def fork_of(branch: TableContext) -> Fork:
    """Return the fork record of a branch. Raises `InvalidInputError` if another engine made the branch."""
    if branch.fork is None:
        raise InvalidInputError(
            f"where '{branch.title}' left main is not recorded: another engine made the branch",
            hint="create a branch with `create_branch`, and write the rows to that.",
        )
    return branch.fork
