"""Replacing main by a branch while readers and writers continue.

1. *Check*: main still knows the branch's fork snapshot, no tag is in the way, no other engine writes.
2. *Catch up*, if asked to: until the branch has read from its sources what main has.
3. *Copy* main's past tags and savepoints to the branch; its snapshots stay where they are (`take_past`).
4. *Seal*: announce the replacement (``SEAL-<g>``), then end main by a snapshot that changes nothing.
5. *Decide*, with one put-if-absent of ``MAIN-<g>``. From then on the branch is main.

Until the last step nothing has changed for anybody, and processes that wait for it continue with main after the
deadline. Nothing of the old main is removed: see `release`. Running a killed replacement again
finishes it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from anabranch.errors import (
    AnabranchError,
    CommitOutcomeUnknownError,
    InvalidInputError,
    SealedBranchError,
    StorageError,
)
from anabranch.format.records.main_pointer import MainPointer
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.branch_log import check_still_there, open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.group_log import find_intent
from anabranch.kernel.log.main_branch import former_main, main_of
from anabranch.kernel.log.main_pointer import put_pointer, put_seal, replacements
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.seals import decision, stay
from anabranch.kernel.replacement.check import check, last_standing, moved, refusal
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.request import Replacement, Replacing, identified
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.kernel.replacement.sealing import (
    catch_up,
    covered,
    end_main,
    follow_up,
    last_replacement,
    new_seal,
    next_number,
    only_on_main,
    pointer_after,
    seal_timeout,
)
from anabranch.kernel.replacement.take_past import TakenPast, take_past

_REQUESTS: Final = 3


def replace_main(context: TableContext, wishes: Replacement) -> tuple[MainPointer, bool]:
    """Replace main by a branch.

    Returns:
        The decision, and whether it had been made before.

    Raises:
        NotFoundError: there is no such branch, or it was dropped; or the table is not the one that was opened.
        CommitConflictError: the check failed (``conflicts`` lists all of it), or main is not at the snapshot
            that was expected; main is unchanged.
        CommitOutcomeUnknownError: the store did not say whether it was decided; running it again finishes it.
    """
    expected, clock = wishes.expect_main, context.runtime.clock
    until, begun = clock.monotonic() + (wishes.wait_millis or 0) / 1000, None
    while True:
        with reading(context.storage) as begin:
            # Which branch has the name does not depend on what is main.
            is_same, newest = begin(context.check_same_table), begin(partial(main_of, context))
            opened = begin(partial(open_branch, context, wishes.branch))
            is_same()
            main = newest()
            begun = begun or main
            done = last_replacement(main, wishes.branch)
            if done is not None:
                follow_up(main, done)
                return done, True
            if expected is not None and main.branch_uuid != begun.branch_uuid:
                raise refusal([moved(main, expected, "was replaced meanwhile")])
            check_still_there(main)
            replacing = check(main, wishes, opened=opened)
        if wishes.wait_millis is not None:
            catch_up(replacing, until)  # main is not sealed in vain
        taken = take_past(main, replacing.target, replacing.fork)
        made = decide(replacing, taken, _ready(replacing))
        if made is not None:
            return made, False


def _ready(replacing: Replacing) -> Snapshot | None:
    """Do all that can be done before main is sealed, so that this takes little time.

    Returns:
        The newest snapshot of main, if its schema, as it is known, was what is stored when that had been read; else None.
    """
    main, target = replacing.main, replacing.target
    is_stored = False

    def look_again() -> None:
        nonlocal is_stored
        is_stored = head is not None and main.schemas.look_again(head.schema_id)

    with reading(main.storage) as begin:
        newest, of_target = begin(main.snapshots.head), begin(target.snapshots.head)
        head, newest_of_target = newest(), of_target()
        if head is not None:
            begin(partial(main.manifests.of_snapshot, head))  # what the seal is made from
        together(
            partial(covered, replacing, head, newest_of_target),
            partial(take_back, main, target.branch_uuid),
            look_again,
            at=main.storage,
        )
    return head if is_stored else None


def planned(context: TableContext, wishes: Replacement, *, as_commit: bool = False) -> ReplaceResult:
    """Return what a replacement would do now, without changes. Raises as `replace_main` where known beforehand."""
    main = main_of(context)
    done = None if as_commit else last_replacement(main, wishes.branch)
    if done is not None:
        return replace(ReplaceResult.of(done, repeated=True), dry_run=True)
    replacing = check(main, wishes, as_commit=as_commit)
    old, new = main.snapshots.head(), replacing.target.snapshots.head()
    missing = only_on_main(replacing)
    number = None if as_commit or main.main_generation is None else main.main_generation + 1
    return ReplaceResult(
        wishes.branch,
        number,
        replacing.fork.id,
        0 if old is None else old.id,
        0 if new is None else new.id,
        repeated=False,
        dry_run=True,
        expect_main=None if old is None else identified(old),
        only_on_main=tuple(commit for job in missing for commit in job.commits),
        jobs_only_on_main=missing,
    )


def decide(
    replacing: Replacing, taken: TakenPast | None = None, known: Snapshot | None = None
) -> MainPointer | None:
    """Seal main and put the pointer; None if it was decided otherwise and the caller must start over.

    Args:
        replacing: the checked replacement.
        taken: what the target has of main's past; None for an undo.
        known: a snapshot of main that the schema was looked at after, as `commit` takes it.
    """
    main = replacing.main
    generation = next_number(replacing)
    seal = new_seal(replacing, seal_timeout(main))
    if not put_seal(main, generation, seal):
        decision(main, generation)  # another replacement is under way, or its process died
        return None
    try:
        pointer = pointer_after(replacing, end_main(replacing, known), seal, taken)
        if pointer is None or not _put(main, pointer):
            stay(main, generation, replacing.wishes.by)
            return None
    except CommitOutcomeUnknownError:
        raise
    except SealedBranchError:  # our time was up, and another process replaced main
        stay(main, generation, replacing.wishes.by)
        return None
    except AnabranchError:
        stay(main, generation, replacing.wishes.by)  # nobody should wait for a decision that will not come
        raise
    follow_up(main, pointer)
    return pointer


def _put(main: TableContext, pointer: MainPointer) -> bool:
    """Put the decision. Raises `CommitOutcomeUnknownError` if the store does not say whether it was stored."""
    for _ in range(_REQUESTS):
        try:
            return put_pointer(main, pointer)
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            unknown = error  # asking again does no harm: the same bytes are the same decision
    raise CommitOutcomeUnknownError(
        f"it is not known whether main of '{main.name}' was replaced: {unknown.message}",
        hint="run it again: it finds out, and finishes what is left to do.",
    ) from unknown


# Undoing a replacement of main: the replaced branch becomes main again.
#
# It is itself a replacement, with the same seal and the same decision: what was committed to main meanwhile stays on the
# branch that was main, and can be read and merged from there.


def undo_replace(
    context: TableContext,
    replacement: int | None = None,
    *,
    alone: bool = False,
    by: str | None = None,
    reason: str | None = None,
) -> tuple[MainPointer, bool]:
    """Undo the last replacement of main. See `Table.undo_replace`.

    Returns:
        The decision, and whether it had been made before. If the last replacement was itself an undo, nothing is left
        to do, and to go back further the number must be given.
    """
    while True:
        main = main_of(context)
        check_still_there(main)
        known = replacements(main)
        done = _made_before(known, replacement)
        if done is not None:
            return done, True
        last = last_standing(main, known, replacement)
        assert last.replaced is not None, "it is a replacement"
        if last.group is not None and not alone:
            raise _of_group(main, last)
        old = former_main(main, last.generation)
        take_back(main, last.replaced.old.uuid)
        target = main.on_branch(old.branch)
        wishes = Replacement(target.branch or "", by=by, reason=reason, force=True)
        made = decide(Replacing(main, target, last.replaced.fork, wishes, undoes=last.generation))
        if made is not None:
            return made, False


def _made_before(known: list[MainPointer], replacement: int | None) -> MainPointer | None:
    """Return the decision that undid it, if that is the newest one."""
    last = known[-1] if known else None
    if last is None or last.replaced is None or last.replaced.undoes is None:
        return None
    return last if replacement in (None, last.replaced.undoes) else None


def _of_group(main: TableContext, pointer: MainPointer) -> InvalidInputError:
    others = "others"
    intent = None if main.groups is None or pointer.group is None else find_intent(main.groups, pointer.group)
    if intent is not None:
        others = (
            ", ".join(sorted(m.table for m in intent.members if m.table_uuid != main.table_uuid)) or others
        )
    return InvalidInputError(
        f"main of '{main.name}' was replaced together with that of {others}, as group {pointer.group}",
        hint=f"take all of it back at once with `anabranch cascade --undo {pointer.group}`, or only this table with "
        "`undo-replace --alone`.",
    )
