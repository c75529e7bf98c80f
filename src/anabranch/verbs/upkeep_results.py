"""What verbs of upkeep say that they did, for people and as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.format.text.shell import command_line

if TYPE_CHECKING:
    from anabranch.kernel.expiry.result import Expiry, Tally
    from anabranch.maintenance.compact import CompactionResult
    from anabranch.maintenance.maintain import Upkeep
    from anabranch.maintenance.orphans import Cleaning

_MOST_NAMED = 10
"""Names that are shown of files that are left alone."""


@dataclass(frozen=True, slots=True)
class CompactionInfo:
    """Result of compacting one table."""

    table: str
    snapshot: int | None
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    given_up: int

    @classmethod
    def of(cls, table: str, done: CompactionResult) -> CompactionInfo:
        """Convert the result of a compaction."""
        return cls(
            table,
            None if done.snapshot is None else done.snapshot.id,
            *(done.files_before, done.files_after, done.bytes_before, done.bytes_after),
            *(done.rows, done.given_up),
        )

    @property
    def row(self) -> tuple[object, ...]:
        return (
            *(self.snapshot, self.files_before, self.files_after, self.bytes_before, self.bytes_after),
            *(self.rows, self.given_up),
        )

    @property
    def losses(self) -> Iterator[str]:
        """Say what was given up."""
        if self.given_up:
            yield f"{self.table}: {self.given_up:,} tasks were given up, others rewrote their files meanwhile"


@dataclass(frozen=True, slots=True)
class ExpiryInfo:
    """Files and references that an expiry removed from one table, or would remove."""

    table: str
    snapshots: int
    snapshots_left: int
    data_files: int
    metadata_files: int
    bytes: int
    removed: Mapping[str, Mapping[str, int]]
    """Files and bytes by kind."""
    held: Mapping[str, Mapping[str, int]]
    """Files kept although their snapshots were removed, by what holds them."""
    tags: tuple[str, ...]
    """Tags that were kept long enough."""
    consumers: tuple[str, ...]
    """Consumers that had not moved for too long."""
    states: tuple[str, ...]
    """State that jobs kept for these tags alone."""
    dry_run: bool

    @classmethod
    def of(cls, table: str, done: Expiry) -> ExpiryInfo:
        """Convert the result of an expiry."""
        from anabranch.kernel.expiry.candidates import DATA

        data = done.removed[DATA].files if DATA in done.removed else 0
        return cls(
            table,
            *(len(done.snapshots), done.left),
            *(data, done.files.height - data, int(done.files["bytes"].sum())),
            *(_counted(done.removed), _counted(done.held)),
            *(done.tags, done.consumers, done.states),
            done.dry_run,
        )

    @property
    def details(self) -> Iterator[str]:
        """Say what went besides snapshots, and what is kept."""
        for kind, gone in (("tags", self.tags), ("consumers", self.consumers), ("state of", self.states)):
            if gone:
                yield f"{self.table}: {'would let' if self.dry_run else 'let'} go of {kind} {', '.join(gone)}"
        for ref, held in self.held.items():
            yield f"{self.table}: {ref} keeps {held['files']:,} files, {held['bytes']:,} bytes"


@dataclass(frozen=True, slots=True)
class CleaningInfo:
    """Files that a clean-up of one table moved and purged, or would."""

    table: str
    run: int | None
    """Number by which the moved files can be restored."""
    moved: int
    moved_bytes: int
    purged: int
    purged_bytes: int
    dry_run: bool
    foreign: tuple[str, ...]
    """Files left alone: with names that no engine uses, and linked folders."""

    @classmethod
    def of(cls, table: str, done: Cleaning) -> CleaningInfo:
        """Convert the result of a clean-up."""
        sizes, purged = done.files["bytes"], done.purged
        return cls(
            *(table, done.run, len(sizes), int(sizes.sum())),
            *(purged.files, purged.bytes, done.dry_run, done.foreign),
        )

    @property
    def details(self) -> Iterator[str]:
        """Say how to bring files back, and what is left alone."""
        if self.moved and not self.dry_run:
            back = command_line("restore-orphan-files", self.table, "--run", str(self.run))
            yield f"{self.table}: {back} brings them back"
        if self.foreign:
            some = ", ".join(self.foreign[:_MOST_NAMED])
            left = len(self.foreign) - _MOST_NAMED
            more = f" and {left:,} more" if left > 0 else ""
            yield f"{self.table}: left alone, because no engine of the format made them: {some}{more}"


@dataclass(frozen=True, slots=True)
class UpkeepInfo:
    """Result of the maintenance of one table, or a preview, step by step."""

    table: str
    compaction: CompactionInfo
    """For a dry run `files_after` is an estimate, and `bytes_after` 0."""
    expiry: ExpiryInfo
    cleaning: CleaningInfo
    dry_run: bool
    text: str
    """Summary in one sentence."""
    left: tuple[str, ...] = ()
    """What health would still find afterwards."""

    @classmethod
    def of(cls, name: str, done: Upkeep) -> UpkeepInfo:
        """Convert the result of maintenance."""
        return cls(
            name,
            CompactionInfo.of(name, done.compaction),
            ExpiryInfo.of(name, done.expiry),
            CleaningInfo.of(name, done.cleaning),
            done.dry_run,
            f"{name}: {done}",
            tuple(finding.why for finding in done.left),
        )


def _counted(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int]]:
    return {name: {"files": tally.files, "bytes": tally.bytes} for name, tally in tallies.items()}
