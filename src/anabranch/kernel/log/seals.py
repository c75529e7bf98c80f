"""The seal: blocks commits to the old main while its replacement is being decided.

``branch/SEAL-<g>`` announces the replacement, and a snapshot without changes, the *seal*, is put as the last one of the
old main. A concurrent commit comes before it, or loses its number and finds it. The seal itself decides nothing:
``MAIN-<g>`` does, or in a group the group's decision. Until that exists, writers wait; after the
deadline any process decides that main stays, so a replacement that died blocks nobody for longer. Clocks matter
for how long to wait, never for the outcome.

A branch that was replaced stays sealed until a later pointer makes it main again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from anabranch.errors import CommitOutcomeUnknownError, SealedBranchError, StorageError
from anabranch.format.records.main_pointer import SEAL_PREFIX, GroupDecision, MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import put_decision
from anabranch.kernel.log.lost_pointers import check_decisions, check_main_known, check_sealed
from anabranch.kernel.log.main_branch import main_of, succession
from anabranch.kernel.log.main_pointer import (
    find_pointer,
    find_seal,
    is_dropped,
    main_before,
    newest_pointer,
    numbers,
    past_after,
    proposed_pointer,
    put_pointer,
    seal_of,
)
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.options import BRANCH_SEAL_TIMEOUT

_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.5


def check_open(context: TableContext, head: Snapshot | None) -> None:
    """Wait until it is decided whether this branch stays main, and raise if it was replaced.

    Args:
        head: its newest snapshot.

    Raises `SealedBranchError`: the branch was main, and another one replaced it.
    """
    generation = sealed_by(context, head)
    if generation is None:
        return
    pointer = decision(context, generation)
    if pointer.replaced is not None and pointer.replaced.old.uuid == context.branch_uuid:
        newest = newest_pointer(context, above=generation) or pointer
        if newest.main.uuid != context.branch_uuid:
            if context.main_generation is not None and context.main_generation < generation - 1:
                check_decisions(context)  # one in between was lost, so that main cannot be found
            raise sealed(context, pointer)


def sealed_by(context: TableContext, head: Snapshot | None) -> int | None:
    """Return the number of the replacement whose seal is the newest snapshot, or None.

    Other engines do not know seals and may have committed on top of one; ours never do while it is in effect.
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
    """Return the replacement that this snapshot sealed the branch for, if decided and the branch is not main again.

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
    """Whether a snapshot is the only remnant of a dropped former main: it reaches no files."""
    generation = seal_of(snapshot)
    if generation is None:
        return False
    pointer = find_pointer(context, generation)
    if pointer is None or pointer.replaced is None or pointer.replaced.head.id + 1 != snapshot.id:
        return False
    with reading(context.storage) as begin:
        dropping = begin(partial(is_dropped, context, pointer))
        return pointer.replaced.old.uuid == context.branch_uuid and dropping()


def dropped_until(context: TableContext) -> int | None:
    """Return the id of the last snapshot (the seal) of a former main that was dropped on purpose.

    None for all other branches. Remnants up to there are removed by the next cleaning; snapshots that another engine
    put above it are its own.
    """
    pointer = succession(context, context.branch_uuid)
    if pointer is None or pointer.replaced is None:
        return None
    return pointer.replaced.head.id + 1 if is_dropped(context, pointer) else None


def decision(context: TableContext, generation: int) -> MainPointer:
    """Wait for the decision about a replacement and return it; after the deadline, decide that main stays."""
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
    """Decide that main stays as it is, unless already decided; in a group, for all its tables."""
    runtime = context.runtime
    pointer = MainPointer(
        generation,
        main_before(context, generation),
        None,
        runtime.clock.now_millis(),
        by,
        runtime.ids.uuid(),
        past=past_after(context, generation - 1),
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
        decided = GroupDecision(proposed.token, "stay", pointer.made_millis, by, pointer.token)
        with suppress(CommitOutcomeUnknownError):
            put_decision(context.groups, proposed.group, decided)


def settled(context: TableContext) -> TableContext:
    """Return main once no replacement is under way that may have missed what was just put on `context`."""
    while True:
        main = main_of(context)
        assert main.main_generation is not None, "it was opened as main"
        if find_seal(main, main.main_generation + 1) is None:
            return main
        decision(main, main.main_generation + 1)


def sealed(context: TableContext, pointer: MainPointer) -> SealedBranchError:
    """Return the error for writers to a replaced main."""
    is_main = context.main_generation is not None
    subject = f"main of '{context.name}'" if is_main else f"'{context.title}', which was main,"
    by = "" if pointer.made_by is None else f" by {pointer.made_by}"
    if not is_main and pointer.replaced is not None and pointer.replaced.undoes is not None:
        return SealedBranchError(
            f"{subject} is not any more: replacement {pointer.replaced.undoes} was undone{by}, and the branch takes no more rows",
            hint=f"`merge-branch --name {context.branch}` brings its rows to main, `replace-main-branch --name {context.branch}` "
            "makes it main again; or write to a new branch, made from a tag of main.",
        )
    return SealedBranchError(
        f"{subject} was replaced by {pointer.main}{by}: replacement {pointer.generation}",
        hint=f"the rows it had are kept as '{former_main_name(pointer.generation)}'. A job whose work the new main's job "
        "does is to be ended; any other opens the table anew and writes to the new main.",
    )
