"""Replace files by their rewritten versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import DataFileMeta, FileKind, ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.commit_message import Rewrite
from anabranch.kernel.commit.conflicts import gone_conflict, order_conflict
from anabranch.kernel.commit.gates import fence_conflict
from anabranch.kernel.log.properties import REWRITE_PROPERTY


@dataclass(frozen=True)
class Compact:
    """Remove exactly the files that were read and add those that hold their rows now.

    Files appended meanwhile stay. If one of the files is gone (its rows were compacted or overwritten),
    or a merge of the branch put a fence between them meanwhile, nothing is done.
    """

    rewrites: Sequence[Rewrite]
    description: dict[str, Any] = field(default_factory=dict)
    """How the rewriting was done, for the snapshot's properties."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        for rewrite in self.rewrites:
            _check_rows(rewrite)
        live = _live_inputs(base, self.rewrites)
        conflict = (
            gone_conflict(base, self.rewrites, live)
            or order_conflict(base, self.rewrites)
            or fence_conflict(base, self.rewrites)
        )
        if conflict is not None:
            return conflict
        entries = [entry for rewrite in self.rewrites for entry in _entries(rewrite, live)]
        return Change(CommitKind.COMPACT, entries, {REWRITE_PROPERTY: json.dumps(self.description)})


FileIdentity = tuple[bytes, int, int, str]


def _check_rows(rewrite: Rewrite) -> None:
    written = sum(file.row_count for file in rewrite.new_files)
    if written != rewrite.task.row_count:
        raise CorruptTableError(
            f"a rewrite made {written} rows of {rewrite.task.row_count}; nothing was committed",
            hint="a data file does not hold the rows its manifest entry says; read the table to find which one.",
        )


def _live_inputs(base: Base, rewrites: Sequence[Rewrite]) -> dict[FileIdentity, ManifestEntry]:
    """Return the entries of the files to remove as the base has them: a DELETE repeats the bytes of its ADD."""
    names = pl.Series([file.file_name for r in rewrites for file in r.task.files], dtype=pl.String)
    found = base.live.df.filter(pl.col("file_name").is_in(names.implode()))
    entries = EntryFrame(found).with_kind(FileKind.DELETE).to_entries()
    return dict(zip(found.select(IDENTITY).iter_rows(), entries, strict=True))


def _entries(rewrite: Rewrite, live: dict[FileIdentity, ManifestEntry]) -> Iterator[ManifestEntry]:
    task = rewrite.task
    for file in task.files:
        yield live[task.partition, task.bucket, file.level, file.file_name]
    first = live[task.partition, task.bucket, task.files[0].level, task.files[0].file_name]
    for file in rewrite.new_files:
        shifted = _shifted(file, first.file.min_sequence_number)
        yield ManifestEntry(FileKind.ADD, task.partition, task.bucket, task.total_buckets, shifted)


def _shifted(file: DataFileMeta, first: int) -> DataFileMeta:
    return replace(
        file,
        min_sequence_number=file.min_sequence_number + first,
        max_sequence_number=file.max_sequence_number + first,
    )
