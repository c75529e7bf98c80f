"""The seal: while a replacement of main is being decided, nobody commits to the main that is to be replaced.

``branch/SEAL-<g>`` announces the replacement, and a snapshot without changes, the *seal*, is put as the last one of the
old main. Whoever commits there comes before it, or loses its number and finds it. The seal says nothing by itself:
``MAIN-<g>`` does, where it is one of a group with the group's decision. Until that is there, writers wait; after the
deadline anybody decides that main stays as it is, so a replacement that died holds up nobody for longer. Clocks matter
for how long one waits, never for what is decided.

A branch that was replaced stays sealed until a later pointer makes it main again.
"""

from __future__ import annotations

from contextlib import suppress

from anabranch.errors import CommitOutcomeUnknownError, SealedBranchError, StorageError
from anabranch.format.records.group import GroupDecision
from anabranch.format.records.main_pointer import SEAL_PREFIX, MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import put_decision
from anabranch.kernel.log.lost_pointers import check_decisions, check_main_known, check_sealed
from anabranch.kernel.log.main_branch import main_of, succession
from anabranch.kernel.log.main_pointer import (
    find_pointer,
    find_release,
    find_seal,
    main_before,
    newest_pointer,
    numbers,
    proposed_pointer,
    put_pointer,
    seal_of,
)
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.options import BRANCH_SEAL_TIMEOUT

_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.5


def check_open(context: TableContext, head: Snapshot | None) -> None:
    """Wait while it is not decided whether this branch stays main, and refuse one that was replaced.

    Args:
        context: the branch that is to be written.
        head: its newest snapshot.

    Raises `SealedBranchError`: the branch was main, and another one is in its place.
    """
    generation = sealed_by(context, head)
    if generation is None:
        return
    pointer = decision(context, generation)
    if pointer.replaced is not None and pointer.replaced.old.uuid == context.branch_uuid:
        newest = newest_pointer(context, above=generation) or pointer
        if newest.main.uuid != context.branch_uuid:
            if context.main_generation is not None and context.main_generation < generation - 1:
                check_decisions(context)  # one in between, so that main cannot be found
            raise sealed(context, pointer)


def sealed_by(context: TableContext, head: Snapshot | None) -> int | None:
    """The number of the replacement whose seal is the newest snapshot, or None.

    Other engines do not know seals and may have put snapshots on top of one; ours never do while it counts.
    """
    if head is None:
        return None
    if WRITER_PROPERTY not in head.properties:
        if not numbers(context, SEAL_PREFIX):
            return None
        ours = (s for s in context.snapshots.backwards(head) if WRITER_PROPERTY in s.properties)
        head = next(ours, head)
    return seal_of(head)


def is_replaced_by(context: TableContext, snapshot: Snapshot) -> MainPointer | None:
    """The replacement that a snapshot of this branch is the decided seal of, if the branch is not main again.

    None for all other snapshots, at no cost.
    """
    generation = seal_of(snapshot)
    if generation is None:
        return None
    if find_pointer(context, generation) is None:
        check_main_known(context, generation)
        return None
    last = succession(context, context.branch_uuid)
    if last is None or last.generation != generation:
        return None
    newest = newest_pointer(context, above=generation) or last
    return last if newest.main.uuid != context.branch_uuid else None


def is_remnant(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether a snapshot is all that was left of a replaced main when it was dropped: it reaches nothing."""
    generation = seal_of(snapshot)
    if generation is None:
        return False
    pointer = find_pointer(context, generation)
    if pointer is None or pointer.replaced is None or pointer.replaced.head.id + 1 != snapshot.id:
        return False
    if pointer.replaced.old.uuid != context.branch_uuid:
        return False
    release = find_release(context, generation)
    return release is not None and release.what == "drop"


def dropped_until(context: TableContext) -> int | None:
    """The number of the last snapshot of a branch that was main and was dropped on purpose, which is its seal.

    None for all other branches. What is left up to there, the next cleaning removes; what another engine put above it
    is its own.
    """
    pointer = succession(context, context.branch_uuid)
    if pointer is None or pointer.replaced is None:
        return None
    release = find_release(context, pointer.generation)
    return pointer.replaced.head.id + 1 if release is not None and release.what == "drop" else None


def decision(context: TableContext, generation: int) -> MainPointer:
    """What was decided about a replacement; waits for it, and decides that main stays when its time is up."""
    clock, sleeper, ids = context.runtime.clock, context.runtime.sleeper, context.runtime.ids
    began, wait = clock.monotonic(), _FIRST_WAIT_SECONDS
    seal = find_seal(context, generation)
    while (pointer := find_pointer(context, generation)) is None:
        timeout = BRANCH_SEAL_TIMEOUT.default if seal is None else seal.timeout_millis
        left = timeout - (clock.monotonic() - began) * 1000
        if seal is not None:
            left = min(left, seal.deadline_millis - clock.now_millis())
        if left <= 0:
            check_sealed(context, generation)
            if find_pointer(context, generation) is not None:
                continue
            stay(context, generation)
            continue
        sleeper.sleep(min(wait * (0.5 + ids.jitter()), left / 1000))
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    return pointer


def stay(context: TableContext, generation: int, by: str | None = None) -> None:
    """Decide that main stays what it is, unless it is decided already; with it, the mains of the tables of its group."""
    runtime = context.runtime
    pointer = MainPointer(
        generation,
        main_before(context, generation),
        None,
        runtime.clock.now_millis(),
        by,
        runtime.ids.uuid(),
    )
    try:
        if put_pointer(context, pointer):
            return
    except StorageError as error:
        if not error.outcome_unknown:
            raise
        return
    proposed = proposed_pointer(context, generation)
    if proposed is not None and proposed.group is not None and context.groups is not None:
        decided = GroupDecision(proposed.token, False, pointer.made_millis, by, pointer.token)
        with suppress(CommitOutcomeUnknownError):
            put_decision(context.groups, proposed.group, decided)


def settled(context: TableContext) -> TableContext:
    """Main, once no replacement is under way that may not have seen what was put on `context` just now."""
    while True:
        main = main_of(context)
        assert main.main_generation is not None, "it was opened as main"
        if find_seal(main, main.main_generation + 1) is None:
            return main
        decision(main, main.main_generation + 1)


def sealed(context: TableContext, pointer: MainPointer) -> SealedBranchError:
    """The error of who writes to a main that was replaced."""
    is_main = context.main_generation is not None
    subject = f"main of '{context.name}'" if is_main else f"'{context.title}', which was main,"
    by = "" if pointer.made_by is None else f" by {pointer.made_by}"
    return SealedBranchError(
        f"{subject} was replaced by {pointer.main}{by}: replacement {pointer.generation}",
        hint=f"the rows it had are kept as '{former_main_name(pointer.generation)}'. A job whose work the new main's job "
        "does is to be ended; any other opens the table anew and writes to the new main.",
    )
