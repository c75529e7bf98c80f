"""Repairs unreadable internal tags, savepoints, old snapshots and schemas from redundant copies.

A savepoint and its tag hold the same snapshot, as do a branch's record and its pins, a merge's record and its tags. A
snapshot below the newest is restored from a ref that holds it; if none does, its file is moved aside, which leaves
a gap: history seems to begin above it, and expiry goes on. The newest is rebuilt from its manifest lists as well. A
user's tag has no copy: `delete-tag` removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.layout import savepoint_id_of, schema_id_of, tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import pin_name, pinned_savepoint_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.branches.lost_fork import readable_branch
from anabranch.kernel.log import moment_pins as pins
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_snapshot, is_fork_pin, pinned_branch_of
from anabranch.kernel.log.inherited_tags import (
    inherited_content,
    inherited_number,
    inherited_number_of,
    inherited_paths,
    read_inherited_at,
)
from anabranch.kernel.log.merge_log import merge_log
from anabranch.kernel.log.merge_pins import is_merge_pin, pinned_merge_of
from anabranch.kernel.log.properties import BRANCH_PROPERTY, replace_facts
from anabranch.kernel.log.removals import removed_stamps
from anabranch.kernel.log.rollback_pins import is_rollback_pin, pinned_rollback_of
from anabranch.kernel.log.savepoint_log import find_savepoint
from anabranch.kernel.log.shared_past import left_of_inherited
from anabranch.kernel.log.tag_log import find_tag
from anabranch.kernel.provenance.past import rolled_back_to
from anabranch.kernel.refs.savepoints import remade_savepoint
from anabranch.kernel.repair.found import Act, Kind, Problem, RefState, RepairStep, put_again, put_aside
from anabranch.kernel.repair.lost_snapshots import recover_newest, recover_within


def plan_refs(
    main: TableContext, states: Sequence[RefState], problems: Sequence[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to rebuild damaged refs, or to move them aside."""
    for problem in problems:
        try:
            context = main if problem.branch == main.branch else _branch(main, problem.branch)
            if (lost := _inherited(main, problem)) is not None:
                yield lost
                continue
            if not _is_damaged(context, problem):
                continue
            if problem.kind is Kind.REF and (number := savepoint_id_of(problem.path)) is not None:
                yield from _savepoint(main, number, problem)
            elif problem.kind is Kind.REF and (name := tag_name_of(problem.path)) is not None:
                yield from _tag(main, context, states, name, problem)
            elif problem.kind is Kind.SNAPSHOT and problem.snapshot_id is not None:
                yield from _snapshot(context, states, problem.snapshot_id, problem)
        except AnabranchError:
            continue  # its source, or its branch, cannot be read either, so that is reported


def _inherited(main: TableContext, problem: Problem) -> tuple[RepairStep, Act] | None:
    """Plan to put the tags that a main inherits again; None if the problem is about something else.

    From their copy, or else from what is left of them in the folders of the mains before.
    """
    number = inherited_number_of(problem.path)
    if number is None:
        return None
    path, copy = inherited_paths(main, number)
    source = copy if problem.path == path else path
    try:
        read_inherited_at(main, source)
        content = main.storage.get(source)
    except CorruptTableError:
        if inherited_number(main) != number:
            what = f"put {problem.path} aside, which is no main's as it is now, and whose copy is damaged too"
            return RepairStep(Kind.REF, what, problem.path), put_aside(main, problem.path)
        content = inherited_content(left_of_inherited(main))
        what = f"make {problem.path} again from the tags that are left in the folders of what was main before"
        return RepairStep(Kind.REF, what, problem.path), put_again(main, problem.path, content)
    return RepairStep(Kind.REF, f"put {problem.path} again from {source}", problem.path), put_again(
        main, problem.path, content
    )


def _is_damaged(context: TableContext, problem: Problem) -> bool:
    """Whether the file of a ref is damaged, rather than of a later format version or gone meanwhile.

    A savepoint is damaged as well if its manifest list is not there, and if its file is not and nobody deleted it.
    """
    name, number = tag_name_of(problem.path), savepoint_id_of(problem.path)
    try:
        if number is not None:
            saved, layout = find_savepoint(context, number), context.layout
            if saved is None:
                return not context.storage.exists(layout.deleted_savepoint_path(number))
            return not context.storage.exists(layout.manifest_path(saved.full_manifest_list))
        if name is not None:
            find_tag(context, name)
        elif problem.snapshot_id is not None:
            context.snapshots.find(problem.snapshot_id)
    except CorruptTableError:
        return True
    return False


def _branch(main: TableContext, name: str | None) -> TableContext:
    return main.on_branch(None) if name is None else readable_branch(main, name)


def _savepoint(main: TableContext, number: int, problem: Problem) -> Iterator[tuple[RepairStep, Act]]:
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

            yield RepairStep(Kind.REF, f"make {problem.path} again from its tag '{pin}'", problem.path), act
            return


def _tag(
    main: TableContext, context: TableContext, states: Sequence[RefState], name: str, problem: Problem
) -> Iterator[tuple[RepairStep, Act]]:
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
    elif is_rollback_pin(name):
        # Where nothing is left of the rollback, or of what it went to, the pin can be done without: only the rule of
        # thumb of other engines needs it, and a damaged one stands in the way of every expiry.
        held, whose = _rolled_back(main, context, states, name), "a rollback"
        is_needed = held is not None
    elif pins.is_pin(name):
        is_needed = not pins.is_old(context, name)
    if held is not None:
        what = f"put {problem.path} again, which holds what {whose} needs"
        yield (
            RepairStep(Kind.REF, what, problem.path),
            put_again(main, problem.path, Tag(name, held).to_json()),
        )
    elif not is_needed:
        yield (
            RepairStep(Kind.REF, f"put {problem.path} aside, which nothing needs any more", problem.path),
            put_aside(main, problem.path),
        )


def _rolled_back(
    main: TableContext, context: TableContext, states: Sequence[RefState], name: str
) -> Snapshot | None:
    """What a rollback made of its branch, or what it went to; a replacement by a commit is one, to where the branch left."""
    user, is_target = pinned_rollback_of(name)
    of_branch = [state.snapshot for state in states if state.context.branch == context.branch]
    made = next((snapshot for snapshot in of_branch if snapshot.commit_user == user), None)
    if made is None or not is_target:
        return made
    to, facts = rolled_back_to(made), replace_facts(made)
    if facts is not None:
        owner = _owner(main, facts.taken.branch_uuid)
        return None if owner is None else fork_snapshot(owner, main)
    return next((snapshot for snapshot in of_branch if to is not None and snapshot.stamp == to.stamp), None)


def _owner(main: TableContext, uuid: str) -> TableContext | None:
    """Return the branch of that identity. Raises `CorruptTableError` if a branch of unknown identity may be it."""
    for name in branch_names(main):
        branch = main.on_branch(name)
        if branch.fork is not None and branch.fork.branch_uuid == uuid:
            return branch
    return None


def _merged(
    branch: TableContext, states: Sequence[RefState], merge: int, *, is_result: bool
) -> Snapshot | None:
    """Return the branch head that a merge took, or its result on main."""
    log = merge_log(branch)
    if not is_result:
        return log.records[merge].head if merge in log.records else None
    end = log.ends.get(merge)
    if end is None or end.snapshot is None:
        return None
    stamp = end.snapshot.stamp
    return next((state.snapshot for state in states if state.snapshot.stamp == stamp), None)


def _snapshot(
    context: TableContext, states: Sequence[RefState], number: int, problem: Problem
) -> Iterator[tuple[RepairStep, Act]]:
    found = recover_within(context, states, number)
    is_newest = number == max(context.snapshots.ids(), default=0)
    if is_newest:  # of several that had the number, only one was not rolled back
        below = context.snapshots.find(number - 1)
        if (
            found is None
            or found.snapshot.stamp in removed_stamps(context.storage)
            or (below is not None and not context.snapshots.follows(below, found.snapshot))
        ):
            found = recover_newest(context, states, number)
        if found is None:
            return
    if found is not None:
        what = f"put snapshot {number} back, from {found.source}"
        content = found.snapshot.to_json()
        yield RepairStep(Kind.SNAPSHOT, what, problem.path), put_again(context, problem.path, content)
        return
    what = f"put {problem.path} aside, which nothing else holds; its rows are in the next one, and history seems to begin there"
    yield RepairStep(Kind.SNAPSHOT, what, problem.path), put_aside(context, problem.path)


# Brings missing versions of the schema from the branch whose snapshots name them.
#
# Another engine's fast-forward may copy the snapshots of a branch and leave its schemas behind.


def plan_schemas(
    main: TableContext, states: Sequence[RefState], problems: Sequence[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to copy missing versions, where all that both branches have are the same; none is replaced."""
    planned: set[str] = set()
    for problem in problems:
        try:
            found = _missing(main, states, problem) if problem.kind is Kind.SCHEMA else []
        except AnabranchError:
            continue  # what would tell is damaged too
        for owner, path, content in found:
            if path not in planned:
                planned.add(path)
                what = f"put {path}, which another engine did not copy, from branch '{owner.branch}'"
                yield RepairStep(Kind.SCHEMA, what, path), partial(main.storage.put_if_absent, path, content)


def _missing(
    main: TableContext, states: Sequence[RefState], problem: Problem
) -> list[tuple[TableContext, str, bytes]]:
    """Return the branch that has them, paths and contents of the missing versions up to the one that is named."""
    wanted = schema_id_of(problem.path)
    if wanted is None or main.storage.exists(problem.path):
        return []
    context = main if problem.branch == main.branch else main.on_branch(problem.branch)
    naming = [s for s in states if s.context.branch == problem.branch and s.snapshot.schema_id == wanted]
    makers = {state.snapshot.properties.get(BRANCH_PROPERTY) for state in naming}
    owner = _owner_of_version(main, makers - {context.branch_uuid, None})
    if owner is None:
        return []
    own = context.schemas.ids()
    if any(owner.schemas.find(number) not in (None, context.schemas.find(number)) for number in own):
        return []  # the same number means something else there
    numbers = [n for n in owner.schemas.ids() if max(own, default=-1) < n <= wanted]
    return [
        (owner, context.layout.schema_path(n), main.storage.get(owner.layout.schema_path(n))) for n in numbers
    ]


def _owner_of_version(main: TableContext, uuids: set[str | None]) -> TableContext | None:
    """Return the branch that has one of these identities."""
    for name in branch_names(main):
        try:
            branch = readable_branch(main, name)
            if branch.branch_uuid in uuids:
                return branch
        except AnabranchError:
            continue
    return None
