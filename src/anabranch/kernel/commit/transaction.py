"""The commit loop: prepare on the newest base, claim the next number, or try again.

One put-if-absent of ``snapshot-<n>`` is the commit. Losing that race is expected: the action is replayed
on the newer base under the same identity. The steps and guarantees of a commit:

1. The base is read, and a streaming identity that committed before ends the call with that commit.
2. Manifests and lists are stored, durably, under names nobody else uses.
3. A version of the schema that the change brings is put: see `brought_schema`.
4. The snapshot is put if absent. From here on the commit is visible, or it never will be.
   Where it took so long to come here that its files may have been cleaned away, they are looked for before and after.
5. The snapshot it builds on must still be there, under the same stamp. If an expiry or a drop overtook a
   paused writer, its number may have been free only because history moved on; such a snapshot is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
    SealedBranchError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.snapshot import CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.attempt import Attempts
from anabranch.kernel.commit.base import Action, Base, Change, Conflict
from anabranch.kernel.commit.conflicts import file_conflict, identity_conflict, stored_schema_conflict
from anabranch.kernel.commit.in_history import stays_in_history
from anabranch.kernel.commit.leftovers import displace, withdraw
from anabranch.kernel.commit.presence import (
    brought_back,
    is_late_rollback,
    lost_conflict,
    lost_files_of,
    take_back,
)
from anabranch.kernel.commit.watermark import Claim
from anabranch.kernel.log.branch_log import check_still_there
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import LedgerEntry, find_commit
from anabranch.kernel.log.lost_pointers import check_snapshot_writable
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.seals import check_open
from anabranch.options import COMMIT_MAX_RETRIES, COMMIT_MAX_RETRY_WAIT, COMMIT_MIN_RETRY_WAIT, COMMIT_TIMEOUT

_FRESH_MILLIS: Final = 2_000

_BEING_TAKEN_BACK: Final = (
    "snapshot {}, a rollback that died, lacks files and is being taken back; where it stays, whoever did so died too: "
    "roll back to {} with 'destructive'"
)

NOT_PUBLISHED = (
    *(CommitConflictError, CommitRetriesExhaustedError, SealedBranchError),
    *(CorruptTableError, InvalidInputError, NotFoundError, UnsupportedFeatureError),
)
"""After these errors the commit can never become visible, so its files may be removed."""


@dataclass(frozen=True)
class CommitRequest:
    """A change to commit, with its identity and metadata."""

    action: Action
    identity: CommitIdentity
    properties: Mapping[str, str] = field(default_factory=dict)
    watermark: Claim = None
    """Event-time watermark in epoch milliseconds, or the progress of its sources; a table's never goes back."""
    floor: SnapshotRef | None = None
    """A snapshot known to be older than this commit, where the search for a repetition may stop."""
    pin: str | None = None
    """Path of the tag that holds the files which the commit brings back."""


@dataclass(frozen=True, slots=True)
class SeenHead:
    """The newest snapshot and schema of a branch as its writer found them a moment ago, beside its other work.

    An attempt on them is one of a writer that was slow between reading its base and going on. Which is always possible:
    where anything came in between, the put of the snapshot or the look at its parent finds it.
    """

    head: Snapshot | None
    schema: TableSchema | None
    millis: int
    """When the search for them began."""

    def is_fresh(self, now_millis: int) -> bool:
        """Whether so little time has passed that an attempt on them is worth it."""
        return 0 <= now_millis - self.millis <= _FRESH_MILLIS


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that is part of the table's history."""

    snapshot: Snapshot | None
    """None if the commit was made earlier and has expired since."""
    repeated: bool
    """Whether it had been committed before this call."""


@dataclass
class _Patience:
    """Retry budget: rounds without progress by anyone count, lost races do not."""

    context: TableContext
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        self._idle_rounds = 0
        self._rounds = 0
        self._started = self.context.runtime.clock.monotonic()

    def wait(self, *, progress: bool, reason: str) -> None:
        """Wait before another round. Raises `CommitRetriesExhaustedError` when the budget is used up."""
        self._rounds += 1
        self._idle_rounds = 0 if progress else self._idle_rounds + 1
        limit = COMMIT_MAX_RETRIES.of(self.options)
        timeout = COMMIT_TIMEOUT.of(self.options)
        elapsed = (self.context.runtime.clock.monotonic() - self._started) * 1000
        if self._idle_rounds > limit or (timeout is not None and elapsed > timeout):
            raise CommitRetriesExhaustedError(
                f"commit to '{self.context.title}' gave up after {self._rounds} rounds and {elapsed:.0f} ms: {reason}",
                hint="nothing was published; try again, or raise commit.max-retries or commit.timeout.",
            )
        longest = COMMIT_MAX_RETRY_WAIT.of(self.options)
        # Where others make progress, a short jittered wait is enough; where nobody does, back off.
        exponent = min(self._rounds, 4) if progress else min(self._idle_rounds, 10)
        ceiling = min(COMMIT_MIN_RETRY_WAIT.of(self.options) * 2**exponent, longest)
        self.context.runtime.sleeper.sleep(ceiling * self.context.runtime.ids.jitter() / 1000)


def commit(
    context: TableContext,
    request: CommitRequest,
    *,
    known_head: Snapshot | None = None,
    seen: SeenHead | None = None,
) -> Committed:
    """Commit the change exactly once.

    Args:
        known_head: a snapshot seen before, where the search for the newest begins.
        seen: what was the newest a moment ago, for the first attempt; None to look.

    Raises:
        CommitConflictError: the change cannot be made on what is there now; nothing was published.
        SealedBranchError: the branch was main and was replaced by another; nothing was published.
        NotFoundError: the table no longer exists; nothing was published.
        CommitRetriesExhaustedError: the retry budget ran out; nothing was published.
        CommitOutcomeUnknownError: the store did not say whether it happened; delete nothing.
        UnsupportedFeatureError: the table uses a feature that must not be written to.
    """
    attempts = Attempts(context, request.identity, request.properties, request.watermark, request.pin)
    try:
        return _commit(context, request, attempts, known_head, seen)
    finally:
        attempts.give_up()


def _commit(
    context: TableContext,
    request: CommitRequest,
    attempts: Attempts,
    known: Snapshot | None,
    seen: SeenHead | None,
) -> Committed:
    patience: _Patience | None = None
    head = known
    while True:
        if seen is not None and seen.is_fresh(context.runtime.clock.now_millis()):
            head = seen.head
            base = _base(context, head, known, seen.schema)
        else:
            with reading(context.storage) as begin:
                newest = begin(partial(context.snapshots.head, head, strict=True))
                schema = begin(context.schemas.latest)
                head = newest()
                base = _base(context, head, known, schema())
        seen = None
        made = find_commit(context, request.identity, head, request.floor)
        if made is not None:
            snapshot = _snapshot_of(context, made)
            if snapshot is None or not _took_back(context, request.identity, snapshot):
                attempts.is_published = True  # by somebody else, who may have built on versions put here
                return Committed(snapshot, repeated=True)
            head = None
            continue
        if head is not None and is_late_rollback(context, head):
            if not take_back(context, head):
                patience = patience or _Patience(context, base.schema.options)
                patience.wait(progress=False, reason=_BEING_TAKEN_BACK.format(head.id, head.id - 1))
            head = None
            continue
        snapshot = _prepared(base, request.action, attempts)
        if snapshot is not None:
            _check_present(context, attempts)
        if snapshot is not None and not attempts.put_schemas():
            patience = patience or _Patience(context, base.schema.options)
            patience.wait(progress=True, reason="another writer changed the schema")
            continue
        if snapshot is not None and _publish(context, snapshot, head, attempts):
            _check_still_present(context, snapshot, attempts)
            attempts.published()
            context.snapshots.published(snapshot)
            return Committed(snapshot, repeated=False)
        following = None if head is None else _following(context, head)
        if following is None and head is not None and displace(context, head) is not None:
            continue
        # What is newest is looked for after the wait, from here on.
        found = following or context.snapshots.head(head)
        progress = found is not None and (head is None or found.id > head.id)
        patience = patience or _Patience(context, base.schema.options)
        taken = 1 if head is None else head.id + 1
        patience.wait(progress=progress, reason=f"another writer took snapshot {taken}")
        head = found


def _following(context: TableContext, head: Snapshot) -> Snapshot | None:
    """Return the snapshot that another writer put on top of the base; None if there is none, or it is a leftover."""
    found = context.snapshots.find(head.id + 1)
    if found is None or not context.snapshots.follows(head, found):
        return None
    # The base may have been rolled back before, and the writer not yet have looked.
    return found if context.snapshots.still(head) is not None else None


def _base(
    context: TableContext, head: Snapshot | None, known: Snapshot | None, schema: TableSchema | None
) -> Base:
    """Return the base of an attempt, checked; `schema` is the newest as found beside the newest snapshot."""
    if schema is not None and head is not None and head.schema_id > schema.id:
        schema = context.schemas.latest()  # it was found before the snapshot was committed
    if schema is None:
        raise NotFoundError(
            f"table '{context.title}' does not exist: there is no schema in {context.storage.url}",
            hint="`tables` lists those there are.",
        )
    base = Base(context, head, schema)
    replaced = identity_conflict(base)
    # A backup put back with this very snapshot has the version of the schema that the snapshot names.
    is_as_known = (
        head is not None and known is not None and head.stamp == known.stamp and head.schema_id == schema.id
    )
    if replaced is None and not is_as_known:
        replaced = stored_schema_conflict(base, {schema.id})
    if replaced is not None:
        check_still_there(context)  # a branch that was deleted has no schemas either
        raise _refusal(replaced)
    check_writable(schema, path=context.layout.schema_path(schema.id))
    check_open(context, head)
    if head is not None:
        check_snapshot_writable(context, head)
    elif context.fork is not None:
        check_still_there(context)
        raise CorruptTableError(
            f"branch '{context.branch}' of '{context.name}' has no snapshot, not even the one it began with",
            path=context.layout.snapshot_path(context.fork.snapshot.id),
            hint="somebody deleted it, or it is being created. `repair` looks for what is left of it.",
        )
    return base


def _prepared(base: Base, action: Action, attempts: Attempts) -> Snapshot | None:
    """Return the snapshot to publish; None if the base expired while it was read, or can be read only now."""
    try:
        return attempts.prepare(base, _change_on(base, action), reuse_delta=not action.depends_on_base)
    except CorruptTableError as error:
        if base.snapshot is None:
            raise
        is_there = base.context.snapshots.still(base.snapshot) is not None
        if is_there and not brought_back(base.context, base.snapshot, error.path):
            raise
        return None


def _change_on(base: Base, action: Action) -> Change:
    outcome = action.on(base)
    if isinstance(outcome, Change):
        outcome = file_conflict(base, outcome) or outcome
    if isinstance(outcome, Conflict):
        raise _refusal(outcome)
    return outcome


def _refusal(conflict: Conflict) -> CommitConflictError:
    return CommitConflictError(
        f"{conflict.kind}: {conflict.message}", conflicts=(conflict,), hint=conflict.hint
    )


def _publish(context: TableContext, snapshot: Snapshot, head: Snapshot | None, attempts: Attempts) -> bool:
    """Claim the snapshot's number; False if another writer has it. Raises `CommitOutcomeUnknownError`."""
    attempts.in_doubt = True
    try:
        won = context.storage.put_if_absent(context.layout.snapshot_path(snapshot.id), snapshot.to_json())
    except StorageError as error:
        attempts.in_doubt = error.outcome_unknown
        if not error.outcome_unknown:
            raise
        raise _unknown_outcome(context, snapshot, error) from error
    if won:
        attempts.shown()
        try:
            won = stays_in_history(context, snapshot, head)
            if not won:
                withdraw(context, snapshot)
        except CommitOutcomeUnknownError:
            raise
        except AnabranchError as error:  # it is stored, and what keeps us from judging it does not matter
            raise _unknown_outcome(context, snapshot, error) from error
    attempts.in_doubt = False
    return won


def _check_present(context: TableContext, attempts: Attempts) -> None:
    """Raise `CommitConflictError` if files of the attempt were cleaned away. Checks only old ones."""
    lost, total = attempts.lost_files()
    if lost:
        raise _refusal(lost_conflict(context, lost, total))


def _check_still_present(context: TableContext, snapshot: Snapshot, attempts: Attempts) -> None:
    """Check as `_check_present` after the snapshot was put; take it back if files are lost, unless others built on it.

    Raises `CommitConflictError`, `CommitOutcomeUnknownError`.
    """
    attempts.in_doubt = True
    try:
        lost, total = attempts.lost_files()
        is_taken_back = bool(lost) and take_back(context, snapshot)
    except AnabranchError as error:
        raise _unknown_outcome(context, snapshot, error) from error
    if lost:
        refusal = _refusal(lost_conflict(context, lost, total))
        if not is_taken_back:
            raise _unknown_outcome(context, snapshot, refusal)
        attempts.in_doubt = False
        raise refusal
    attempts.in_doubt = False


def _took_back(context: TableContext, identity: CommitIdentity, made: Snapshot) -> bool:
    """Whether an earlier commit lacked files that were cleaned away before it, and was taken back.

    Raises `CommitConflictError` if others have built on it.
    """
    if made.commit_identifier != identity.identifier:
        return False  # later commits followed, so it was checked then
    lost, total = lost_files_of(context, made)
    if not lost or context.snapshots.find(made.id) is None:
        return False  # all files exist, or it is just expiring
    if not take_back(context, made):
        raise _refusal(lost_conflict(context, lost, total))
    return True


def _unknown_outcome(
    context: TableContext, snapshot: Snapshot, error: AnabranchError
) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"it is not known whether snapshot {snapshot.id} of '{context.title}' was committed: {error.message}",
        hint=f"look for commit user {snapshot.commit_user} among the table's snapshots before writing again.",
    )


def _snapshot_of(context: TableContext, made: Snapshot | LedgerEntry) -> Snapshot | None:
    return made if isinstance(made, Snapshot) else context.snapshots.find(made.snapshot_id)
