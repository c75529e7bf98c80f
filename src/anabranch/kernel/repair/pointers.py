"""Lost records of which branch is main, and their recovery.

A replacement leaves a copy of its decision. If there is none, because it was made before copies were
kept or its process died then, the decision is reconstructed from the announcement, the seal and the fork of the branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.layout import Part
from anabranch.format.records.main_pointer import MAIN_PREFIX, MainPointer, Replaced
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_decision, find_intent, group_numbers
from anabranch.kernel.log.inherited_tags import inherited_paths
from anabranch.kernel.log.lost_pointers import copies, lost_decisions, lost_seal
from anabranch.kernel.log.main_branch import as_main
from anabranch.kernel.log.main_pointer import (
    find_copy,
    find_pointer,
    main_before,
    numbers,
    past_after,
    put_pointer,
    seal_of,
)
from anabranch.kernel.log.properties import PARENT_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.repair.found import Act, Kind, Problem, RepairStep, is_of_later_version, put_again
from anabranch.kernel.replacement.take_past import shared_past

_OUTCOME: Final = re.compile(rb'"outcome"\s*:\s*"(stay|replaced)"')


def pointer_problems(main: TableContext) -> Iterator[Problem]:
    """Yield the problems with the records of which branch is main."""
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
        copy, there = _copy(main, number), None
        with suppress(CorruptTableError):
            there = find_pointer(main, number)
        if copy is not None and there is not None and copy.main != there.main:
            path = main.layout.branches_file_path(f"MAIN-{number}")
            yield Problem(
                Kind.POINTER,
                f"{path} says that main is {there.main}, and the copy that was kept when it was decided says {copy.main}: "
                "the record was lost, and another made in its place",
                path,
            )
    yield from _unreadable(main)


def _unreadable(main: TableContext) -> Iterator[Problem]:
    """Yield the problems with decisions that cannot be read and have no copy."""
    decisions = numbers(main, MAIN_PREFIX)
    for number in decisions:
        try:
            find_pointer(main, number, fresh=True)
        except CorruptTableError as error:
            if number == decisions[-1]:
                tense = "is"
                means = (
                    "which branch is main stands there, and there is no copy of it, so nothing can be read from or "
                    "written to main; branches can be opened by their names"
                )
            else:
                tense = "was"
                means = "which branch was main then stands there, and there is no copy of it, so nothing of main expires"
            path = error.path or main.layout.branches_file_path(f"{MAIN_PREFIX}{number}")
            again = remade(main, number)
            yield Problem(
                Kind.POINTER,
                f"{error.message}: {means}",
                path,
                repair=None if again is None else f"make it again: main {tense} {again.main}",
                hint="put the file back from a copy of the table's folder."
                if path.endswith(f"/{MAIN_PREFIX}{number}")
                else error.hint,
            )


def plan_pointers(context: TableContext, problems: list[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to restore them, oldest first."""
    wanted = {p.path for p in problems if p.kind is Kind.POINTER}
    for number in numbers(context, MAIN_PREFIX):
        path = context.layout.branches_file_path(f"{MAIN_PREFIX}{number}")
        again = remade(context, number) if path in wanted else None
        if again is not None:
            what = f"make {path} again, from what it still says, the announcement and the history of what was main: main is"
            yield (
                RepairStep(Kind.POINTER, f"{what} {again.main}", path),
                put_again(context, path, again.to_json()),
            )
    for lost in lost_decisions(context) if wanted else ():
        pointer = _copy(context, lost.generation)
        source = "the copy of it"
        if pointer is None:
            pointer, source = (
                _made_up(context, lost.generation),
                "the announcement and the seal of what was main",
            )
        if pointer is not None:
            step = RepairStep(
                Kind.POINTER, f"put {lost.path} back, from {source}: main is {pointer.main}", lost.path
            )
            yield step, partial(put_pointer, context, pointer)


def _copy(context: TableContext, generation: int) -> MainPointer | None:
    try:
        return find_copy(context, generation)
    except AnabranchError:
        return None


def remade(context: TableContext, generation: int) -> MainPointer | None:
    """Reconstruct a decision of which there is only an unreadable file; None if too little is known.

    That it is there says that it was decided. What was decided, if the file no longer says so: main was replaced, unless
    the branch that was main went on after its seal. Either way no rows are lost: those of the other branch stay on it.
    """
    path = context.layout.branches_file_path(f"{MAIN_PREFIX}{generation}")
    try:
        find_pointer(context, generation, fresh=True)
    except CorruptTableError as error:
        if error.path != path or is_of_later_version(context, path):
            return None
    else:
        return None
    try:
        is_replaced = _was_replaced(context, generation, path)
        if is_replaced:
            return _made_up(context, generation)
        if is_replaced is None:
            return None
        made = context.storage.info(path).modified_millis
        before = main_before(context, generation)
        past = past_after(context, generation - 1)
        return MainPointer(generation, before, None, made, None, context.runtime.ids.uuid(), past=past)
    except AnabranchError:
        return None


def _was_replaced(context: TableContext, generation: int, path: str) -> bool | None:
    """Whether a damaged decision replaced main; None if it is one of a group that is not decided yet."""
    groups = context.groups
    for number in [] if groups is None else group_numbers(groups):
        assert groups is not None, "it has numbers"
        intent = find_intent(groups, number)
        members = () if intent is None else intent.members
        if any((m.table_uuid, m.generation) == (context.table_uuid, generation) for m in members):
            decided = find_decision(groups, number)
            return None if decided is None else decided.made
    said = _OUTCOME.search(context.storage.get(path))
    if said is not None:
        return said[1] == b"replaced"
    following = find_pointer(context, generation + 1)
    before = main_before(context, generation)
    if following is not None and following.replaced is not None:
        return following.replaced.old.uuid != before.uuid
    old = context.on_branch(before.name)
    seal = _seal_of(old, generation)
    above = None if seal is None else old.snapshots.find(seal.id + 1)
    return seal is not None and (above is None or WRITER_PROPERTY not in above.properties)


def _made_up(context: TableContext, generation: int) -> MainPointer | None:
    """Reconstruct a replacement; None if too little is known."""
    seal = lost_seal(context, generation)
    try:
        before = main_before(context, generation)
        old = context.on_branch(before.name)
        target = None if seal is None else context.on_branch(seal.target.name)
        if seal is None or target is None or target.branch_uuid != seal.target.uuid:
            return None
        if target.fork is None or state_of(target) is not BranchState.READY:
            return None
        last = _seal_of(old, generation)
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
        generation,
        seal.target,
        Replaced(before, SnapshotRef(old.branch_uuid, last.id - 1, stamp), fork, taken, resume=fork),
        last.time_millis,
        seal.made_by,
        seal.token,
        past=_shared(
            target, as_main(context, before.name, generation - 1, past_after(context, generation - 1))
        ),
    )


def _shared(target: TableContext, old: TableContext) -> tuple[Part, ...]:
    """Return where the past of a branch goes on that became main; none if it has a copy of it, or is the former main."""
    assert target.fork is not None, "checked by the caller"
    begun = target.fork.snapshot
    is_copied = target.snapshots.own_ids()[:1] != [begun.id]
    past = () if is_copied else shared_past(old, begun)
    number = (old.main_generation or 0) + 1
    has_tags = past and any(map(old.storage.exists, inherited_paths(old, number)))
    return (replace(past[0], tags=number), *past[1:]) if has_tags else past


def _seal_of(old: TableContext, generation: int) -> Snapshot | None:
    """Return the snapshot that sealed a former main."""
    for number in reversed(old.snapshots.ids()):
        found = old.snapshots.find(number)
        if found is not None and seal_of(found) == generation:
            return found
    return None
