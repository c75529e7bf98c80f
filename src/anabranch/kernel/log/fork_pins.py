"""Tags that hold what branches began with, so that nobody's expiry takes it away.

Main and the branch share the files of that moment, and each may delete them from its own history. Engines that do not
ask what other branches reach spare what a tag has; so there is one, ``anabranch-fork-<uuid of the branch>``, without
end, on both sides. The one on main is put before anything else of a new branch and goes after everything else of a
deleted one: what is there without a branch was left by somebody who died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError
from anabranch.format.records.fork import Fork
from anabranch.format.records.layout import tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import stream
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.log.tag_log import find_tag

_PREFIX = f"{RESERVED_TAG_PREFIX}fork-"
_GRACE_MILLIS = 24 * 3_600_000
"""How old the pin of a branch that was never made must be before it goes: no creation lasts as long."""


def fork_pin(branch_uuid: str) -> str:
    """The name of a branch's tag on main."""
    return f"{_PREFIX}{branch_uuid}"


def is_fork_pin(tag_name: str) -> bool:
    """Whether a tag is one of these."""
    return tag_name.startswith(_PREFIX)


def pinned_branch_of(tag_name: str) -> str:
    """The identity of the branch that one of these is of."""
    return tag_name.removeprefix(_PREFIX)


def pin_fork(context: TableContext, branch_uuid: str, snapshot: Snapshot) -> None:
    """Hold on to what a branch begins with, on main or on the branch itself."""
    name = fork_pin(branch_uuid)
    context.storage.put(context.layout.tag_path(name), Tag(name, snapshot).to_json())


def unpin_fork(main: TableContext, branch_uuid: str) -> None:
    """Let go of it."""
    main.storage.delete(main.layout.tag_path(fork_pin(branch_uuid)))


def fork_snapshot(branch: TableContext, main: TableContext | None = None) -> Snapshot | None:
    """The snapshot a branch began with, wherever it is still known; None if it is not, or another engine made it.

    Args:
        branch: the branch.
        main: the main branch, where that is not in the table's own folder.
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
    """What `tend_fork_pins` did, by the names of branches and of pins."""

    restored: tuple[str, ...] = ()
    """Branches of which a pin was missing, on main or on the branch."""
    lost: tuple[str, ...] = ()
    """Branches of whose beginning nothing is left: they can be read, but not be merged by what they began with."""
    released: tuple[str, ...] = ()
    """Pins of branches that were never made, or are deleted."""


def tend_fork_pins(
    main: TableContext, branches: Sequence[TableContext] | None = None, *, dry_run: bool = False
) -> ForkPinCare:
    """Put back what others removed, and remove what those left that died while they made or deleted a branch.

    Args:
        main: the main branch.
        branches: all others, as they were found; None to look for them.
        dry_run: find out only.
    """
    if branches is None:
        branches = [main.on_branch(name) for name in branch_names(main)]
    pinned = {
        name: info.modified_millis
        for info in main.storage.list(main.layout.tag_folder)
        if (name := tag_name_of(info.path)) is not None and is_fork_pin(name)
    }
    restored, lost, needed = [], [], set()
    is_known = True
    for branch, has_pin in zip(branches, stream(_has_pin, branches), strict=True):
        name = branch.branch or ""
        try:
            if branch.fork is None or (main.branch == name):
                continue
        except CorruptTableError:
            is_known = False  # so any pin may be the one of this branch
            continue
        pin = fork_pin(branch.fork.branch_uuid)
        needed.add(pin)
        # Only branches that were found before main's tags were listed have to have one there.
        missing = [*([] if pin in pinned else [main]), *([] if has_pin else [branch])]
        missing = [side for side in missing if not side.storage.exists(side.layout.tag_path(pin))]
        if not missing or state_of(branch) is not BranchState.READY:
            continue
        try:
            snapshot = fork_snapshot(branch, main)
        except CorruptTableError:
            continue  # it may be in what `repair` makes again first
        if snapshot is None or not _is_readable(main, snapshot):
            lost.append(name)
            continue
        for side in missing if not dry_run else ():
            pin_fork(side, branch.fork.branch_uuid, snapshot)
        restored.append(name)
    unneeded = {pin: made for pin, made in pinned.items() if is_known and pin not in needed}
    now = removal_time(main) if unneeded else 0
    released = sorted(pin for pin, made in unneeded.items() if now - made > _GRACE_MILLIS)
    if not dry_run:
        main.storage.delete_many([main.layout.tag_path(pin) for pin in released])
    return ForkPinCare(tuple(restored), tuple(lost), tuple(released))


def _has_pin(branch: TableContext) -> bool:
    """Whether the pin on the branch itself is there; also if it is not known what it is called."""
    try:
        uuid = None if branch.fork is None else branch.fork.branch_uuid
    except CorruptTableError:
        return True
    return uuid is None or branch.storage.exists(branch.layout.tag_path(fork_pin(uuid)))


def _is_readable(main: TableContext, snapshot: Snapshot) -> bool:
    """Whether its metadata is there; a tag of what is not would stand in the way of every expiry."""
    try:
        main.manifests.entries(main.manifests.of_snapshot(snapshot))
    except AnabranchError:
        return False
    return True


def fork_of(branch: TableContext) -> Fork:
    """How a branch began. Raises `InvalidInputError` for one that another engine made."""
    if branch.fork is None:
        raise InvalidInputError(
            f"where '{branch.title}' left main is not recorded: another engine made the branch",
            hint="create a branch with `create_branch`, and write the rows to that.",
        )
    return branch.fork
