"""Plans the merge of a branch on a given state of main: applies the case table (`merge_cases`) to every partition.

Compacting a partition counts as nothing. A person may resolve conflicts: ``ours`` leaves main's files, ``theirs``
replaces them by the branch's. All conflicts are found at once, and a dry run shows exactly what a merge does, since
both are planned here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import ManifestEntry
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base
from anabranch.kernel.log.commits import with_expired
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.log.merge_log import MergeLog
from anabranch.kernel.log.merge_record import Choice, MergeRequest
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.properties import MERGE_USER, MergeFacts
from anabranch.kernel.merge.branch_side import BranchSide
from anabranch.kernel.merge.cases import Case, conflict_of
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.entries import SCHEMA_REWRITE_NEEDED, MergeEntries, Share
from anabranch.kernel.merge.schema import MergedSchema, merge_schemas
from anabranch.kernel.merge.state import MergeState, descent_conflict, merge_state
from anabranch.kernel.provenance.births import Births
from anabranch.kernel.provenance.classify import ChangeKind, MarksReader
from anabranch.kernel.provenance.coverage import Origin
from anabranch.kernel.provenance.foreign import merged_in
from anabranch.kernel.provenance.notes import Notes, keep_notes, made_notes
from anabranch.kernel.provenance.past import Past, after, counting_of, past_since
from anabranch.kernel.provenance.sides import Side


@dataclass(frozen=True, slots=True)
class Commits:
    """What was done on a branch after one of its snapshots."""

    context: TableContext
    after: int
    """Id of that snapshot."""
    left: Sequence[Snapshot]
    """What has not expired of it, or is noted; oldest first and without gap."""


class SourceOverlap(Protocol):
    """Finds events that both sides took from the same sources."""

    def __call__(self, main: Commits, branch: Commits, /, *, besides: str) -> Sequence[MergeConflict]:
        """Return a conflict for each source: of main's commits those of one user do not count."""


MERGED_MEANWHILE: Final = "MERGED_MEANWHILE"
"""Kind of the conflict for a concurrent merge of the same branch: the caller starts over."""


class Outcome(StrEnum):
    """Outcome for a partition."""

    ADDED = "added"
    """Main's files stay, the branch's new ones are added."""
    REPLACED = "replaced"
    """The branch's files replace main's."""
    KEPT = "kept"
    """Main's files stay, and the branch's changes are ignored, by choice."""


@dataclass(frozen=True, slots=True)
class MergedPartition:
    """Result of a merge in one partition."""

    partition: str
    """Its folder name."""
    outcome: Outcome
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    chosen: Choice | None = None
    """A person's choice, where both sides had changed it."""


@dataclass(frozen=True)
class MergePlan:
    """Result of planning a merge on one state of main."""

    conflicts: tuple[MergeConflict, ...] = ()
    """If there are any, the other fields are empty."""
    partitions: tuple[MergedPartition, ...] = ()
    """Partitions with changes, or left as they are by choice."""
    entries: tuple[ManifestEntry, ...] = ()
    facts: MergeFacts | None = None
    """Merge metadata for the snapshot."""
    schema: MergedSchema | None = None
    adds_again: bool = False
    """Whether some of the files may have been main's before."""
    watermark: int | None = None
    """The branch's watermark, if main did nothing of its own and so will equal the branch."""
    taken: SnapshotRef | None = None
    """The snapshot of the branch up to which main has it already."""
    commits: tuple[Snapshot, ...] = ()
    """The branch's retained and effective commits after that one, oldest first."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to merge."""
        return bool(self.partitions) or bool(self.schema_changes)

    @property
    def schema_changes(self) -> tuple[str, ...]:
        """Changes of main's schema, in words."""
        return () if self.schema is None else tuple(self.schema.changes)


_NO_SHARE = Share()


@dataclass(frozen=True, slots=True)
class _Settled:
    """A case with its outcome and choice."""

    case: Case
    outcome: Outcome
    chosen: Choice | None = None
    share: Share = _NO_SHARE


class MergePlanner:
    """Plans the merge of one snapshot of a branch, on successive states of main."""

    def __init__(
        self,
        branch: TableContext,
        head: Snapshot,
        log: MergeLog,
        wishes: MergeRequest,
        *,
        schema_id: int,
        overlap: SourceOverlap | None = None,
        notes: Notes | None = None,
    ) -> None:
        """Initialize without reading anything.

        Args:
            head: its snapshot to merge.
            log: its merges before this one.
            wishes: the choices where both sides changed a partition.
            overlap: finds events that both sides have; None if not known.
            notes: what an earlier merge of the branch found.
        """
        self._branch = branch
        self._fork = fork_of(branch)
        self._head = head
        self.log = log
        """The merges of the branch before this one."""
        self._wishes = wishes
        self._schema_id = schema_id
        self._overlap = overlap
        self._notes = notes or Notes()
        self._side = BranchSide(branch, head, log, self._notes)
        self._main: Past | None = self._notes.of_main
        self._on: TableContext | None = None
        self._marks: MarksReader | None = None
        self._last: tuple[tuple[TableContext, str, TableSchema], MergePlan] | None = None
        """The state of main that was planned on last, and the plan."""

    def origin_of(self, plan: MergePlan, origin: Origin) -> Mapping[str, str]:
        """Return the lineage properties of a merge's snapshot; empty if it adds no files."""
        if plan.taken is None or not plan.entries:
            return {}
        return origin(self._branch, plan.taken, self._head, plan.commits)

    def notes(self) -> Notes | None:
        """Return what was found, for the next merge of the branch; None if that is not much, or cannot be read."""
        if self._main is None or self._on is None:
            return None
        files = self._side.files
        with suppress(AnabranchError):
            return made_notes(
                self._branch, self._notes, main=self._on, past=self._main, own=files.past, born=files.born
            )
        return None

    def keep_notes(self, number: int, notes: Notes | None) -> None:
        """Keep what was found, once merge `number` is done. It is no loss if it fails."""
        if notes is not None:
            with suppress(AnabranchError):
                keep_notes(self._branch, number, notes, replaces=self.log.noted)

    def plan(self, base: Base) -> MergePlan:
        """Plan the merge on a state of main.

        Raises:
            CorruptTableError: something cannot be read; if the base has expired meanwhile, this is how it shows.
            UnsupportedFeatureError: one side uses an unsupported feature.
        """
        assert base.snapshot is not None, "main has the snapshot that the branch began with"
        if self._marks is None or self._on != base.context:
            self._on, self._marks = base.context, MarksReader(base.context, self._notes.marks)
        state = (base.context, base.snapshot.stamp, base.schema)
        if self._last is not None and self._last[0] == state:
            return self._last[1]  # nothing that is planned with has changed
        with reading(base.context.storage) as begin:
            plan = self._plan(base, base.snapshot, begin(lambda: self._side.files.born))
        self._last = state, plan
        return plan

    def _plan(self, base: Base, newest: Snapshot, born: Callable[[], Births]) -> MergePlan:
        self._main = past_since(base.context, newest, self._fork.snapshot, known=self._main, deltas=True)
        found = merge_state(base.context, self._main, self._branch, self.log, born(), marks_by=self._marks)
        if found is None:
            return MergePlan((_merged_meanwhile(self._branch.title),))
        refusal = descent_conflict(base.context, self._branch, found)
        for taken in (found.taken, *found.unsure):
            refusal = refusal or self._side.rewritten(taken)
        if refusal is not None:
            return MergePlan((refusal,))
        theirs = self._side.since(found.taken)
        schema = merge_schemas(
            self._branch.schemas.get(found.taken_schema),
            base.schema,
            self._branch.schemas.get(self._schema_id),
        )
        cases = self._side.cases(found, base.schema)
        overlaps = self._overlaps(found, theirs)
        if not isinstance(schema, MergedSchema):
            _, conflicts = self._settle(base, cases, base.schema)
            # The files that must be rewritten are only known once the merged columns are.
            apart = [conflict for conflict in conflicts if conflict.kind != SCHEMA_REWRITE_NEEDED]
            return MergePlan((*schema, *overlaps, *apart))
        settled, conflicts = self._settle(base, cases, schema.schema)
        conflicts = [*overlaps, *conflicts]
        if conflicts:
            return MergePlan(tuple(conflicts))
        commits = after(theirs.left, found.taken.id)
        along: Mapping[str, int] = {}
        if base.context.main_generation:  # else the branch was never main
            along = merged_in(with_expired(self._branch, commits, found.taken.id))
        whole = self._whole(base, found, schema, settled, along)
        return replace(whole, taken=found.taken, commits=tuple(counting_of(self._branch, commits)))

    def _settle(
        self, base: Base, cases: Sequence[Case], merged: TableSchema
    ) -> tuple[list[_Settled], list[MergeConflict]]:
        """Return the outcome of each partition, and the conflicts without a choice."""
        conflicts: list[MergeConflict] = []
        settled: list[_Settled] = []
        overwritten = frozenset(
            case.key
            for case in cases
            if case.theirs.work == ChangeKind.OVERWRITTEN or self._wishes.of(case.text) == Choice.THEIRS
        )
        entries = MergeEntries(base, self._branch, self._side.files, merged, overwritten)
        for case in cases:
            done = self._settled(case, entries)
            if isinstance(done, MergeConflict):
                conflicts.append(done)
            elif done is not None:
                settled.append(done)
        return settled, conflicts

    def _settled(self, case: Case, entries: MergeEntries) -> _Settled | MergeConflict | None:
        is_overwritten = case.theirs.work == ChangeKind.OVERWRITTEN
        if is_overwritten and entries.is_empty_on_both(case.key):
            return None
        conflict = conflict_of(case, self._branch.title)
        wish = self._wishes.of(case.text)
        if conflict is not None:
            if wish is None:
                return conflict
            if wish == Choice.OURS:
                return _Settled(case, Outcome.KEPT, wish)
        share: Share | MergeConflict
        if conflict is not None or is_overwritten:
            outcome, share = Outcome.REPLACED, entries.replacing(case.key, case.text)
        elif case.young.new:
            outcome, share = Outcome.ADDED, entries.adding(case.key, case.text, case.young.new)
        else:
            return None
        if isinstance(share, MergeConflict):
            return _Settled(case, Outcome.KEPT, wish) if wish == Choice.OURS else share
        return _Settled(case, outcome, None if conflict is None else wish, share)

    def _overlaps(self, found: MergeState, theirs: Side) -> list[MergeConflict]:
        """Find events that main has already, by the records of what was read from the sources."""
        if self._overlap is None or self._wishes.allow_source_overlap:
            return []
        user = f"{MERGE_USER}{self._fork.branch_uuid}"
        main = Commits(found.main.context, self._fork.snapshot.id, found.main.left)
        taken = found.taken.id
        branch = Commits(self._branch, taken, after(theirs.left, taken))
        return [*self._overlap(main, branch, besides=user)]

    def _whole(
        self,
        base: Base,
        found: MergeState,
        schema: MergedSchema,
        settled: Sequence[_Settled],
        along: Mapping[str, int],
    ) -> MergePlan:
        entries = MergeEntries(base, self._branch, self._side.files, schema.schema, frozenset())
        added = [entry.file.file_name for one in settled for entry in one.share.added]
        landed = [self._fork.snapshot.id]
        landed += [
            record.head.id
            for number, record in self.log.records.items()
            if number not in self.log.ends or self.log.ends[number].snapshot is not None
        ]
        born, newest = self._side.files.born, max(landed)
        return MergePlan(
            partitions=tuple(_told(one) for one in settled),
            entries=tuple(entries.together(one.share for one in settled)),
            facts=MergeFacts(
                self._fork.branch_uuid,
                self._fork.name,
                SnapshotRef(self._fork.branch_uuid, self._head.id, self._head.stamp),
                replaced=_rows(settled, outcome=Outcome.REPLACED),
                theirs=_rows(settled, chosen=Choice.THEIRS),
                ours=_rows(settled, chosen=Choice.OURS),
                is_ended=False,
                along=along,
            ),
            schema=schema,
            adds_again=any(not born.of(name).is_after(newest) for name in added),
            watermark=self._head.watermark if _is_all_of_main(found, settled) else None,
        )


def _merged_meanwhile(branch: str) -> MergeConflict:
    return MergeConflict(
        MERGED_MEANWHILE, f"'{branch}' was merged by somebody else at the same time", "merge it again."
    )


def _is_all_of_main(found: MergeState, settled: Sequence[_Settled]) -> bool:
    """Whether main will contain exactly what the branch does."""
    span = found.main.span
    is_still = found.main.gap_until is None and (span is None or not (span.marks or span.wide))
    return is_still and not any(one.outcome == Outcome.KEPT for one in settled)


def _told(one: _Settled) -> MergedPartition:
    added, removed = one.share.added, one.share.removed
    return MergedPartition(
        one.case.text,
        one.outcome,
        len(added),
        len(removed),
        sum(entry.file.row_count for entry in added),
        sum(entry.file.row_count for entry in removed),
        one.chosen,
    )


def _rows(
    settled: Sequence[_Settled], *, outcome: Outcome | None = None, chosen: Choice | None = None
) -> frozenset[bytes]:
    return frozenset(
        one.case.row for one in settled if one.outcome == outcome or (chosen and one.chosen == chosen)
    )
