"""Result of a merge, read from the snapshot that it made."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.merge_record import Choice
from anabranch.kernel.log.properties import MergeFacts, merge_facts
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.plan import MergedPartition, Outcome
from anabranch.kernel.provenance.births import delta_of
from anabranch.kernel.scan.partitions import partition_text
from anabranch.tabular import Glance, Shown


@dataclass(frozen=True, repr=False)
class MergeResult(Shown):
    """Result of a merge, or of its dry run.

    Example:
        >>> merged = table.merge_branch("fix")
        >>> merged.branch, merged.rows_added, merged.snapshot.id
        ('fix', 1, 3)
    """

    branch: str
    snapshot: Snapshot | None = None
    """The snapshot of main that it made; None if there was nothing to merge, or for a dry run."""
    number: int | None = None
    """k: the number of the merge within the branch."""
    partitions: tuple[MergedPartition, ...] = ()
    """Partitions with changes, or left as they are by choice, in the order of their folders."""
    schema_changes: tuple[str, ...] = ()
    """Changes of main's schema, in words."""
    conflicts: tuple[MergeConflict, ...] = ()
    """In a dry run, the conflicts; then the other fields are empty."""
    dry_run: bool = False
    """Whether nothing was written."""

    def _glance(self) -> Glance:
        if self.conflicts:
            said = f"{len(self.conflicts):,} conflicts, nothing would be merged"
        elif self.snapshot is not None:
            said = f"merged by snapshot {self.snapshot.id}"
        else:
            said = "nothing written, this is what would be" if self.dry_run else "nothing to merge"
        facts = [
            f"rows: {self.rows_added:,} added, {self.rows_removed:,} removed",
            f"files: {self.files_added:,} added, {self.files_removed:,} removed",
            *(f"schema: {change}" for change in self.schema_changes),
            *map(str, self.conflicts),
        ]
        rows = [
            (one.partition, one.outcome.value, one.rows_added, one.rows_removed) for one in self.partitions
        ]
        columns = ("partition", "outcome", "rows added", "rows removed")
        return Glance(f"Merge of branch {self.branch}: {said}", facts, columns, rows)

    @property
    def files_added(self) -> int:
        return sum(one.files_added for one in self.partitions)

    @property
    def files_removed(self) -> int:
        return sum(one.files_removed for one in self.partitions)

    @property
    def rows_added(self) -> int:
        return sum(one.rows_added for one in self.partitions)

    @property
    def rows_removed(self) -> int:
        return sum(one.rows_removed for one in self.partitions)


def merged_partitions(main: TableContext, made: Snapshot) -> tuple[MergedPartition, ...]:
    """Return the changes of a merge's snapshot, partition by partition."""
    facts, schema = merge_facts(made), main.schemas.get(made.schema_id)
    entries: dict[bytes, list[ManifestEntry]] = {row: [] for row in facts.replaced | facts.ours}
    for entry in delta_of(main, made).to_entries():
        entries.setdefault(entry.partition, []).append(entry)
    found = [
        _of_partition(facts, row, of_row, partition_text(row, schema)) for row, of_row in entries.items()
    ]
    return tuple(sorted(found, key=lambda one: one.partition))


def _of_partition(facts: MergeFacts, row: bytes, entries: list[ManifestEntry], where: str) -> MergedPartition:
    added = [entry.file.row_count for entry in entries if entry.kind == FileKind.ADD]
    removed = [entry.file.row_count for entry in entries if entry.kind == FileKind.DELETE]
    kept = Outcome.KEPT if row in facts.ours else Outcome.ADDED
    return MergedPartition(
        where,
        Outcome.REPLACED if row in facts.replaced else kept,
        len(added),
        len(removed),
        sum(added),
        sum(removed),
        _chosen(facts, row),
    )


def _chosen(facts: MergeFacts, row: bytes) -> Choice | None:
    if row in facts.theirs:
        return Choice.THEIRS
    return Choice.OURS if row in facts.ours else None
