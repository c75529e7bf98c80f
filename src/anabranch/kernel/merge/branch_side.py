"""The branch's side of a merge: its changes since main last merged it, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of, fork_snapshot
from anabranch.kernel.log.merge_log import MergeLog
from anabranch.kernel.merge.cases import Case
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.state import MergeState, before_gap
from anabranch.kernel.provenance.births import live_partitions
from anabranch.kernel.provenance.branch_files import BranchFiles, Young
from anabranch.kernel.provenance.classify import ChangeKind
from anabranch.kernel.provenance.foreign import foreign_files
from anabranch.kernel.provenance.notes import Notes
from anabranch.kernel.provenance.past import after
from anabranch.kernel.provenance.sides import Done, Side, keyed, live_names_of, side_of, works
from anabranch.kernel.scan.partitions import PartitionKey, partition_text


class BranchSide:
    """One snapshot of a branch as a merge source."""

    def __init__(
        self, branch: TableContext, head: Snapshot, log: MergeLog, notes: Notes | None = None
    ) -> None:
        """Initialize without reading anything.

        Args:
            head: its snapshot to merge.
            log: its merges before.
            notes: what an earlier merge found.
        """
        self._notes = notes or Notes()
        self.files = BranchFiles(branch, head, self._notes)
        self._branch = branch
        self._fork = fork_of(branch)
        self._head = head
        self._log = log
        self._sides: dict[int, Side] = {}

    def since(self, taken: SnapshotRef) -> Side:
        """Return what the branch did since the snapshot of it that main has."""
        if taken.id not in self._sides:
            # The notes do not have the changes of the branch's own snapshots. Those of expired ones, which are asked for
            # where main has undone a merge, are in the records of the expiry.
            past = self.files.retained if self.files.is_noted_after(taken.id) else self.files.past
            self._sides[taken.id] = side_of(
                self._branch, self._branch, past, self._fork.snapshot, taken=taken
            )
        return self._sides[taken.id]

    def rewritten(self, taken: SnapshotRef) -> MergeConflict | None:
        """Return a conflict if a destructive rollback took the branch back to before what main merged of it."""
        theirs = self.since(taken)
        there = next((s for s in after(theirs.left, taken.id - 1)[:1] if s.id == taken.id), None)
        is_past = self._head.id >= taken.id and (there is None or there.stamp == taken.stamp)
        if is_past and not theirs.is_other:
            return None
        return MergeConflict(
            "HISTORY_REWRITTEN",
            f"snapshot {taken.id} of '{self._branch.title}', which main took, is not in the branch's history any more: "
            "the branch was rolled back for good to before it",
            "create a branch from a tag of today's main, and write the rows to that.",
        )

    def cases(self, found: MergeState, schema: TableSchema) -> list[Case]:
        """Return the partitions that the branch changed, in the order of their folders."""
        taken = found.taken
        changed, by_branch = self._changed(found, taken, schema)
        for other in found.unsure:  # what was undone on the branch since may still be in main
            places, done = self._changed(found, other, schema)
            changed, by_branch = places | changed, done | by_branch
        seen = found.seen(schema)
        by_main = works(
            found.main,
            changed,
            schema,
            since={key: seen.get(key, self._fork.snapshot.id) for key in changed},
            before_gap=before_gap(found, self._branch, self._log, schema),
            besides=self._born_until(taken.id),
        )
        young = self.files.after(taken.id, schema)
        foreign = foreign_files(
            found.main, self.since(taken), young, self.files.born, taken=taken.id, noted=self._notes.added
        )
        cases = [
            Case(
                key,
                row,
                partition_text(row, schema),
                by_branch[key],
                Done(ChangeKind.UNKNOWN) if found.unsure else by_main[key],
                young.get(key, Young()),
                foreign.get(key, ()),
                self.since(taken).gap_until is not None,
            )
            for key, row in changed.items()
        ]
        return sorted(cases, key=lambda case: case.text)

    def _changed(
        self, found: MergeState, taken: SnapshotRef, schema: TableSchema
    ) -> tuple[dict[PartitionKey, bytes], dict[PartitionKey, Done]]:
        """Return the partitions that the branch changed since `taken`, each with a row; and the kind of change."""
        theirs = self.since(taken)
        places, before = self._places(found, theirs, taken, schema)
        done = works(theirs, places, schema, since=dict.fromkeys(places, taken.id), before_gap=before)
        changed = {key: row for key, row in places.items() if done[key].work != ChangeKind.NOTHING}
        return changed, {key: done[key] for key in changed}

    def _places(
        self, found: MergeState, theirs: Side, taken: SnapshotRef, schema: TableSchema
    ) -> tuple[dict[PartitionKey, bytes], Mapping[PartitionKey, frozenset[str]]]:
        """Return partitions that the branch may have changed, and main's files there if these must be compared."""
        rows = theirs.rows()
        if theirs.span is not None and theirs.span.wide:
            rows |= found.main.rows()  # also where only main has rows
        before: Mapping[PartitionKey, frozenset[str]] = {}
        until = theirs.gap_until
        if until is not None and taken.id < until.id:
            begun = self._snapshot_of(taken)
            if begun is not None:
                rows |= live_partitions(self._branch, begun)
                before = live_names_of(self._branch, begun, schema)
        return dict(keyed(sorted(rows), schema)), before

    def _snapshot_of(self, taken: SnapshotRef) -> Snapshot | None:
        merged = next((r.head for r in self._log.records.values() if r.head.stamp == taken.stamp), None)
        return merged or fork_snapshot(self._branch)

    def _born_until(self, point: int) -> frozenset[str]:
        """Return the names of files made on the branch and merged into main."""
        begun = self._fork.snapshot.id
        known = self.files.born.known.items()
        return frozenset(name for name, birth in known if birth.is_after(begun) and birth.is_until(point))
