"""Release of replaced mains: each is kept for a while, then dropped, unless the replacement is undone.

Either outcome is fixed by one write-once ``RELEASE-<g>``: the first put wins. So nothing is made main again while being
dropped, and nothing dropped while being made main again. If such an undo does not finish, its branch
is kept until it is main again.

A replaced main is dropped when its retention is over and nothing needs it: no tag or savepoint is above its
fork from the new main, no consumer still has to read it, no branch was forked there, and no other engine continued
it. A part of main's past that lies in the table's own folder stays there; one in a branch's folder keeps the branch
(`anabranch.kernel.log.shared_past`). A former main whose replacement was undone is an ordinary branch again, which is
removed when somebody deletes it. The snapshot that sealed the table's own folder stays for ever, so that a writer that
was paused since then still collides with it; it no longer reaches any file (`seal.is_remnant`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import consumer_id_of, snapshot_id_of
from anabranch.format.records.main_pointer import (
    MAIN_PREFIX,
    TAGS_PREFIX,
    BranchRef,
    MainPointer,
    Release,
    former_main_name,
)
from anabranch.format.records.refs import Tag
from anabranch.kernel.branches.delete import delete_branch
from anabranch.kernel.log.archive import archive_rest
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import tend_fork_pins
from anabranch.kernel.log.group_log import complete_copies
from anabranch.kernel.log.inherited_tags import inherited_paths
from anabranch.kernel.log.lost_pointers import check_decisions, complete_pointer_copies
from anabranch.kernel.log.main_branch import foreign_after, former_main, last_replacements, main_of
from anabranch.kernel.log.main_pointer import (
    find_pointer,
    find_release,
    numbers,
    pointer_path,
    put_release,
    replacements,
)
from anabranch.kernel.log.savepoint_log import is_of, savepoints
from anabranch.kernel.log.shared_past import held_in
from anabranch.kernel.log.store_clock import SKEW_MILLIS, removal_time
from anabranch.kernel.log.tag_log import find_tag, find_tags, is_internal, tag_names, tag_times
from anabranch.kernel.refs.tags import own_inherited


@dataclass(frozen=True, slots=True)
class Releases:
    """Dropped and kept former mains of a table, by name."""

    dropped: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """Those whose retention is over, each with what needs it."""

    def __str__(self) -> str:
        kept = [f"kept {name}, because of {what}" for name, what in self.kept]
        return "; ".join([*(f"dropped {name}" for name in self.dropped), *kept])


def release_due(context: TableContext, retained: int, *, dry_run: bool = False) -> Releases:
    """Drop former mains that were kept for so many milliseconds and are no longer needed.

    Completes what a killed drop or a killed replacement of several mains left. Costs one look where main was never
    replaced.
    """
    main = main_of(context)
    if not dry_run:
        check_decisions(main)
        complete_copies(main, replacements(main))
        complete_pointer_copies(main, replacements(main))
        _forget_unused_tags(main)
    dropped, kept = [], []
    standing = [*last_replacements(main)]
    now = removal_time(main) if standing else 0
    for pointer in standing:
        assert pointer.replaced is not None, "it is a replacement"
        name, release = former_main_name(pointer.generation), find_release(main, pointer.generation)
        if release is None:
            if pointer.replaced.undoes is not None or not _is_over(main, pointer, now, retained):
                continue
            needed = next(_needed_by(main, pointer, now), None)
            if needed is not None:
                kept.append((name, needed))
                continue
        elif release.what == "back" or not _has_rest(main, pointer):
            continue
        if dry_run:
            dropped.append(name)
        elif _settle(main, pointer.generation, "drop"):
            if not dropped:
                tend_fork_pins(main)  # those of branches that began before are in the folders that go
            _drop(main, pointer)
            dropped.append(name)
    return Releases(tuple(dropped), tuple(kept))


def _is_over(main: TableContext, pointer: MainPointer, now: int, retained: int) -> bool:
    """Whether a former main was kept for so many milliseconds."""
    if not retained:
        return True  # a store's clock may count in steps, and be behind the decision
    made = pointer.made_millis
    if made > now + SKEW_MILLIS:  # the clock of the machine that decided it was ahead
        made = min(
            made, main.storage.info(pointer_path(main, MAIN_PREFIX, pointer.generation)).modified_millis
        )
    return now - made >= retained


def _forget_unused_tags(main: TableContext) -> None:
    """Remove what replacements that were not made have stored of the tags to inherit."""
    if not main.main_generation:
        return
    for number in numbers(main, TAGS_PREFIX):
        pointer = find_pointer(main, number) if 0 < number <= main.main_generation else None
        if pointer is not None and pointer.replaced is None:
            main.storage.delete_many(inherited_paths(main, number))


def take_back(main: TableContext, branch_uuid: str) -> None:
    """Keep a former main from being dropped, because it is to be main again.

    Does nothing for a branch that never was main. Raises `NotFoundError`: it was dropped or deleted.
    """
    for pointer in last_replacements(main):
        assert pointer.replaced is not None, "it is a replacement"
        if pointer.replaced.old.uuid != branch_uuid:
            continue
        if not _settle(main, pointer.generation, "back"):
            raise NotFoundError(
                f"'{former_main_name(pointer.generation)}' of '{main.name}' was dropped, when it was not kept any longer",
                hint="branch.replaced-main.time-retained says how long a replaced main is kept.",
            )
        if not _is_there(main, pointer.replaced.old):
            raise NotFoundError(
                f"'{former_main_name(pointer.generation)}' of '{main.name}' was deleted",
                hint="`branches` lists the branches there are; any of them can be put in the place of main.",
            )


def _needed_by(main: TableContext, pointer: MainPointer, now: int) -> Iterator[str]:
    """Describe what still needs a former main at a time, for people, most important first; nothing if it was deleted."""
    assert pointer.replaced is not None, "it is a replacement"
    try:
        old, fork = former_main(main, pointer.generation), pointer.replaced.fork
    except NotFoundError:
        return
    on_top = foreign_after(main, pointer)
    if on_top is not None:
        yield f"another engine committed snapshot {on_top.id} to it after it was replaced"
    past = [] if old.branch is None else [*filter(held_in(main, old.branch), old.snapshots.own_ids())]
    if past:
        these = f"snapshot {past[0]}" if len(past) == 1 else f"snapshots {past[0]} to {past[-1]}"
        yield f"{these} of main's past, which {'has' if len(past) == 1 else 'have'} not expired"
    for saved in savepoints(old):
        if saved.saved_snapshot_id > fork.id or not is_of(main, saved):
            yield f"savepoint {saved.id}"
    yield from (f"tag '{tag.name}'" for tag in _needed_tags(main, old, pointer, now))
    for info in old.storage.list(old.layout.consumer_folder):
        name = consumer_id_of(info.path)
        if name is not None:
            yield f"consumer '{name}'"
    for name in branch_names(main):
        begun = main.on_branch(name).fork
        if begun is None or name in (main.branch, old.branch):
            continue
        if begun.snapshot.branch_uuid == old.branch_uuid and begun.snapshot.id > fork.id:
            yield f"branch '{name}'"


def _needed_tags(main: TableContext, old: TableContext, replacement: MainPointer, now: int) -> Iterator[Tag]:
    """Yield the tags of a former main that main has not taken over, unless their time is over.

    Those of what both have were copied when main was replaced; one that was made, or moved, since is of the former main alone.
    """
    assert replacement.replaced is not None, "it is a replacement"
    fork, stored = replacement.replaced.fork, tag_times(old)
    replaced = main.storage.info(pointer_path(main, MAIN_PREFIX, replacement.generation)).modified_millis
    for tag in find_tags(old, [name for name in stored if not is_internal(name)]):
        is_of_both = tag.snapshot.id <= fork.id and (stored[tag.name] < replaced or _has(main, tag))
        if not is_of_both and not tag.is_expired(now, stored[tag.name]):
            yield tag


def _has(main: TableContext, tag: Tag) -> bool:
    there = find_tag(main, tag.name)
    return there is not None and there.snapshot.stamp == tag.snapshot.stamp


def _is_there(main: TableContext, old: BranchRef) -> bool:
    if old.name is None:
        return True
    branch = main.on_branch(old.name)
    return state_of(branch) is BranchState.READY and branch.branch_uuid == old.uuid


def _settle(main: TableContext, generation: int, what: Literal["drop", "back"]) -> bool:
    """Decide the outcome for a former main; return whether it is `what`."""
    runtime = main.runtime
    wanted = Release("drop" if what == "drop" else "back", runtime.clock.now_millis(), runtime.ids.uuid())
    if put_release(main, generation, wanted):
        return True
    found = find_release(main, generation)
    return found is not None and found.what == what


def _has_rest(main: TableContext, pointer: MainPointer) -> bool:
    assert pointer.replaced is not None, "it is a replacement"
    if pointer.replaced.old.name is not None:
        return pointer.replaced.old.name in branch_names(main)
    old = main.on_branch(None)
    return any(True for _ in _rest(old, pointer.replaced.head.id + 1))


def _drop(main: TableContext, pointer: MainPointer) -> None:
    """Remove its snapshots, tags and consumers; data goes with the next cleaning."""
    assert pointer.replaced is not None, "it is a replacement"
    if pointer.replaced.old.name is not None:
        if main.on_branch(pointer.replaced.old.name).branch_uuid == pointer.replaced.old.uuid:
            delete_branch(main, pointer.replaced.old.name)
        return
    old = main.on_branch(None)
    archive_rest(old)
    if not _is_past_left(old):
        own_inherited(main, old)
    old.storage.delete_many(list(_rest(old, pointer.replaced.head.id + 1)))


def _rest(old: TableContext, seal_id: int) -> Iterator[str]:
    """Yield the remaining metadata in the table's own folder, except its schemas, the seal and what is of main's past.

    Of tags those stay too that main has, as long as there is such a past: another engine that expires it spares what they need.
    """
    layout, is_held = old.layout, held_in(old, None)
    for info in old.storage.list(layout.snapshot_folder):
        number = snapshot_id_of(info.path)
        if number is None or (number != seal_id and not is_held(number)):
            yield info.path
    kept = {layout.tag_path(tag.name) for tag in _tags_of_main(old)} if _is_past_left(old) else set[str]()
    for folder in (layout.tag_folder, layout.consumer_folder):
        yield from (info.path for info in old.storage.list(folder) if info.path not in kept)


def _is_past_left(old: TableContext) -> bool:
    """Whether a part of main's past lies in the table's own folder."""
    return any(map(held_in(old, None), old.snapshots.own_ids()))


def _tags_of_main(old: TableContext) -> list[Tag]:
    """Return the tags of a former main that main has as well."""
    main, names = main_of(old), tag_names(old)
    ours = {tag.name: tag for tag in find_tags(main, names)}
    return [tag for tag in find_tags(old, names) if ours.get(tag.name) == tag]
