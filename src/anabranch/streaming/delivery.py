"""What a stream hands out: data files of one bucket, each with what is true of all its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.kernel.scan.split import Split, SplitFile

CHANGE_COLUMN: Final = "_change"
"""Name of the column that says whether a row was added or taken away."""
INSERTED: Final = "insert"
REMOVED: Final = "delete"

WATERMARK_COLUMN: Final = "_watermark"
"""Name of the column that carries the table's watermark, for engines that keep one of their own."""


class FeedFile(NamedTuple):
    """One data file on its way through a stream."""

    file: SplitFile
    removed: bool = False
    """Its rows were taken away by the snapshot, not added."""
    late_before: int | None = None
    """Rows with an earlier event time (epoch milliseconds) are late; None if none are."""
    watermark: int | None = None
    """The table's watermark once the whole step has been delivered, epoch milliseconds; None if there is none."""


@dataclass(frozen=True, slots=True)
class FeedSplit:
    """Files of one bucket of one partition, to be read in this order. Picklable."""

    partition: bytes
    """BinaryRow of the partition values with its 4-byte arity."""
    bucket: int
    files: tuple[FeedFile, ...]
    branch: str | None = None
    """The folder of the branch whose schemas the files name, as in `TableContext.branch`."""

    @property
    def split(self) -> Split:
        """All of it, for a reader that does not care what is true of each file."""
        return Split(self.partition, self.bucket, tuple(f.file for f in self.files))

    @property
    def row_count(self) -> int:
        """Rows in its files, before any row is filtered."""
        return sum(f.file.row_count for f in self.files)
