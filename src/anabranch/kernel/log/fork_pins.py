"""Tags that pin the snapshot a branch was forked from, so that no engine's expiry removes its files.

Main and the branch share the files of that snapshot, and each may delete them from its own history. Engines that do
not check other branches still spare tagged snapshots; so there is a tag, ``anabranch-fork-<uuid of the branch>``, that
never expires, on both sides. The one on main is put before anything else of a new branch and removed after everything
else of a deleted one: a pin without a branch was left by a process that died.

A branch that becomes main keeps its own pin in its folder: that holds what it shares with main's past and with what was main.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError
from anabranch.format.records.fork import Fork
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import last_replacements
from anabranch.kernel.log.main_pointer import is_dropped
from anabranch.kernel.log.parallel import reading, stream
from anabranch.kernel.log.store_clock import day_old
from anabranch.kernel.log.tag_log import delete_tags, find_tag, put_tag, tag_times

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


def is_fork_pinned(main: TableContext, branch_uuid: str) -> bool:
    """Whether main, or a main before it with which it shares its past, holds what a branch began with."""
    places = [main, *(main.on_branch(part.branch) for part in main.past)]
    pins = (place.layout.tag_path(fork_pin(branch_uuid)) for place in places)
    return any(main.storage.exists(pin) for pin in pins)


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
    main: TableContext,
    branches: Sequence[TableContext] | None = None,
    *,
    dry_run: bool = False,
    release: bool = True,
) -> ForkPinCare:
    """Put back what others removed, and remove what those left that died while they made or deleted a branch.

    Args:
        main: the main branch.
        branches: all others, as they were found; None to look for them.
        release: whether to look for what is to be removed.
    """
    if branches is None:
        branches = [main.on_branch(name) for name in branch_names(main)]
    with reading(main.storage) as begin:
        # Only branches that were found before main's tags were listed have to have one there.
        times = begin(partial(tag_times, main))
        begun = [begin(partial(getattr, branch, "fork")) for branch in (main, *branches)]
        pinned = {name: made for name, made in times().items() if is_fork_pin(name)}
        tended = partial(_tended, main, pinned.keys(), release)
        asked = zip(branches, begun[1:], strict=True)
        found = [*zip(branches, stream(tended, asked, at=main.storage), strict=True)]
        found.append((main, _tended_main(main, pinned.keys(), branches)))
    needed = {one.needed for _, one in found}
    is_known = not any(one.is_unknown for _, one in found)  # else any pin may be the one of that branch
    restored, lost = [], []
    for branch, one in found:
        if not one.missing:
            continue
        name, fork = branch.branch or "", branch.fork
        if fork is None or one.snapshot is None or not _is_readable(main, one.snapshot):
            lost.append(name)
            continue
        for side in one.missing if not dry_run else ():
            pin_fork(side, fork.branch_uuid, one.snapshot)
        restored.append(name)
    unneeded = {name: made for name, made in pinned.items() if is_known and name not in needed}
    released = day_old(main, unneeded) if release else []
    if not dry_run:
        delete_tags(main, released)
    return ForkPinCare(tuple(restored), tuple(lost), tuple(released))


@dataclass(frozen=True, slots=True)
class _Tended:
    """Result for one branch."""

    needed: str | None = None
    """The pin that main needs."""
    is_unknown: bool = False
    """Whether it cannot be read what the branch began with."""
    missing: tuple[TableContext, ...] = ()
    """Where a pin is to be put back."""
    snapshot: Snapshot | None = None
    """The snapshot it is to hold; None if that is lost."""


def _tended(
    main: TableContext,
    pinned: Collection[str],
    release: bool,
    asked: tuple[TableContext, Callable[[], Fork | None]],
) -> _Tended:
    """Look for the pins of a branch, given those that main has, and how to wait for its fork record."""
    branch, asking = asked
    try:
        fork = asking()
    except CorruptTableError:
        return _Tended(is_unknown=True)
    if fork is None or main.branch == branch.branch:
        return _Tended()
    pin = fork_pin(fork.branch_uuid)
    with reading(main.storage) as begin:
        there = begin(lambda: branch.storage.exists(branch.layout.tag_path(pin)))
        # What main has it may keep if nothing is to be released.
        is_on_main = (pin in pinned and not release) or belongs_on_main(fork, branch, main)
        missing = [*([main] if is_on_main and pin not in pinned else []), *([] if there() else [branch])]
    tended = _Tended(pin if is_on_main else None)
    missing = [side for side in missing if not side.storage.exists(side.layout.tag_path(pin))]
    if not missing:
        return tended
    # The state once the pin is missing: a deletion marks the branch first and removes main's pin later.
    with reading(main.storage) as begin:
        state, finding = begin(partial(state_of, branch)), begin(partial(fork_snapshot, branch, main))
        if state() is not BranchState.READY:
            return tended
        try:
            snapshot = finding()
        except CorruptTableError:
            return tended  # `repair` may restore the branch first
    return replace(tended, missing=tuple(missing), snapshot=snapshot)


def _tended_main(main: TableContext, pinned: Collection[str], branches: Sequence[TableContext]) -> _Tended:
    """Look for the pin of what main itself began with; it goes once nobody else has any of that.

    That is the past that lies elsewhere, branches that did not begin on main, and what was main in the table's own folder.
    """
    try:
        fork = main.fork
    except CorruptTableError:
        return _Tended(is_unknown=True)
    if fork is None:
        return _Tended()
    pin = fork_pin(fork.branch_uuid)
    is_past_left = (main.snapshots.hinted_earliest_id() or 1) < main.layout.first_own
    if not (is_past_left or any(_is_of_another(branch, main) for branch in branches) or _is_first_kept(main)):
        return _Tended()
    snapshot = None if pin in pinned else fork_snapshot(main)
    return _Tended(pin, missing=() if snapshot is None else (main,), snapshot=snapshot)


def _is_of_another(branch: TableContext, main: TableContext) -> bool:
    """Whether a branch began on what was main before, as far as that can be read."""
    try:
        fork = branch.fork
    except CorruptTableError:
        return True
    return fork is not None and main.branch_uuid not in (fork.branch_uuid, fork.snapshot.branch_uuid)


def _is_first_kept(main: TableContext) -> bool:
    """Whether what was main in the table's own folder is kept."""
    former = [one for one in last_replacements(main) if one.replaced and one.replaced.old.name is None]
    return any(not is_dropped(main, one) for one in former)


def belongs_on_main(fork: Fork, branch: TableContext, main: TableContext) -> bool:
    """Whether main is to hold on to what a branch began with: not where that is not main's, nor the version of its schema.

    So it is with a branch that began later than main itself on what was main, or on a main whose replacement was taken
    back. A tag there would name a schema that main lacks, or another one of that number; what main shares with the branch
    is older, and main holds it by its own pin.
    """
    if fork.snapshot.branch_uuid == main.branch_uuid:
        return True
    with suppress(CorruptTableError):
        if main.fork is not None and fork.snapshot.id > main.fork.snapshot.id:
            return False
    with reading(main.storage) as begin:
        theirs, ours = (begin(partial(side.schemas.find, fork.schema_id)) for side in (branch, main))
        written = theirs()
        return written is None or ours() == written


def _is_readable(main: TableContext, snapshot: Snapshot) -> bool:
    """Whether its metadata is readable; a tag of an unreadable snapshot would block every expiry."""
    try:
        main.manifests.entries(main.manifests.of_snapshot(snapshot))
    except AnabranchError:
        return False
    return True


def fork_of(branch: TableContext) -> Fork:
    """Return the fork record of a branch. Raises `InvalidInputError` if it has none."""
    if branch.branch is None:
        raise InvalidInputError(
            f"'{branch.title}' is main, or was before main was replaced: it left no main as a branch",
            hint="create a branch with `create_branch`, and write the rows to that.",
        )
    if branch.fork is None:
        raise InvalidInputError(
            f"where '{branch.title}' left main is not recorded: another engine made the branch",
            hint="create a branch with `create_branch`, and write the rows to that.",
        )
    return branch.fork
