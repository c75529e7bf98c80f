"""Restore an earlier state as one new commit; the history in between stays."""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.order import ordered_as
from anabranch.kernel.commit.watermark import given_back
from anabranch.kernel.log.file_paths import missing_files
from anabranch.kernel.log.properties import ROLLBACK_PROPERTY


@dataclass(frozen=True)
class Rollback:
    """Make the live files exactly those of `target`.

    The files to remove are those of the base it lands on: rows appended meanwhile are rolled back as well, as
    an overwrite would replace them; rows appended after it stay. Restored files are read under the newest
    schema.
    """

    target: Snapshot
    asked: str
    """The target as the user named it."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        difference = difference_to(base, self.target)
        missing = missing_files(base.context, difference.restored.df, base.schema)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return Conflict(
                "FILE_GONE",
                f"'{self.asked}' of '{base.context.title}' needs the data file {missing[0]}{more}, which is not there",
                "its files were removed although a reference still named it; roll back to another moment.",
            )
        removed = difference.removed.with_kind(FileKind.DELETE).to_entries()
        restored = ordered_as(
            base, difference.restored.with_kind(FileKind.ADD).to_entries(), difference.wanted.df
        )
        if isinstance(restored, Conflict):
            return restored
        return Change(
            CommitKind.OVERWRITE,
            [*removed, *restored],
            {ROLLBACK_PROPERTY: self._description(base)},
            adds_again=bool(restored),
            event_time=given_back(base.snapshot, self.target),
        )

    def _description(self, base: Base) -> str:
        target = SnapshotRef(base.context.branch_uuid, self.target.id, self.target.stamp)
        return json.dumps({"to": target.to_dict(), "asked": self.asked})


@dataclass(frozen=True, slots=True)
class Difference:
    """Files that a rollback removes and restores, as ADD entries in order."""

    removed: EntryFrame
    """Live now, but not in the target."""
    restored: EntryFrame
    """Live in the target, but not now."""
    wanted: EntryFrame
    """Live in the target."""

    @property
    def is_empty(self) -> bool:
        return not len(self.removed) and not len(self.restored)


def difference_to(base: Base, target: Snapshot) -> Difference:
    """Compute the difference between the live files of `base` and `target`. Reads all manifests of both."""
    manifests = base.context.manifests
    wanted, live = manifests.entries(manifests.of_snapshot(target)).live().df, base.live.df
    return Difference(_without(live, wanted), _without(wanted, live), EntryFrame(wanted))


def _without(files: pl.DataFrame, others: pl.DataFrame) -> EntryFrame:
    return EntryFrame(files.join(others.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left"))
