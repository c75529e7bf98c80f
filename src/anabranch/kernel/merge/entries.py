"""The manifest entries of a merge: the branch's files declared on main, and main's removed files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base
from anabranch.kernel.commit.order import Place, bucket_counts, in_order, numbering
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.declare import declared, declared_as, way_to_main
from anabranch.kernel.provenance.branch_files import BranchFiles
from anabranch.kernel.scan.partitions import PartitionKey, of_partitions
from anabranch.lazy import lazy

SCHEMA_REWRITE_NEEDED: Final = "SCHEMA_REWRITE_NEEDED"


@dataclass(frozen=True)
class Share:
    """Changes in one partition."""

    removed: Sequence[ManifestEntry] = ()
    added: Sequence[ManifestEntry] = ()
    keeping: frozenset[Place] = frozenset()
    """Buckets of a queue in which added files keep their sequence numbers from the branch."""


@dataclass(frozen=True)
class MergeEntries:
    """Builds the entries of a merge on one state of main."""

    base: Base
    branch: TableContext
    files: BranchFiles
    merged: TableSchema
    """Main's schema after the merge."""
    replaced: frozenset[PartitionKey]
    """The partitions that may be replaced."""

    def adding(self, key: PartitionKey, where: str, new: Sequence[ManifestEntry]) -> Share | MergeConflict:
        """Add these files of the branch to a partition, called `where`."""
        added = self._declared(new, where)
        if isinstance(added, MergeConflict):
            return added
        return self._other_buckets(key, where, added) or Share(added=added)

    def replacing(self, key: PartitionKey, where: str) -> Share | MergeConflict:
        """Replace main's files of a partition by the branch's."""
        ours, theirs = self._of_main.get(key, _NO_FILES), self._of_branch.get(key, _NO_FILES)
        removed = ours.join(theirs.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left")
        coming = theirs.join(ours.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left")
        added = self._declared(EntryFrame(coming).with_kind(FileKind.ADD).to_entries(), where)
        if isinstance(added, MergeConflict):
            return added
        numbered = numbering(theirs, ours)
        if None in numbered.values():
            return MergeConflict(
                "ORDER_CHANGED",
                f"the rows of partition {where} cannot be brought into the order they have on '{self.branch.title}': "
                "files that main has as well stand between those that it lacks",
                "choose 'ours', or overwrite the partition on the branch and merge again.",
                where,
            )
        keeping = frozenset((key, bucket) for bucket, at_tail in numbered.items() if not at_tail)
        return Share(EntryFrame(removed).with_kind(FileKind.DELETE).to_entries(), added, keeping)

    def is_empty_on_both(self, key: PartitionKey) -> bool:
        """Whether a partition has no file on either side."""
        return key not in self._of_main and key not in self._of_branch

    def together(self, shares: Iterable[Share]) -> list[ManifestEntry]:
        """Combine the shares of all partitions into the entries of a commit."""
        given = [*shares]
        removed = [entry for share in given for entry in share.removed]
        added = [entry for share in given for entry in share.added]
        if any(entry.total_buckets > 0 for entry in added):
            added = in_order(self.base, added, (place for share in given for place in share.keeping))
        return [*removed, *added]

    @lazy
    def _of_main(self) -> Mapping[PartitionKey, pl.DataFrame]:
        return of_partitions(self.base.live, self.replaced, self.base.schema) if self.replaced else {}

    @lazy
    def _of_branch(self) -> Mapping[PartitionKey, pl.DataFrame]:
        return of_partitions(self.files.live, self.replaced, self.base.schema) if self.replaced else {}

    @lazy
    def _versions(self) -> dict[int, tuple[TableSchema, TableSchema] | None]:
        """By schema id of the branch: that schema, and the schema of main that its files are declared under."""
        return {}

    def _declared(self, entries: Sequence[ManifestEntry], where: str) -> list[ManifestEntry] | MergeConflict:
        result = []
        for entry in entries:
            version = self._version(entry.file.schema_id)
            if version is None:
                return self._rewrite_needed(entries, where)
            written, under = version
            file = entry.file if written.id == under.id else declared(entry.file, written, under)
            result.append(replace(entry, file=file))
        return result

    def _version(self, schema_id: int) -> tuple[TableSchema, TableSchema] | None:
        known = self._versions
        if schema_id not in known:
            written = self.branch.schemas.get(schema_id)
            # Those of the state that is merged into: a later version is none of it.
            schemas, newest = self.base.context.schemas, self.base.schema.id
            same = schemas.find(schema_id) if schema_id <= newest else None
            if same == written:
                known[schema_id] = written, written
            else:
                older = (schemas.find(i) for i in range(newest, -1, -1))
                under = declared_as(written, self.merged, [found for found in older if found is not None])
                known[schema_id] = None if under is None else (written, under)
        return known[schema_id]

    def _rewrite_needed(self, entries: Sequence[ManifestEntry], where: str) -> MergeConflict:
        names = tuple(e.file.file_name for e in entries if self._version(e.file.schema_id) is None)
        newest = self.branch.schemas.latest()
        return MergeConflict(
            SCHEMA_REWRITE_NEEDED,
            f"{len(names)} files of partition {where} were written on '{self.branch.title}' with a schema that no "
            f"version of main's says the same of, such as {names[0]}",
            way_to_main(self.merged if newest is None else newest, self.merged),
            where,
            files=names,
        )

    def _other_buckets(
        self, key: PartitionKey, where: str, added: Sequence[ManifestEntry]
    ) -> MergeConflict | None:
        """Return a conflict if a partition of a queue has another number of buckets on main."""
        counts = {entry.total_buckets for entry in added if entry.total_buckets > 0}
        expected = bucket_counts(self.base).get(key) if counts else None
        if expected is None or counts == {expected}:
            return None
        live = self.base.live.df
        mine = of_partitions(EntryFrame(live), [key], self.base.schema).get(key, _NO_FILES)
        there = set(mine["total_buckets"].unique())
        if there | counts == counts and len(counts) == 1:
            return None  # the files with another number were overwritten since
        return MergeConflict(
            "BUCKET_COUNT_CHANGED",
            f"partition {where} has {_listed(there)} buckets on main and {_listed(counts)} on '{self.branch.title}'",
            "overwrite the partition on one side with as many buckets as it has on the other.",
            where,
        )


_NO_FILES = EntryFrame.empty().df


def _listed(numbers: Iterable[int]) -> str:
    return " and ".join(str(number) for number in sorted(numbers)) or "no"
