"""Merge state of a branch relative to main: what main has of it, and what the branch knows of main.

Nothing of this is stored. It is derived from the records of merges whose snapshots are in main's
current history, so that after a rollback past a merge the branch's rows can be merged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of, fork_snapshot
from anabranch.kernel.log.main_branch import is_in_past
from anabranch.kernel.log.merge_log import MergeLog, check_begun
from anabranch.kernel.log.merge_record import MergeEnd
from anabranch.kernel.log.properties import merge_facts
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.provenance.births import Births, live_names
from anabranch.kernel.provenance.classify import MarksReader, MergeMade
from anabranch.kernel.provenance.past import Past, counting, rolled_back_to
from anabranch.kernel.provenance.sides import Names, Side, keyed, live_names_of, side_of
from anabranch.kernel.scan.partitions import PartitionKey


@dataclass(frozen=True)
class MergeState:
    """Merge state of a branch relative to one snapshot of main."""

    main: Side
    """Main's changes since the fork."""
    merges: Mapping[int, MergeEnd]
    """The merges that main contains, by number, ascending."""
    taken: SnapshotRef
    """The snapshot of the branch up to which main has it."""
    taken_schema: int
    """The branch's schema that main has: a rollback leaves the schema as it is."""
    unsure: tuple[SnapshotRef, ...] = ()
    """Branch snapshots taken by merges of which it is uncertain whether main still contains them."""

    def seen(self, schema: TableSchema) -> dict[PartitionKey, int]:
        """Return main's newest snapshot id known to the branch, for partitions where it is later than the fork."""
        return {
            key: end.snapshot.id
            for end in self.merges.values()
            if end.snapshot is not None
            for key, _ in (keyed(end.theirs, schema) if end.theirs else ())
        }


def merge_state(
    main: TableContext,
    past: Past,
    branch: TableContext,
    log: MergeLog,
    born: Births,
    *,
    marks_by: MarksReader | None = None,
) -> MergeState | None:
    """Compute the merge state of a branch; None if the log of its merges is older than that state of main.

    Args:
        past: its remaining or noted snapshots since the fork.
        born: births of the branch's files.
        marks_by: reader that knows the changes of some of main's snapshots.

    Raises `CorruptTableError` if something cannot be read.
    """
    fork = fork_of(branch)
    if not (past.reaches_base or past.base_is_other or is_in_past(main, fork.snapshot)):
        past = replace(past, base_is_other=True)  # it is not expired: this main never had it
    side = side_of(main, branch, past, fork.snapshot, marks_by=marks_by)
    merges = {made.number: _end_of(side, log, made) for made in side.merges}
    unsure: list[SnapshotRef] = []
    for number, end in log.ends.items():
        if number in merges or not _may_be_in_gap(side, end, fork.snapshot.id) or _is_undone(side, end):
            continue
        if _left_something(side, log, number, born):
            merges[number] = end
        elif number in log.records:
            unsure.append(_head_of(log, number, fork.branch_uuid))
    for number in merges:
        if number not in log.records:
            check_begun(branch, number)
            return None
    ever = [n for n, end in log.ends.items() if end.snapshot and end.snapshot.branch_uuid == main.branch_uuid]
    schema_of = max([n for n in [*merges, *ever] if n in log.records], default=None)
    taken = fork.snapshot
    if merges:
        taken = _head_of(log, max(merges), fork.branch_uuid)
    return MergeState(
        side,
        dict(sorted(merges.items())),
        taken,
        fork.schema_id if schema_of is None else log.records[schema_of].schema_id,
        tuple(unsure),
    )


def _head_of(log: MergeLog, number: int, branch_uuid: str) -> SnapshotRef:
    head = log.records[number].head
    return SnapshotRef(branch_uuid, head.id, head.stamp)


def descent_conflict(main: TableContext, branch: TableContext, found: MergeState) -> MergeConflict | None:
    """Return a conflict if the branch's fork snapshot is not in the past of main."""
    if not found.main.is_other:
        return None
    fork = fork_of(branch)
    return MergeConflict(
        "NOT_DESCENDED",
        f"'{branch.title}' began with snapshot {fork.snapshot.id} ('{fork.tag}'), which is not in the history of "
        f"'{main.title}': main was rolled back for good, or replaced, since",
        "create a branch from a tag of today's main and write the rows to it; or put the branch in main's place.",
        snapshots=(fork.snapshot.id,),
    )


def before_gap(found: MergeState, branch: TableContext, log: MergeLog, schema: TableSchema) -> Names:
    """Return main's files per partition as they were before a gap of unknown changes; empty without a gap."""
    until = found.main.gap_until
    if until is None:
        return {}
    begun = fork_snapshot(branch, found.main.context)
    files = {} if begun is None else dict(live_names_of(branch, begun, schema))
    for number, end in found.merges.items():
        if end.snapshot is None or end.snapshot.id > until.id:
            continue
        taken = live_names_of(branch, log.records[number].head, schema) if end.replaced else {}
        for key, _ in keyed(end.replaced, schema):
            files[key] = taken.get(key, frozenset())
    return files


def end_of(main: TableContext, made: Snapshot) -> MergeEnd:
    """Return how a merge ended, from its snapshot on main, or from the one that only marks its end."""
    facts = merge_facts(made)
    number = made.commit_identifier
    if facts.is_ended:
        return MergeEnd.abandoned(number)
    ref = SnapshotRef(main.branch_uuid, made.id, made.stamp)
    return MergeEnd(number, ref, facts.replaced, facts.theirs)


def _end_of(side: Side, log: MergeLog, made: MergeMade) -> MergeEnd:
    """Return how a merge in main's history ended, even if that is not recorded yet."""
    end = log.ends.get(made.number)
    if end is not None:
        return end
    snapshot = next((s for s in side.left if s.stamp == made.stamp), None)
    ref = SnapshotRef(side.context.branch_uuid, made.id, made.stamp)
    if snapshot is None:
        return MergeEnd.expired(made.number, ref)
    return end_of(side.context, snapshot)


def _may_be_in_gap(side: Side, end: MergeEnd, forked: int) -> bool:
    """Whether a merge was made among snapshots whose fate is unknown."""
    if end.snapshot is None or side.gap_until is None:
        return False
    return forked < end.snapshot.id <= side.gap_until.id


def _is_undone(side: Side, end: MergeEnd) -> bool:
    """Whether one of the retained snapshots rolled main back to before a merge."""
    targets = [rolled_back_to(snapshot) for snapshot in counting(side.left)]
    return end.snapshot is not None and any(to is not None and to.id < end.snapshot.id for to in targets)


def _left_something(side: Side, log: MergeLog, number: int, born: Births) -> bool:
    """Whether files that came to main with a merge are live, so that it was not rolled back."""
    record = log.records.get(number)
    if record is None or side.gap_until is None:
        return False
    earlier = [other.head.id for n, other in log.records.items() if n < number]
    before = max(earlier, default=born.otherwise.last)
    brought = {
        name
        for name, birth in born.known.items()
        if birth.is_after(before) and birth.is_until(record.head.id)
    }
    return bool(brought & live_names(side.context, side.gap_until))
