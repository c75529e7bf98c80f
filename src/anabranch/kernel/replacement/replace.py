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

from dataclasses import dataclass
from typing import Final

from anabranch.errors import AnabranchError, CommitOutcomeUnknownError, SealedBranchError, StorageError
from anabranch.kernel.branches.audit_log import check_audited
from anabranch.kernel.branches.delete import is_being_deleted
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.identity import CommitIdentity
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.context import TableContext
from anabranch.kernel.properties import SEAL_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.replacement.catch_up import catch_up, covered, last_catch_up
from anabranch.kernel.replacement.check import check, foreign, moved, moved_from, refusal
from anabranch.kernel.replacement.copy_history import CopiedPast, copy_past, copy_refs, drop_stale
from anabranch.kernel.replacement.main import main_of
from anabranch.kernel.replacement.pointer import find_pointer, put_pointer, put_seal
from anabranch.kernel.replacement.release import take_back
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.kernel.replacement.seal import decision, stay
from anabranch.kernel.replacement.wishes import Replacement, Replacing
from anabranch.options import BRANCH_SEAL_TIMEOUT
from anabranch.spec.main_pointer import HINT_FILE, BranchRef, MainPointer, Replaced, Seal
from anabranch.spec.snapshot import CommitKind, Snapshot
from anabranch.spec.snapshot_ref import SnapshotRef

_REQUESTS: Final = 3


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
            raise refusal([moved(main, expected, "was replaced meanwhile")])
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
        conflict = moved_from(base.context, base.snapshot, self.expected)
        return conflict or Change(CommitKind.COMPACT, [], {SEAL_PROPERTY: str(self.generation)})


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
    found = last_catch_up(replacing, last, seal)
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
        raise refusal([foreign(main, [on_top])])
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
