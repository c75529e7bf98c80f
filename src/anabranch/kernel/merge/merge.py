"""Merging a branch into main. Crash-safe: can be killed and run again.

1. The merge is planned. If there are conflicts, they are reported and nothing is written.
2. ``MERGE-<k>`` is put if absent: the branch's head B, main's newest snapshot M, the choices. B is a point of the
   fence from here on.
3. B is pinned on the branch by a tag.
4. A snapshot that changes nothing, the fence, is committed to the branch: a compaction that began before the record
   was there collides with it and looks again. One that came in between has not, so then this merge is given up.
5. One snapshot is committed to main under the user ``merge:<branch uuid>`` and the identifier k, planned anew on each
   state that it meets. It brings the merged schema, if that is another.
6. What it made is pinned on main, and ``MERGE-<k>.done`` says which snapshot it is. What was read of both sides is kept
   for the next merge: see `notes`.

A process that finds an unfinished k looks for its snapshot after M. If there is none, it carries out k under the same
identity, if that is the merge it was asked for; else it takes its place with an empty snapshot, so that
a delayed process finds its commit made and stops. So of two merges that race, one puts k, and the other completes that one
and begins again with what is left. History is never deleted or rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from anabranch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.format.records.snapshot import CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base
from anabranch.kernel.commit.gates import check_audited
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.log.ledger import LedgerEntry, find_commit
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.merge_log import MergeLog, merge_log, summarize
from anabranch.kernel.log.merge_pins import pin_head, pin_result
from anabranch.kernel.log.merge_record import MergeEnd, MergeRecord, MergeRequest, put_end, put_record
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.properties import MERGE_PROPERTY, MERGE_USER, MergeFacts, is_marker
from anabranch.kernel.merge.actions import Merge, Nothing, is_only, refuse
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.fence_snapshot import fence_on_top, put_fence
from anabranch.kernel.merge.plan import MERGED_MEANWHILE, MergePlanner, SourceOverlap
from anabranch.kernel.merge.result import MergeResult, merged_partitions
from anabranch.kernel.merge.state import end_of
from anabranch.kernel.provenance.coverage import Origin
from anabranch.kernel.provenance.notes import Notes, find_notes
from anabranch.kernel.provenance.past import past_since

_ROUNDS = 50
"""How often a merge is restarted because others merge the branch, or compact it, at the same time."""


def merge_branch(
    main: TableContext,
    name: str,
    wishes: MergeRequest | None = None,
    *,
    dry_run: bool = False,
    overlap: SourceOverlap | None = None,
    audit: str | bool | None = None,
    origin: Origin | None = None,
) -> MergeResult:
    """Merge a branch's changes since its last merge into main, as one new snapshot. See `Table.merge_branch`.

    Args:
        wishes: what to do where both sides changed a partition.
        overlap: finds events that both sides took from the same sources; None if that is not known.
        audit: which audit the branch must have passed in its current state: the name of its checks, or True for any.
        origin: provides the lineage of the snapshot's rows; None if not known.

    Raises as the method, and:
        CommitOutcomeUnknownError: it is not known whether an earlier merge was made, or this one.
    """
    if main.branch is not None and main.main_generation is None:
        raise InvalidInputError(
            f"branches are merged into main, not into branch '{main.branch}'",
            hint="open the table without naming a branch.",
        )
    with reading(main.storage) as begin:
        # Which branch has the name does not depend on what is main.
        is_same, newest = begin(main.check_same_table), begin(partial(main_of, main))
        opened = begin(partial(open_branch, main, name))
        is_same()
        merging = _Merging(newest(), name, wishes or MergeRequest(), overlap, audit, origin)
        if dry_run:
            return merging.preview(opened())
        for number in range(_ROUNDS):
            try:
                result = merging.attempt(open_branch(merging.main, name) if number else opened())
            except CommitConflictError as error:
                if not is_only(error, MERGED_MEANWHILE):
                    error.conflicts = (*map(MergeConflict.of, error.conflicts),)
                    raise
                continue
            if result is not None:
                return result
    raise CommitRetriesExhaustedError(
        f"merging '{name}' into '{main.title}' was begun {_ROUNDS} times, and others merged or compacted the branch "
        "each time",
        hint="nothing was merged by this call; try again.",
    )


@dataclass
class _Merging:
    """One merge call: rounds that restart whenever others interfere."""

    main: TableContext
    name: str
    wishes: MergeRequest
    overlap: SourceOverlap | None
    audit: str | bool | None = None
    origin: Origin | None = None
    _finished: MergeResult | None = None
    """A merge that this call found begun, and completed."""

    def __post_init__(self) -> None:
        if self.main.branch == self.name:
            raise InvalidInputError(f"branch '{self.name}' is the main branch of '{self.main.name}'")

    def preview(self, branch: TableContext) -> MergeResult:
        """Return what a merge would do now."""
        before, log = _head_of(branch), merge_log(branch)
        head = _not_before(branch, log, before)
        planner = self._planner(branch, head, log, _newest_schema(branch).id)
        plan = planner.plan(_newest(self.main))
        return MergeResult(
            self.name,
            partitions=plan.partitions,
            schema_changes=plan.schema_changes,
            conflicts=(*self._gate(branch, head), *plan.conflicts),
            dry_run=True,
        )

    def attempt(self, branch: TableContext) -> MergeResult | None:
        """Run one round on the branch as it was opened for it; None to start over."""
        main = self.main
        # A merge that is begun between head and log takes the number that the log calls the next one.
        with reading(branch.storage) as begin:
            finding, reading_log = begin(partial(_head_of, branch)), begin(partial(merge_log, branch))
            schemas = [begin(context.schemas.latest) for context in (main, branch)]
            hint = begin(main.snapshots.hinted_id)
            before, log = finding(), reading_log()
            head = _not_before(branch, log, before)
            if self.audit:
                check_audited(branch, head, self.audit)
            if log.under_way:
                for record in log.under_way:
                    self._finished = self._complete(branch, head, log, record) or self._finished
                return None
            # Main's newest after the log, so that the plan notices a merge between the two; its hint is of any age.
            newest = _needed(main, main.snapshots.head(hint=hint()))
            base = Base(main, newest, _not_older(main, schemas[0](), newest))
            schema_id = _not_older(branch, schemas[1](), head).id
            # What the snapshots were read with is what is stored, asked once they were: then commits on just these need
            # not ask again.
            known = _Known(
                (head, begin(partial(branch.schemas.look_again, schema_id))),
                (newest, begin(partial(main.schemas.look_again, base.schema.id))),
            )
            # What the commits of the fence and of the merge are made from, beside the changes that are planned with, and the
            # schema that the branch began with.
            for side, snapshot in ((branch, head), (main, newest)):
                begin(partial(side.manifests.read_list, snapshot.base_manifest_list))
            begin(lambda: branch.schemas.fetch([fork_of(branch).schema_id]))
            planner = self._planner(branch, head, log, schema_id)
            plan = planner.plan(base)
            refuse(plan, self.name)
            if not plan.is_needed:
                return self._finished or MergeResult(self.name)
            record = MergeRecord(
                log.next_number,
                head,
                schema_id,
                _ref(main, base.snapshot),
                self.wishes,
                main.runtime.clock.now_millis(),
            )
            return self._carry_out(branch, record, planner, known) if put_record(branch, record) else None

    def _gate(self, branch: TableContext, head: Snapshot) -> tuple[MergeConflict, ...]:
        """Return the conflicts of the requested audit, if it was not passed."""
        try:
            if self.audit:
                check_audited(branch, head, self.audit)
        except CommitConflictError as error:
            return (*map(MergeConflict.of, error.conflicts),)
        return ()

    def _planner(self, branch: TableContext, head: Snapshot, log: MergeLog, schema_id: int) -> MergePlanner:
        notes = find_notes(branch, log.noted)
        return MergePlanner(
            *(branch, head, log, self.wishes), schema_id=schema_id, overlap=self.overlap, notes=notes
        )

    # Merges that others began

    def _complete(
        self, branch: TableContext, head: Snapshot, log: MergeLog, record: MergeRecord
    ) -> MergeResult | None:
        """Find the outcome of a merge, and complete it. Return its result, if it is the requested one."""
        end = self._end_of(branch, record)
        if end is not None:
            put_end(branch, end)
            return None
        if record.wishes == self.wishes and head.stamp in (
            record.head.stamp,
            fence_on_top(branch, record, head),
        ):
            earlier = {k: r for k, r in log.records.items() if k < record.number}
            planner = self._planner(branch, record.head, replace(log, records=earlier), record.schema_id)
            return self._carry_out(branch, record, planner)
        self._give_up(branch, record)
        return None

    def _end_of(self, branch: TableContext, record: MergeRecord) -> MergeEnd | None:
        """Return how a merge ended; None if it was not made. Raises `CommitOutcomeUnknownError`."""
        head = self.main.snapshots.head()
        past = None if head is None else past_since(self.main, head, self._before(record))
        identity = _identity(branch, record.number)
        for snapshot in () if past is None else past.snapshots:
            if (snapshot.commit_user, snapshot.commit_identifier) == (identity.user, identity.identifier):
                made = end_of(self.main, snapshot)
                if made.snapshot is not None:
                    pin_result(self.main, branch.branch_uuid, record.number, snapshot)
                return made
        if past is None or past.base_is_other:
            # Rolled back for good: whoever was held up cannot commit either.
            return MergeEnd.abandoned(record.number)
        if past.reaches_base:
            return None
        try:
            found = find_commit(self.main, identity, head, self._before(record))
        except CommitOutcomeUnknownError as error:
            raise self._unknown(record, error) from error
        if isinstance(found, LedgerEntry):
            return MergeEnd.expired(record.number, SnapshotRef(self.main.branch_uuid, found.snapshot_id, ""))
        return None

    def _before(self, record: MergeRecord) -> SnapshotRef:
        """Return a snapshot in the history of main that a merge comes after.

        If main was replaced since, that is the one that the merge began on, if both mains have it, and else the last
        one they share: later merges into the old main are not in the new one.
        """
        before = record.main
        if before.branch_uuid == self.main.branch_uuid:
            return before
        uuid = before.branch_uuid
        for pointer in replacements(self.main):
            if pointer.replaced is not None and pointer.replaced.old.uuid == uuid:
                before = min(before, pointer.replaced.fork, key=lambda ref: ref.id)
                uuid = pointer.main.uuid
        return replace(before, branch_uuid=self.main.branch_uuid)

    def _unknown(self, record: MergeRecord, error: CommitOutcomeUnknownError) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(
            f"MERGE_OUTCOME_UNKNOWN: merge {record.number} of branch '{self.name}' was begun after snapshot "
            f"{record.main.id} of '{self.main.title}', and neither the snapshots that are left nor the ledger of expired "
            f"ones tell whether it was made: {error.message}",
            hint="compare the branch with main; then create a branch from a tag of main, and write to that what is "
            "missing.",
        )

    def _give_up(self, branch: TableContext, record: MergeRecord) -> None:
        """Take the place of a merge that was not made."""
        none: frozenset[bytes] = frozenset()
        head = _ref(branch, record.head)
        facts = MergeFacts(branch.branch_uuid, self.name, head, none, none, none, is_ended=True)
        request = CommitRequest(
            Nothing({MERGE_PROPERTY: facts.to_text()}),
            _identity(branch, record.number),
            floor=self._before(record),
        )
        made = commit(self.main, request).snapshot
        if made is not None and made.commit_identifier == record.number:
            put_end(branch, end_of(self.main, made))

    # Carrying it out

    def _carry_out(
        self,
        branch: TableContext,
        record: MergeRecord,
        planner: MergePlanner,
        known: _Known | None = None,
    ) -> MergeResult | None:
        """Steps 3 to 6; None if it was overtaken.

        Args:
            branch: the branch.
            record: the merge.
            planner: plans it.
            known: what it was planned on, if this call has put the record.
        """
        with reading(branch.storage) as begin:
            # To tell what the merge changes of main's schema: so it is asked any time before.
            asking = begin(partial(_newest_schema, self.main))
            # The fence is looked for once the record is there, so that may be beside the tag.
            head = None if known is None else known.of_branch()
            newest = begin(partial(branch.snapshots.head, head))
            is_pinned = pin_head(branch, record, is_new=known is not None)
            if not is_pinned or not put_fence(branch, record, newest, head):
                self._give_up(branch, record)
                return None
            before = asking()
        made = self._commit(branch, record, planner, known)
        if made is None or made.commit_identifier != record.number:
            return None
        if is_marker(made):
            put_end(branch, end_of(self.main, made))
            return None
        notes: Notes | None = None

        def note() -> None:
            nonlocal notes
            notes = planner.notes()

        # The end first where it is one after the other: a merge that has no end is under way, one without notes is done.
        together(partial(self._put_end, branch, record, made), note, at=branch.storage)
        planner.keep_notes(record.number, notes)
        summarize(branch, planner.log)
        changes = tuple(changes_between(before, self.main.schemas.get(made.schema_id)))
        return MergeResult(
            self.name, made, record.number, merged_partitions(self.main, made), schema_changes=changes
        )

    def _put_end(self, branch: TableContext, record: MergeRecord, made: Snapshot) -> None:
        """Pin the result of a merge, and then record how it ended."""
        pin_result(self.main, branch.branch_uuid, record.number, made)
        put_end(branch, end_of(self.main, made))

    def _commit(
        self, branch: TableContext, record: MergeRecord, planner: MergePlanner, known: _Known | None
    ) -> Snapshot | None:
        request = CommitRequest(
            Merge(planner, self.name, self.origin),
            _identity(branch, record.number),
            floor=self._before(record),
        )
        head = None if known is None else known.of_main()
        return commit(self.main, request, known_head=head).snapshot


@dataclass(frozen=True)
class _Known:
    """The newest snapshot of both sides, each with whether the schema read with it was stored when it had been read.

    A backup from before that schema, put back meanwhile, does not have that snapshot, or has the schema as well.
    """

    branch: tuple[Snapshot, Callable[[], bool]]
    main: tuple[Snapshot, Callable[[], bool]]

    def of_branch(self) -> Snapshot | None:
        """The branch's snapshot, if the schema is what is stored."""
        snapshot, is_stored = self.branch
        return snapshot if is_stored() else None

    def of_main(self) -> Snapshot | None:
        """Main's snapshot, if the schema is what is stored."""
        snapshot, is_stored = self.main
        return snapshot if is_stored() else None


def _head_of(branch: TableContext) -> Snapshot:
    fork_of(branch)
    head = branch.snapshots.head()
    if head is None:
        raise NotFoundError(
            f"branch '{branch.branch}' of '{branch.name}' has no snapshots: its creation was not finished",
            hint="create it again, from the same tag.",
        )
    return head


def _not_before(branch: TableContext, log: MergeLog, head: Snapshot) -> Snapshot:
    """Return a head that was read with the log, or the newest if others have merged what came after it.

    Only of a head that is read after the records it can be said that what was merged is not in its history any more.
    """
    later = [r for r in log.records.values() if r.head.id >= head.id and r.head.stamp != head.stamp]
    return _head_of(branch) if later else head


def _identity(branch: TableContext, number: int) -> CommitIdentity:
    return CommitIdentity(f"{MERGE_USER}{branch.branch_uuid}", number)


def _ref(context: TableContext, snapshot: Snapshot | None) -> SnapshotRef:
    if snapshot is None:
        return SnapshotRef(context.branch_uuid, 0, "")
    return SnapshotRef(context.branch_uuid, snapshot.id, snapshot.stamp)


def _newest(main: TableContext) -> Base:
    return Base(main, _needed(main, main.snapshots.head()), _newest_schema(main))


def _needed(main: TableContext, head: Snapshot | None) -> Snapshot:
    if head is None:
        raise NotFoundError(
            f"'{main.title}' has no snapshots any more, not even the one that the branch began with",
            hint="put the branch in the place of main.",
        )
    return head


def _not_older(context: TableContext, schema: TableSchema | None, head: Snapshot) -> TableSchema:
    """Return a schema that was the newest a moment ago, or the newest: at least that of the snapshot."""
    is_as_new = schema is not None and schema.id >= head.schema_id
    return schema if schema is not None and is_as_new else _newest_schema(context)


def _newest_schema(context: TableContext) -> TableSchema:
    schema = context.schemas.latest()
    if schema is None:
        raise NotFoundError(f"'{context.title}' does not exist: there is no schema")
    return schema
