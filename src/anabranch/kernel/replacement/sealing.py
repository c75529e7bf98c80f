"""The critical section of a replacement, for one table: the old main is sealed, and the new pointer is built.

Meanwhile nobody can commit to the old main, so the work here is short: copying what was put since main's
past was taken, and the last check whether the branch may replace it. The caller decides whether the pointer stands
for itself or belongs to a group.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.format.records.layout import Part
from anabranch.format.records.main_pointer import HINT_FILE, BranchRef, MainPointer, Replaced, Seal
from anabranch.format.records.snapshot import CommitIdentity, CommitKind, Snapshot, SnapshotRef
from anabranch.kernel.branches.delete import is_being_deleted
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.gates import check_audited
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.branch_log import check_still_the_same
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import tend_fork_pins
from anabranch.kernel.log.lost_pointers import keep_copy
from anabranch.kernel.log.main_branch import as_main_by
from anabranch.kernel.log.main_pointer import find_pointer, past_after
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.properties import SEAL_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.provenance.coverage import Covered, JobOnMain, by_job
from anabranch.kernel.replacement.check import foreign, moved_from, refusal
from anabranch.kernel.replacement.request import Replacement, Replacing
from anabranch.kernel.replacement.take_past import (
    TakenPast,
    copy_refs,
    drop_stale,
    inherit_tags,
    is_rewound,
    tag_clashes,
    take_over_again,
)
from anabranch.options import BRANCH_SEAL_TIMEOUT


@dataclass(frozen=True)
class PutSeal:
    """Seal main with a snapshot that changes nothing."""

    generation: int
    wishes: Replacement
    """Conditions, including which snapshot must be the last one."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        conflict = moved_from(base.context, base.snapshot, self.wishes)
        return conflict or Change(CommitKind.COMPACT, [], {SEAL_PROPERTY: str(self.generation)})


def next_number(replacing: Replacing) -> int:
    """Return the number that the replacement will have in its table."""
    assert replacing.main.main_generation is not None, "it was opened as main"
    return replacing.main.main_generation + 1


def seal_timeout(main: TableContext) -> int:
    """Return how many milliseconds others wait at most for the decision."""
    schema = main.schemas.latest()
    return BRANCH_SEAL_TIMEOUT.of({} if schema is None else schema.options)


def new_seal(replacing: Replacing, timeout: int) -> Seal:
    """Build the announcement."""
    main, target = replacing.main, replacing.target
    return Seal(
        BranchRef(target.branch, target.branch_uuid),
        main.runtime.clock.now_millis() + timeout,
        timeout,
        replacing.wishes.by,
        main.runtime.ids.uuid(),
    )


def end_main(replacing: Replacing, known: Snapshot | None = None) -> Snapshot:
    """Put the seal after the last snapshot of main.

    Args:
        replacing: the checked replacement.
        known: a snapshot of main seen before, as `commit` takes it.

    Raises `CommitConflictError`: it is not the expected snapshot. `SealedBranchError`: another branch is main.
    """
    main, wishes = replacing.main, replacing.wishes
    seal = PutSeal(next_number(replacing), wishes)
    request = CommitRequest(seal, CommitIdentity.batch(main.runtime))
    last = commit(main, request, known_head=known).snapshot
    assert last is not None, "it was put just now"
    return last


def pointer_after(
    replacing: Replacing, last: Snapshot, seal: Seal, taken: TakenPast | None, until: float | None = None
) -> MainPointer | None:
    """Re-check after sealing; return the pointer to publish, or None to abandon.

    Args:
        last: the snapshot that sealed main.
        seal: the announcement.
        taken: what the target has of main's past; None for an undo.
        until: how long to wait for the target to catch up, by the monotonic clock; None for a share of the seal's time.

    Raises `NotFoundError`: the branch was deleted since it was opened, even if recreated under its name.
    """
    main, target, wishes = replacing.main, replacing.target, replacing.wishes
    # Not beside the wait: an error ends it, and everybody waits for the decision.
    if taken is not None:
        copied = copy_refs(main, target, replacing.fork, taken.tags, inherits=bool(taken.past))
        drop_stale(target, taken.tags, copied)
        if taken.past is not None and is_rewound(main, replacing.fork):
            return None  # it looks for the seal before it removes anything; the next attempt copies
    past = _past_of_target(replacing, taken)
    if taken is not None and past:
        clashes = [] if wishes.force else [*tag_clashes(main, target, replacing.fork)]
        if clashes:
            raise refusal(clashes)  # somebody has made a tag on the branch since it was checked
        past = inherit_tags(main, target, replacing.fork, next_number(replacing), past)
    if replacing.undoes is not None or (taken is not None and not taken.is_of_main):
        take_over_again(main, target, past)
    found = last_catch_up(replacing, last, seal, until)
    is_behind = wishes.wait_millis is not None and found is not None and found.behind > 0
    with reading(main.storage) as begin:
        # All of it once main is sealed, and nothing needs an answer of another.
        head, is_going = begin(target.snapshots.head), begin(partial(is_being_deleted, target))
        is_same = begin(partial(check_still_the_same, target))
        above = begin(partial(main.snapshots.find, last.id + 1))
        stamp = begin(partial(_stamp_before, main, last))
        newest = head()
        # A deletion of the target marks it first and then looks for our announcement, so one of the two gives way.
        if newest is None or is_going() or is_behind:
            return None
        is_same()  # a finished deletion leaves no mark, but also no branch
        if wishes.audit:
            check_audited(target, newest, wishes.audit)
        on_top, stamp_before = above(), stamp()
    if on_top is not None and WRITER_PROPERTY in on_top.properties:
        return None  # another waiting process of ours decided at the deadline that main stays
    if on_top is not None and not wishes.force:
        raise refusal([foreign(main, [on_top])])
    resume = newest if found is None else found.resume
    return MainPointer(
        next_number(replacing),
        BranchRef(target.branch, target.branch_uuid),
        Replaced(
            old=BranchRef(main.branch, main.branch_uuid),
            head=SnapshotRef(main.branch_uuid, last.id - 1, stamp_before),
            fork=replacing.fork,
            taken=SnapshotRef(target.branch_uuid, newest.id, newest.stamp),
            resume=replacing.fork
            if resume is None
            else SnapshotRef(target.branch_uuid, resume.id, resume.stamp),
            audit=wishes.audit if isinstance(wishes.audit, str) else None,
            reason=wishes.reason,
            undoes=replacing.undoes,
        ),
        _time_of(main, last, newest),
        wishes.by,
        seal.token,
        past=past,
    )


def _past_of_target(replacing: Replacing, taken: TakenPast | None) -> tuple[Part, ...]:
    if replacing.undoes is not None:
        return past_after(replacing.main, replacing.undoes - 1)  # what it had as main
    return () if taken is None or taken.past is None else taken.past


def in_group(pointer: MainPointer, number: int, token: str) -> MainPointer:
    """Return the pointer as a member of a group: it takes effect if the group is decided so."""
    return replace(pointer, group=number, token=token)


def last_replacement(main: TableContext, branch: str) -> MainPointer | None:
    """Return the replacement by which the branch is main, or None if it is not main, or was always main."""
    if main.branch != branch or main.main_generation is None:
        return None
    for generation in range(main.main_generation, 0, -1):
        pointer = find_pointer(main, generation)
        if pointer is not None and pointer.replaced is not None:
            return pointer
    return None


def follow_up(main: TableContext, pointer: MainPointer) -> None:
    """Do what is useful once main was replaced; failure is ignored, as `maintain` does the same.

    Main's name is written for people and a copy of the decision for recovery. A main with a past of its own pins what other
    branches began with, so that another engine's expiry spares it; where the past lies elsewhere, that is held there (`inherited_tags`).
    """
    now = as_main_by(main, pointer)
    tend = () if pointer.past else (partial(tend_fork_pins, now, release=False),)
    name = (pointer.main.name or "main").encode()
    hint = partial(main.storage.put, main.layout.branches_file_path(HINT_FILE), name, durable=False)
    with suppress(AnabranchError):
        # In whatever order: each comes after the decision, and needs nothing of another. Old pins are left to `maintain`.
        together(
            partial(keep_copy, main, pointer),
            hint,
            *tend,
            at=main.storage,
        )


def _time_of(main: TableContext, last: Snapshot, newest: Snapshot) -> int:
    """Return the decision time: never before a commit or replacement that precedes it, whatever the clocks say."""
    before = find_pointer(main, main.main_generation) if main.main_generation else None
    earlier = 0 if before is None else before.made_millis
    return max(main.runtime.clock.now_millis(), last.time_millis, newest.time_millis, earlier)


def _stamp_before(main: TableContext, seal: Snapshot) -> str:
    before = main.snapshots.find(seal.id - 1)
    return "" if before is None else before.stamp


WAIT_BY_DEFAULT: Final = 3_600_000
"""Default wait in milliseconds."""

_LOOK_SECONDS: Final = 0.5
_SHARE_OF_TIMEOUT: Final = 0.8


def catch_up(replacing: Replacing, until: float) -> None:
    """Wait until the branch has read what main has, at most until that time of the monotonic clock.

    Raises `CommitConflictError`.
    """
    runtime = replacing.main.runtime
    while True:
        missing = only_on_main(replacing)
        if missing and not replacing.wishes.force:
            raise refusal([_never_comes(replacing, one) for one in missing])
        found = covered(replacing, replacing.main.snapshots.head())
        if found is None:
            if replacing.wishes.force:
                return
            raise refusal([_unknown_positions(replacing)])
        if not found.behind:
            return
        if runtime.clock.monotonic() >= until:
            raise refusal([_too_far_behind(replacing, found.behind)])
        runtime.sleeper.sleep(_LOOK_SECONDS)


def last_look(replacing: Replacing, seal: Seal) -> float:
    """Return the monotonic time until which to wait while main is sealed; the rest is left for the decision."""
    return replacing.main.runtime.clock.monotonic() + seal.timeout_millis * _SHARE_OF_TIMEOUT / 1000


def last_catch_up(replacing: Replacing, last: Snapshot, seal: Seal, until: float | None) -> Covered | None:
    """Return the branch's final coverage of main; if asked to catch up, wait for it while time is left."""
    clock = replacing.main.runtime.clock
    until = last_look(replacing, seal) if until is None else until
    found = covered(replacing, last)
    while replacing.wishes.wait_millis is not None and found is not None and found.behind:
        if clock.monotonic() >= until:
            break
        replacing.main.runtime.sleeper.sleep(_LOOK_SECONDS)
        found = covered(replacing, last)
    return found


def covered(replacing: Replacing, head: Snapshot | None, of_target: Snapshot | None = None) -> Covered | None:
    """Compare the branch's progress with that head of main; None if it is not known.

    Args:
        replacing: the replacement.
        head: of main.
        of_target: that of the branch, if it was looked for just now.
    """
    if replacing.wishes.coverage is None:
        return None
    target, fork = replacing.target, replacing.fork
    with reading(target.storage) as begin:
        finding = begin(partial(target.snapshots.find, fork.id))
        newest = begin(target.snapshots.head) if of_target is None else (lambda: of_target)
        begun, ours = finding(), replacing.main_since.until(head)
        theirs = replacing.target_since.until(newest())
    return replacing.wishes.coverage(
        ours, theirs, begun if begun is not None and begun.stamp == fork.stamp else None
    )


def only_on_main(replacing: Replacing) -> tuple[JobOnMain, ...]:
    """Return the commits of main that the branch will not get, per job; empty if not known."""
    if replacing.wishes.gaps is None:
        return ()
    main, target = replacing.main, replacing.target
    return by_job(replacing.wishes.gaps(main, target), main.name, target.branch)


def _never_comes(replacing: Replacing, missing: JobOnMain) -> Conflict:
    main, target = replacing.main, replacing.target
    who = "" if missing.job is None else f" by job '{missing.job}'"
    what = f"{missing.snapshots} of main of '{main.name}'{who}"
    if missing.is_unknown:
        return Conflict(
            "POSITIONS_UNKNOWN",
            f"it is not known how far '{target.title}' is beside main: {what} does not say what it read, so waiting does not "
            "tell when the branch has it",
            f"{missing.bring}; then replace main without waiting, or with force.",
        )
    return Conflict(
        "ONLY_ON_MAIN",
        f"{what} will not come to '{target.title}' by itself: {'; '.join(missing.reasons)}",
        f"{missing.bring}; or drop what it wrote, with force.",
    )


def _unknown_positions(replacing: Replacing) -> Conflict:
    return Conflict(
        "POSITIONS_UNKNOWN",
        f"it is not known how far '{replacing.target.title}' is beside main: not all commits since the two parted say what "
        "they read",
        "look yourself, and then replace main without waiting, or with force.",
    )


def _too_far_behind(replacing: Replacing, behind: int) -> Conflict:
    return Conflict(
        "TOO_FAR_BEHIND",
        f"'{replacing.target.title}' is {behind} commits behind main and did not catch up in time",
        "see that its job runs, and wait longer.",
    )
