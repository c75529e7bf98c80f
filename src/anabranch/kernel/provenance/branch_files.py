"""Data files of a branch as needed by merges: those younger than main's state, and those of whole partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import polars as pl

from anabranch.format.records.data_file import ManifestEntry
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_of
from anabranch.kernel.provenance.births import Births, births
from anabranch.kernel.provenance.carry import carried_births
from anabranch.kernel.provenance.notes import Notes
from anabranch.kernel.provenance.past import Past, after, past_since
from anabranch.kernel.scan.partitions import PartitionKey, keys_of_rows
from anabranch.lazy import lazy


@dataclass(frozen=True, slots=True)
class Young:
    """Live files of a partition with rows that main lacks."""

    new: list[ManifestEntry] = field(default_factory=list)
    """All rows are younger."""
    mixed: list[str] = field(default_factory=list)
    """Names of files with both younger and older rows."""


@dataclass(frozen=True)
class BranchFiles:
    """The live files of one snapshot of a branch."""

    branch: TableContext
    head: Snapshot
    notes: Notes = field(default_factory=Notes)
    """What an earlier merge found in its past."""

    @lazy
    def past(self) -> Past:
        """The branch's snapshots since its fork, as far as they are retained or noted."""
        fork = fork_of(self.branch).snapshot
        return past_since(self.branch, self.head, fork, known=self.notes.of_branch, deltas=True)

    @lazy
    def retained(self) -> Past:
        """Those of them that are retained, whatever is noted."""
        return past_since(self.branch, self.head, fork_of(self.branch).snapshot, deltas=True)

    def is_noted_after(self, point: int) -> bool:
        """Whether some of the past after the snapshot of that id is known by notes, and so may have expired."""
        return self._noted > 0 and self.notes.own[-1].id > point

    @lazy
    def _noted(self) -> int:
        """Number of snapshots of the past that are noted."""
        return self.notes.count_in(self.past)

    @lazy
    def born(self) -> Births:
        """Births of the rows of the files."""
        carried = partial(carried_births, self.branch, self.head)
        return births(
            self.branch, self.head, carried, past=self.past, noted=self.notes.born, followed=self._noted
        )

    @lazy
    def live(self) -> EntryFrame:
        """All live files. Reads all manifests: only where whole partitions are needed."""
        manifests = self.branch.manifests
        return manifests.entries(manifests.of_snapshot(self.head)).live()

    def after(self, point: int, schema: TableSchema) -> dict[PartitionKey, Young]:
        """Return the live files with rows younger than the snapshot of that id, by partition, in commit order."""
        frame = self._added(point).df
        wanted = [name for name in frame["file_name"] if not self.born.of(name).is_until(point)]
        young = frame.filter(pl.col("file_name").is_in(wanted))
        found: dict[PartitionKey, Young] = {}
        keys = keys_of_rows(young["partition"], schema)
        for key, entry in zip(keys, EntryFrame(young).to_entries(), strict=True):
            of_partition = found.setdefault(key, Young())
            if self.born.of(entry.file.file_name).is_after(point):
                of_partition.new.append(entry)
            else:
                of_partition.mixed.append(entry.file.file_name)
        return found

    def _added(self, point: int) -> EntryFrame:
        """Return the live files with rows younger than the snapshot of that id, and perhaps others.

        A file is added, for the first time, after its youngest rows were first appended or with them. So what was added
        since has all of them; what is noted may have expired.
        """
        later = after(self.past.snapshots, point)
        has_noted = self._noted > 0 and len(later) > len(self.past.snapshots) - self._noted
        if has_noted or not self.past.reaches_base:
            return self.live
        deltas = self.branch.manifests.deltas(later)
        return EntryFrame.concat([*deltas]).merged(strict=False).adds()
