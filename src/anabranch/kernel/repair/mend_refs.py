"""Mending tags of our own, savepoints and old snapshots that cannot be read, from what else holds the same.

A savepoint and its tag hold the same snapshot, as do a branch's record and its pins, a merge's record and its tags. A
snapshot below the newest is taken from a ref that holds it; where none does, its file is put aside, and what is left is
a gap: history seems to begin above it, and expiry goes on. A tag of a user stands for itself: `delete-tag` lets go of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.layout import savepoint_id_of, tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import pin_name, pinned_savepoint_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.branches.lost_fork import readable_branch
from anabranch.kernel.log import moment_pins as pins
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_snapshot, is_fork_pin, pinned_branch_of
from anabranch.kernel.log.merge_pins import is_merge_pin, pinned_merge_of
from anabranch.kernel.log.merge_record import merge_log
from anabranch.kernel.log.removals import removed_stamps
from anabranch.kernel.log.savepoint_log import find_savepoint
from anabranch.kernel.log.tag_log import find_tag
from anabranch.kernel.refs.savepoints import remade_savepoint
from anabranch.kernel.repair.lost_snapshots import recover_within
from anabranch.kernel.repair.mending import put_again, put_aside
from anabranch.kernel.repair.problem import Kind, Problem
from anabranch.kernel.repair.states import State
from anabranch.kernel.repair.step import Act, Step


def plan_refs(
    main: TableContext, states: Sequence[State], problems: Sequence[Problem]
) -> Iterator[tuple[Step, Act]]:
    """What makes damaged refs again, or puts them aside."""
    for problem in problems:
        context = main if problem.branch == main.branch else _branch(main, problem.branch)
        try:
            if not _is_damaged(context, problem):
                continue
            if problem.kind is Kind.REF and (number := savepoint_id_of(problem.path)) is not None:
                yield from _savepoint(main, number, problem)
            elif problem.kind is Kind.REF and (name := tag_name_of(problem.path)) is not None:
                yield from _tag(main, context, states, name, problem)
            elif problem.kind is Kind.SNAPSHOT and problem.snapshot_id is not None:
                yield from _snapshot(context, states, problem.snapshot_id, problem)
        except AnabranchError:
            continue  # what it would be made of is damaged too, so it is listed


def _is_damaged(context: TableContext, problem: Problem) -> bool:
    """Whether the file of a ref is damaged, and not of a later version of the format or gone meanwhile."""
    name, number = tag_name_of(problem.path), savepoint_id_of(problem.path)
    try:
        if number is not None:
            find_savepoint(context, number)
        elif name is not None:
            find_tag(context, name)
        elif problem.snapshot_id is not None:
            context.snapshots.find(problem.snapshot_id)
    except CorruptTableError:
        return True
    return False


def _branch(main: TableContext, name: str | None) -> TableContext:
    return main.on_branch(None) if name is None else readable_branch(main, name)


def _savepoint(main: TableContext, number: int, problem: Problem) -> Iterator[tuple[Step, Act]]:
    places = [main, *(_branch(main, name) for name in (None, *branch_names(main)) if name != main.branch)]
    pin = pin_name(number)
    for place in places:
        try:
            is_there = find_tag(place, pin) is not None
        except AnabranchError:
            continue
        if is_there:

            def act(place: TableContext = place) -> bool:
                try:
                    made = remade_savepoint(place, number)  # writes a manifest list
                except CorruptTableError:
                    return False  # what it saves is damaged too, and listed
                return made is not None and put_again(main, problem.path, made.to_json())()

            yield Step(Kind.REF, f"make {problem.path} again from its tag '{pin}'", problem.path), act
            return


def _tag(
    main: TableContext, context: TableContext, states: Sequence[State], name: str, problem: Problem
) -> Iterator[tuple[Step, Act]]:
    held, whose = None, ""
    is_needed = True
    if (number := pinned_savepoint_of(name)) is not None:
        saved = find_savepoint(main, number)
        held, whose, is_needed = (
            None if saved is None else saved.saved_snapshot,
            f"savepoint {number}",
            saved is not None,
        )
    elif is_fork_pin(name):
        owner = _owner(main, pinned_branch_of(name))
        is_needed = owner is not None
        if owner is not None:
            held, whose = fork_snapshot(owner, main), f"branch '{owner.branch}'"
    elif is_merge_pin(name):
        uuid, merge = pinned_merge_of(name)
        owner = context if uuid is None else _owner(main, uuid)
        is_needed = owner is not None
        if owner is not None:
            held, whose = _merged(owner, states, merge, is_result=uuid is not None), f"merge {merge}"
    elif pins.is_pin(name):
        is_needed = not pins.is_old(context, name)
    if held is not None:
        what = f"put {problem.path} again, which holds what {whose} needs"
        yield Step(Kind.REF, what, problem.path), put_again(main, problem.path, Tag(name, held).to_json())
    elif not is_needed:
        yield (
            Step(Kind.REF, f"put {problem.path} aside, which nothing needs any more", problem.path),
            put_aside(main, problem.path),
        )


def _owner(main: TableContext, uuid: str) -> TableContext | None:
    """The branch of that identity. Raises `CorruptTableError` if it may be one of which that is not known."""
    for name in branch_names(main):
        branch = main.on_branch(name)
        if branch.fork is not None and branch.fork.branch_uuid == uuid:
            return branch
    return None


def _merged(branch: TableContext, states: Sequence[State], merge: int, *, is_result: bool) -> Snapshot | None:
    """What a merge took of its branch, or what it made of main."""
    log = merge_log(branch)
    if not is_result:
        return log.records[merge].head if merge in log.records else None
    end = log.ends.get(merge)
    if end is None or end.snapshot is None:
        return None
    stamp = end.snapshot.stamp
    return next((state.snapshot for state in states if state.snapshot.stamp == stamp), None)


def _snapshot(
    context: TableContext, states: Sequence[State], number: int, problem: Problem
) -> Iterator[tuple[Step, Act]]:
    found = recover_within(context, states, number)
    is_newest = number == max(context.snapshots.ids(), default=0)
    if is_newest:  # of several that had the number, only one was not rolled back
        below = context.snapshots.find(number - 1)
        if (
            found is None
            or found.snapshot.stamp in removed_stamps(context.storage)
            or (below is not None and not context.snapshots.follows(below, found.snapshot))
        ):
            return
    if found is not None:
        what = f"put snapshot {number} back, from {found.source}"
        content = found.snapshot.to_json()
        yield Step(Kind.SNAPSHOT, what, problem.path), put_again(context, problem.path, content)
        return
    what = f"put {problem.path} aside, which nothing else holds; its rows are in the next one, and history seems to begin there"
    yield Step(Kind.SNAPSHOT, what, problem.path), put_aside(context, problem.path)
