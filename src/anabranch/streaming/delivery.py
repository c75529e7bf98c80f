"""Output units of a stream: data files of one bucket, each with what is true of all its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.kernel.scan.split import Split, SplitFile

CHANGE_COLUMN: Final = "_change"
"""Name of the column that says whether a row was added or removed."""
INSERTED: Final = "insert"
REMOVED: Final = "delete"

WATERMARK_COLUMN: Final = "_watermark"
"""Name of the column that carries the table's watermark, for engines that keep one of their own."""


class FeedFile(NamedTuple):
    """One data file delivered by a stream."""

    file: SplitFile
    removed: bool = False
    """Whether the snapshot removed its rows instead of adding them."""
    late_before: int | None = None
    """Rows with an earlier event time (epoch milliseconds) are late; None if none are."""
    watermark: int | None = None
    """Watermark of the table after the whole step, in epoch milliseconds; None if there is none."""


@dataclass(frozen=True, slots=True)
class FeedSplit:
    """Files of one bucket of one partition, to be read in this order. Picklable."""

    partition: bytes
    """Partition values as a BinaryRow with its 4-byte arity."""
    bucket: int
    files: tuple[FeedFile, ...]
    branch: str | None = None
    """Folder of the branch that the files' schema ids refer to, as in `TableContext.branch`."""

    @property
    def split(self) -> Split:
        """Return all files as a plain split, for readers that ignore the facts about each file."""
        return Split(self.partition, self.bucket, tuple(f.file for f in self.files))

    @property
    def row_count(self) -> int:
        """Number of rows in its files, before filters."""
        return sum(f.file.row_count for f in self.files)
