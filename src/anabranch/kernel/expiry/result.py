"""What an expiry removed, and what held the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from anabranch.kernel.expiry.candidates import no_files


@dataclass(frozen=True, slots=True)
class Tally:
    """Number and bytes of files; bytes as far as the metadata tells."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class Expiry:
    """Result of an expiry, or of its dry run."""

    snapshots: tuple[int, ...] = ()
    """Ids of the removed snapshots, ascending."""
    left: int = 0
    """Number of remaining snapshots."""
    files: pl.DataFrame = field(default_factory=no_files, repr=False)
    """The files removed with them, except snapshot files: `path`, `file_name`, `kind`, `bytes`."""
    held: Mapping[str, Tally] = field(default_factory=dict)
    """Files kept because refs other than the remaining snapshots reach them: by the name of one such ref, for
    example ``tag 'good'``."""
    unreadable: int = 0
    """Missing or damaged metadata files of the snapshots. What only they named stays, as orphans."""
    consumers: tuple[str, ...] = ()
    """Names of consumers that were removed because they had not moved for long."""
    tags: tuple[str, ...] = ()
    """Names of removed expired tags."""
    states: tuple[str, ...] = ()
    """Job state kept only for these tags, which the jobs release when they run next."""
    dry_run: bool = False
    """Whether nothing was removed."""

    @property
    def removed(self) -> dict[str, Tally]:
        """The files by kind: ``data``, ``index``, ``manifest``, ``manifest-list``, ``statistics``."""
        return tallies(self.files, "kind")

    def __add__(self, other: Expiry) -> Expiry:
        """Combine this with a later round."""
        held = dict(self.held)
        for ref, tally in other.held.items():
            held[ref] = held.get(ref, Tally()) + tally
        return Expiry(
            snapshots=self.snapshots + other.snapshots,
            left=other.left,
            files=pl.concat([self.files, other.files]),
            held=held,
            unreadable=self.unreadable + other.unreadable,
            consumers=self.consumers + other.consumers,
            tags=self.tags + other.tags,
            states=self.states + other.states,
            dry_run=other.dry_run,
        )


def tallies(files: pl.DataFrame, by: str) -> dict[str, Tally]:
    """Count files and bytes by the value of a column, ordered by it."""
    counts = files.group_by(by).agg(files=pl.len(), bytes=pl.col("bytes").sum()).sort(by)
    return {value: Tally(number, size) for value, number, size in counts.iter_rows()}
