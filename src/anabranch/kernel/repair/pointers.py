"""The records of which branch is main: those that were lost, and how they are put back.

A replacement that was made leaves a copy of its decision. Where there is none, because it was made before copies were
kept or its process died then, the decision is made up from the announcement, the seal and the beginning of the branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.format.records.main_pointer import MainPointer, Replaced
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import LostDecision, copies, lost_decisions, lost_seal
from anabranch.kernel.log.main_pointer import find_copy, find_pointer, main_before, put_pointer, seal_of
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.repair.problem import Kind, Problem
from anabranch.kernel.repair.step import Act, Step


def pointer_problems(main: TableContext) -> Iterator[Problem]:
    """What is wrong with the records of which branch is main."""
    lost = lost_decisions(main)
    for one in lost:
        yield Problem(
            Kind.POINTER,
            f"{one.path}, the record of replacement {one.generation} of main, is not there, though {one.proof} tells that "
            "it was decided: main may be another branch than it seems",
            one.path,
            repair="put it back",
        )
    for number in sorted(copies(main) - {one.generation for one in lost}):
        copy = _copy(main, number)
        there = find_pointer(main, number)
        if copy is not None and there is not None and copy.main != there.main:
            path = main.layout.branches_file_path(f"MAIN-{number}")
            yield Problem(
                Kind.POINTER,
                f"{path} says that main is {there.main}, and the copy that was kept when it was decided says {copy.main}: "
                "the record was lost, and another made in its place",
                path,
            )


def plan_pointers(context: TableContext, problems: list[Problem]) -> Iterator[tuple[Step, Act]]:
    """What puts them back, oldest first."""
    wanted = {p.path for p in problems if p.kind is Kind.POINTER}
    for lost in lost_decisions(context) if wanted else ():
        pointer = _copy(context, lost.generation)
        source = "the copy of it"
        if pointer is None:
            pointer, source = _made_up(context, lost), "the announcement and the seal of what was main"
        if pointer is not None:
            step = Step(
                Kind.POINTER, f"put {lost.path} back, from {source}: main is {pointer.main}", lost.path
            )
            yield step, partial(put_pointer, context, pointer)


def _copy(context: TableContext, generation: int) -> MainPointer | None:
    try:
        return find_copy(context, generation)
    except AnabranchError:
        return None


def _made_up(context: TableContext, lost: LostDecision) -> MainPointer | None:
    """What was decided, as far as it can be told; None if that is too little."""
    seal = lost_seal(context, lost.generation)
    try:
        before = main_before(context, lost.generation)
        old = context.on_branch(before.name)
        target = None if seal is None else context.on_branch(seal.target.name)
        if seal is None or target is None or target.branch_uuid != seal.target.uuid:
            return None
        if target.fork is None or state_of(target) is not BranchState.READY:
            return None
        last = _seal_of(old, lost.generation)
        below = None if last is None else old.snapshots.find(last.id - 1)
        if last is None or target.fork.snapshot.branch_uuid != old.branch_uuid:
            return None
        head = target.snapshots.head()
        known = () if head is None else target.snapshots.backwards(head)
        newest = next((s for s in known if s.time_millis <= last.time_millis), head)
    except AnabranchError:
        return None
    fork = target.fork.snapshot
    taken = fork if newest is None else SnapshotRef(target.branch_uuid, newest.id, newest.stamp)
    stamp = last.properties.get(PARENT_PROPERTY, "") if below is None else below.stamp
    return MainPointer(
        lost.generation,
        seal.target,
        Replaced(before, SnapshotRef(old.branch_uuid, last.id - 1, stamp), fork, taken, resume=fork),
        last.time_millis,
        seal.made_by,
        seal.token,
    )


def _seal_of(old: TableContext, generation: int) -> Snapshot | None:
    """The snapshot that ended a branch that was main."""
    for number in reversed(old.snapshots.ids()):
        found = old.snapshots.find(number)
        if found is not None and seal_of(found) == generation:
            return found
    return None
