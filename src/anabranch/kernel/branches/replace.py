"""Putting a branch in the place of main, while everybody reads and writes.

1. *Check*: the branch left main at a snapshot that main still knows, no tag stands in the way, no other engine writes.
2. *Catch up*, if asked to: until the branch has read from its sources what main has, but for one commit.
3. *Copy* main's past to the branch: snapshots, tags, savepoints.
4. *Seal*: announce the replacement (``SEAL-<g>``), then end main by a snapshot that changes nothing.
5. *Decide*, with one put-if-absent of ``MAIN-<g>``. From then on the branch is main.

Up to the last step nothing has changed for anybody, and whoever waits for it goes on after the deadline with main as
it was. Nothing of the old main is removed: see `release`. Running a replacement again that was killed at any point
finishes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    InvalidInputError,
    SealedBranchError,
    StorageError,
)
from anabranch.kernel.branches.audit_log import check_audited
from anabranch.kernel.branches.branch_log import open_branch
from anabranch.kernel.branches.copy_history import CopiedPast, copy_past, copy_refs, drop_stale, tag_clashes
from anabranch.kernel.branches.coverage import Coverage, Covered
from anabranch.kernel.branches.delete import is_being_deleted
from anabranch.kernel.branches.main import is_in_past, main_of
from anabranch.kernel.branches.pointer import find_pointer, put_pointer, put_seal
from anabranch.kernel.branches.release import take_back
from anabranch.kernel.branches.replace_result import ReplaceResult
from anabranch.kernel.branches.seal import decision, seal_of, stay
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.identity import CommitIdentity
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.context import TableContext
from anabranch.kernel.properties import SEAL_PROPERTY, WRITER_PROPERTY
from anabranch.lazy import lazy
from anabranch.options import BRANCH_SEAL_TIMEOUT
from anabranch.spec.main_pointer import HINT_FILE, BranchRef, MainPointer, Replaced, Seal
from anabranch.spec.snapshot import CommitKind, Snapshot
from anabranch.spec.snapshot_ref import SnapshotRef

FOREVER: Final = 2**62
"""Milliseconds: to wait as long as it takes."""

_LOOK_SECONDS: Final = 0.5
_REQUESTS: Final = 3


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is to take the place of main, and under which conditions."""

    branch: str
    expect_main: int | None = None
    """Id of main's newest snapshot; with another one nothing is done."""
    wait_millis: int | None = None
    """How long to wait until the branch has caught up with main; None not to ask."""
    force: bool = False
    """Replace main although the check found something, or it is not known how far the branch is."""
    audit: str | bool = False
    """An audit that the branch must have passed as it is: by name, or any if True."""
    by: str | None = None
    reason: str | None = None
    coverage: Coverage | None = None
    """Compares what both have read of their sources; None if nobody knows."""


@dataclass(frozen=True)
class Replacing:
    """A replacement that passed its check."""

    main: TableContext
    target: TableContext
    fork: SnapshotRef
    wishes: Replacement
    undoes: int | None = None
    """The replacement that is taken back; its past is there already."""

    @lazy
    def main_since(self) -> SinceFork:
        """What main has above the snapshot where the two parted."""
        return SinceFork(self.main, self.fork)

    @lazy
    def target_since(self) -> SinceFork:
        """The same of the branch."""
        return SinceFork(self.target, self.fork)


@dataclass
class SinceFork:
    """The snapshots of a branch above the one where it parted from another, each read once."""

    context: TableContext
    fork: SnapshotRef

    def __post_init__(self) -> None:
        self._known: list[Snapshot] = []

    def until(self, head: Snapshot | None) -> list[Snapshot]:
        """Those up to `head` that are there, oldest first."""
        last = self._known[-1].stamp if self._known else None
        new: list[Snapshot] = []
        goes_on = False
        for snapshot in () if head is None else self.context.snapshots.backwards(head):
            goes_on = snapshot.stamp == last
            if goes_on or snapshot.id <= self.fork.id:
                break
            new.append(snapshot)
        self._known = [*(self._known if goes_on else ()), *reversed(new)]
        return self._known


def replace_main(context: TableContext, wishes: Replacement) -> tuple[MainPointer, bool]:
    """Put a branch in the place of main.

    Returns:
        the decision, and whether it had been made before.

    Raises:
        NotFoundError: there is no such branch, or it was dropped.
        CommitConflictError: the check found something (``conflicts`` lists all of it), or main is not at the snapshot
            that was expected; main is as it was.
        CommitOutcomeUnknownError: the store did not say whether it was decided; running it again does.
    """
    expected, clock = wishes.expect_main, context.runtime.clock
    begun, until = main_of(context), clock.monotonic() + (wishes.wait_millis or 0) / 1000
    at_most = 1
    while True:
        main = main_of(context)
        done = _is_made(main, wishes.branch)
        if done is not None:
            _write_hint(main, done)
            return done, True
        if expected is not None and main.branch != begun.branch:
            raise refusal([_moved(main, expected, "was replaced meanwhile")])
        replacing = check(main, wishes)
        if wishes.wait_millis is not None:
            catch_up(replacing, until, at_most=at_most)
            at_most = 0  # if the rest takes too long, main is not sealed again before there is none
        copied = copy_past(main, replacing.target, replacing.fork)
        covered(replacing, main.snapshots.head())  # so that little is left to be read once main is sealed
        take_back(main, replacing.target.branch_uuid)
        made = decide(replacing, copied)
        if made is not None:
            return made, False


def planned(context: TableContext, wishes: Replacement, *, as_commit: bool = False) -> ReplaceResult:
    """What a replacement would do now; nothing is changed. Raises as `replace_main` for what can be known before."""
    main = main_of(context)
    done = None if as_commit else _is_made(main, wishes.branch)
    if done is not None:
        return ReplaceResult.of(done, repeated=True)
    replacing = check(main, wishes, as_commit=as_commit)
    old, new = main.snapshots.head(), replacing.target.snapshots.head()
    number = None if as_commit or main.main_generation is None else main.main_generation + 1
    return ReplaceResult(
        wishes.branch,
        number,
        replacing.fork.id,
        0 if old is None else old.id,
        0 if new is None else new.id,
        repeated=False,
        dry_run=True,
    )


def check(main: TableContext, wishes: Replacement, *, as_commit: bool = False) -> Replacing:
    """Find out whether a branch can take the place of main; nothing is changed. Raises as `replace_main`.

    Args:
        main: the main branch.
        wishes: which branch, and under which conditions.
        as_commit: whether main only gets the branch's rows: then tags stay where they are, and other engines may write.
    """
    target = open_branch(main, wishes.branch)
    if target.known_as is not None:
        raise InvalidInputError(
            f"'{wishes.branch}' of '{main.name}' is the name of a replaced main, not of a branch",
            hint="`undo-replace` makes what was replaced main again.",
        )
    fork = _fork(main, target)
    replacing = Replacing(main, target, fork, wishes)
    head = main.snapshots.head()
    moved = moved_from(main, head, wishes.expect_main)
    if moved is not None:
        raise refusal([moved])
    if wishes.audit:
        check_audited(target, target.snapshots.head(), wishes.audit)
    found = list(_descent(replacing))
    if not as_commit:
        found += [*_foreign_writers(replacing, head), *tag_clashes(main, target, fork)]
    if found and not wishes.force:
        raise refusal(found)
    return replacing


def decide(replacing: Replacing, copied: CopiedPast | None = None) -> MainPointer | None:
    """Seal main and put the pointer; None if it was decided otherwise, so that one has to start over.

    Args:
        replacing: what passed the check.
        copied: what the target has of main's past; None if it needs nothing.
    """
    main = replacing.main
    assert main.main_generation is not None, "it was opened as main"
    generation = main.main_generation + 1
    seal = _new_seal(replacing)
    if not put_seal(main, generation, seal):
        decision(main, generation)  # another replacement is under way, or its process died
        return None
    try:
        pointer = _sealed(replacing, generation, seal, copied)
        if pointer is None or not _put(main, pointer):
            stay(main, generation, replacing.wishes.by)
            return None
    except CommitOutcomeUnknownError:
        raise
    except SealedBranchError:  # our time was up, and somebody else replaced main
        stay(main, generation, replacing.wishes.by)
        return None
    except AnabranchError:
        stay(main, generation, replacing.wishes.by)  # nobody shall wait for what will not come
        raise
    _write_hint(main, pointer)
    return pointer


@dataclass(frozen=True)
class PutSeal:
    """End main with a snapshot that changes nothing."""

    generation: int
    expected: int | None
    """Id of the snapshot that must be the last one."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        moved = moved_from(base.context, base.snapshot, self.expected)
        return moved or Change(CommitKind.COMPACT, [], {SEAL_PROPERTY: str(self.generation)})


def _sealed(
    replacing: Replacing, generation: int, seal: Seal, copied: CopiedPast | None
) -> MainPointer | None:
    """Put the seal, and do for the last time what others may have got in the way of; the pointer to put then."""
    main, target, wishes = replacing.main, replacing.target, replacing.wishes
    request = CommitRequest(PutSeal(generation, wishes.expect_main), CommitIdentity.batch(main.runtime))
    last = commit(main, request).snapshot
    assert last is not None, "it was put just now"
    if copied is not None:
        drop_stale(target, copied.tags, copy_refs(main, target, replacing.fork, copied.tags))
    found = _last_catch_up(replacing, last, seal)
    newest = target.snapshots.head()
    is_behind = wishes.wait_millis is not None and found is not None and found.behind > 0
    # Whoever deletes the target marks it first and then looks for our announcement, so one of us gives way.
    if newest is None or is_being_deleted(target) or is_behind:
        return None
    if wishes.audit:
        check_audited(target, newest, wishes.audit)
    on_top = main.snapshots.find(last.id + 1)
    if on_top is not None and WRITER_PROPERTY in on_top.properties:
        return None  # one of ours waited long enough, and decided that main stays
    if on_top is not None and not wishes.force:
        raise refusal([_foreign(main, [on_top])])
    resume = newest if found is None else found.resume
    return MainPointer(
        generation,
        BranchRef(target.branch, target.branch_uuid),
        Replaced(
            old=BranchRef(main.branch, main.branch_uuid),
            head=SnapshotRef(main.branch_uuid, last.id - 1, _stamp_before(main, last)),
            fork=replacing.fork,
            taken=SnapshotRef(target.branch_uuid, newest.id, newest.stamp),
            resume=replacing.fork
            if resume is None
            else SnapshotRef(target.branch_uuid, resume.id, resume.stamp),
            audit=wishes.audit if isinstance(wishes.audit, str) else None,
            reason=wishes.reason,
            undoes=replacing.undoes,
        ),
        main.runtime.clock.now_millis(),
        wishes.by,
        seal.token,
    )


def _put(main: TableContext, pointer: MainPointer) -> bool:
    """The decision. Raises `CommitOutcomeUnknownError` if the store does not say whether it was made."""
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


def _new_seal(replacing: Replacing) -> Seal:
    main, target = replacing.main, replacing.target
    schema = main.schemas.latest()
    timeout = BRANCH_SEAL_TIMEOUT.of({} if schema is None else schema.options)
    return Seal(
        BranchRef(target.branch, target.branch_uuid),
        main.runtime.clock.now_millis() + timeout,
        timeout,
        replacing.wishes.by,
        main.runtime.ids.uuid(),
    )


def _stamp_before(main: TableContext, seal: Snapshot) -> str:
    before = main.snapshots.find(seal.id - 1)
    return "" if before is None else before.stamp


def _is_made(main: TableContext, branch: str) -> MainPointer | None:
    """The decision by which the branch is main already."""
    if main.branch != branch or main.main_generation is None:
        return None
    for generation in range(main.main_generation, 0, -1):
        pointer = find_pointer(main, generation)
        if pointer is not None and pointer.replaced is not None:
            return pointer
    return None


def _write_hint(main: TableContext, pointer: MainPointer) -> None:
    """For people. A hint that cannot be written is no failure."""
    name = pointer.main.name or "main"
    try:
        main.storage.put(main.layout.branches_file_path(HINT_FILE), name.encode(), durable=False)
    except StorageError:
        return


# Catching up


def catch_up(replacing: Replacing, until: float, *, at_most: int) -> None:
    """Wait until the branch is at most so many commits behind, but not beyond that time of the monotonic clock.

    Raises `CommitConflictError`.
    """
    runtime = replacing.main.runtime
    while True:
        found = covered(replacing, replacing.main.snapshots.head())
        if found is None:
            if replacing.wishes.force:
                return
            raise refusal([_unknown_positions(replacing)])
        if not found.behind:
            return
        if runtime.clock.monotonic() >= until:
            raise refusal([_too_far_behind(replacing, found.behind)])
        if found.behind <= at_most:
            return
        runtime.sleeper.sleep(_LOOK_SECONDS)


def _last_catch_up(replacing: Replacing, last: Snapshot, seal: Seal) -> Covered | None:
    """How far the branch is at the end; if asked to catch up, when it has or the time is nearly up."""
    clock = replacing.main.runtime.clock
    until = clock.monotonic() + seal.timeout_millis * 0.8 / 1000
    found = covered(replacing, last)
    while replacing.wishes.wait_millis is not None and found is not None and found.behind:
        if clock.monotonic() >= until:
            break
        replacing.main.runtime.sleeper.sleep(_LOOK_SECONDS)
        found = covered(replacing, last)
    return found


def covered(replacing: Replacing, head: Snapshot | None) -> Covered | None:
    """How far the branch is beside that head of main; None if it is not known."""
    if replacing.wishes.coverage is None:
        return None
    target, fork = replacing.target, replacing.fork
    begun = target.snapshots.find(fork.id)
    return replacing.wishes.coverage(
        replacing.main_since.until(head),
        replacing.target_since.until(target.snapshots.head()),
        begun if begun is not None and begun.stamp == fork.stamp else None,
    )


# The check


def _fork(main: TableContext, target: TableContext) -> SnapshotRef:
    if target.fork is not None:
        return target.fork.snapshot
    return SnapshotRef(
        main.branch_uuid, 0, ""
    )  # another engine made the branch and does not say where it began


def _descent(replacing: Replacing) -> Iterator[Conflict]:
    main, target, fork = replacing.main, replacing.target, replacing.fork
    if not is_in_past(main, fork):
        begun = f"began at snapshot {fork.id}" if fork.id else "was made by another engine"
        yield Conflict(
            "NOT_DESCENDED",
            f"'{target.title}' {begun}, which is not in the history of main as it is now",
            "create a branch from a tag of main and bring its rows there.",
        )


def _foreign_writers(replacing: Replacing, head: Snapshot | None) -> Iterator[Conflict]:
    since = replacing.main_since.until(head)
    foreign = [snapshot for snapshot in since if WRITER_PROPERTY not in snapshot.properties]
    if foreign:
        yield _foreign(replacing.main, foreign)


def _foreign(main: TableContext, snapshots: Sequence[Snapshot]) -> Conflict:
    return Conflict(
        "FOREIGN_WRITER",
        f"another engine committed snapshot {snapshots[-1].id} to main of '{main.name}'; it does not know which branch is "
        "main and would go on with the old one",
        "replace main with the mode 'commit', which every engine understands, or stop that engine.",
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


def moved_from(main: TableContext, head: Snapshot | None, expected: int | None) -> Conflict | None:
    """A conflict if anything was committed to main after the snapshot that was expected, or it is not there."""
    if expected is None:
        return None
    for snapshot in () if head is None else main.snapshots.backwards(head):
        if snapshot.id == expected:
            return None
        if seal_of(snapshot) is None:  # a seal of a replacement that did not come to its end is no commit
            break
    return _moved(main, expected, f"is at {0 if head is None else head.id}")


def _moved(main: TableContext, expected: int, found: str) -> Conflict:
    return Conflict(
        "MAIN_MOVED",
        f"main of '{main.name}' was expected at snapshot {expected} and {found}",
        "look at what was committed, and replace main again with its newest snapshot.",
    )


def refusal(conflicts: Sequence[Conflict]) -> CommitConflictError:
    text = "; ".join(f"{conflict.kind}: {conflict.message}" for conflict in conflicts)
    return CommitConflictError(text, conflicts=tuple(conflicts), hint=conflicts[0].hint)
