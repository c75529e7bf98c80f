"""Offsets: positions of a stream in the history of one branch of a table, and the files that a step from one to the next delivers.

A snapshot id alone is no place in history, because ids are used again after a rollback. An offset
therefore names the table, the branch, and the snapshot by id *and* stamp; whoever resolves it compares
them (`anabranch.streaming.feed`). As JSON it is versioned, because checkpoints outlive releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.scan.split import Split, SplitFile

OFFSET_VERSION = 1
Beginnings = tuple[tuple[str, int], ...]
"""What a branch began with: the identity of another one, and its snapshot up to which both are the same; then what that one
began with, and so on. Empty for a branch that began with nothing, and where it is not known."""
_SOURCE = "anabranch"


@dataclass(frozen=True, slots=True)
class Position:
    """Delivered part of a branch's history.

    Everything up to and including `snapshot` if `files` is None. Otherwise everything before it and the
    first `files` data files of the snapshot: of those it added, or, if `full`, of all that were live in
    it (a stream that begins with the whole table). In lineage, `full` without `files` is all that was live in it.
    """

    snapshot: int
    """Snapshot id; 0 is the moment before the first snapshot."""
    stamp: str | None
    """Stamp of the snapshot; None if it is not known."""
    files: int | None = None
    full: bool = False
    listing: str | None = None
    """Way in which the snapshot's files were counted, if not as in the commit; see `anabranch.streaming.portion`."""
    watermark: int | None = field(default=None, compare=False)
    """Watermark of the table here (epoch milliseconds), for when the snapshot has expired; None if unknown."""

    @classmethod
    def after(cls, snapshot: Snapshot) -> Self:
        """Return the position after all of a snapshot."""
        return cls(snapshot.id, snapshot.stamp, watermark=snapshot.watermark)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with keys in a fixed order, because Spark compares offsets as text."""
        seldom = {"listing": self.listing, "watermark": self.watermark}
        return {
            "snapshot": self.snapshot,
            "stamp": self.stamp,
            "files": self.files,
            "full": self.full,
            **{key: value for key, value in seldom.items() if value is not None},
        }

    @classmethod
    def from_dict(cls, value: Any) -> Self | None:
        """Parse a position; return None if `value` is not one."""
        match value:
            case {
                "snapshot": int(snapshot),
                "stamp": str() | None as stamp,
                "files": int() | None as files,
                "full": bool(full),
            } if snapshot >= 0 and (files is None or files >= 0):
                match value.get("listing"), value.get("watermark"):
                    case (str() | None as listing, int() | None as watermark):
                        return cls(snapshot, stamp, files, full, listing, watermark)
        return None

    @property
    def delivered_through(self) -> int:
        """Id of the last snapshot that has been delivered completely."""
        if self.files is None:
            return self.snapshot
        return 0 if self.full else self.snapshot - 1


def beginnings_of(value: Any) -> Beginnings:
    """Parse what a branch began with; what cannot be parsed is not known."""
    found: list[tuple[str, int]] = []
    for pair in value if isinstance(value, list) else ():
        match pair:
            case [str(uuid), int(last)]:
                found.append((uuid, last))
            case _:
                return ()
    return tuple(found)


BEGINNING = Position(0, None)
"""Position before the first snapshot."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the history of one branch of one table."""

    table_uuid: str
    branch_uuid: str
    name: str
    """``database.table`` when the offset was made: for people and lineage, never compared."""
    position: Position
    origin: Position | None = None
    """Position at which the stream began; None in the offset of the beginning itself.

    Spark does not store the offset a query begins with. When it repeats the first batch after a crash it
    asks for that offset anew, and by then the table has moved on. The end of the batch remembers it.
    """
    origin_branch: str | None = None
    """Branch of the origin, if main was replaced in between and it differs."""
    begun: Beginnings = field(default=(), compare=False)
    """What the branch began with, for lineage."""
    ended: int = 0
    """For a bounded stream at its end (above 0): the number of runs of the query that have found that.

    So every run shows its end in the offset of a batch, also a run that has nothing left to deliver.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with keys in a fixed order, because Spark compares offsets as text."""
        return {
            "source": _SOURCE,
            "version": OFFSET_VERSION,
            "table": self.table_uuid,
            "branch": self.branch_uuid,
            "name": self.name,
            **self.position.to_dict(),
            "origin": None if self.origin is None else self.origin.to_dict(),
            **({} if self.origin_branch is None else {"originBranch": self.origin_branch}),
            **({"begun": [[*pair] for pair in self.begun]} if self.begun else {}),
            **({"ended": self.ended} if self.ended else {}),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """Parse an offset. Raises `InvalidInputError` saying what is wrong with `value`."""
        if not is_offset(value):
            raise InvalidInputError(
                f"{_excerpt(value)} is no offset of an Anabranch table",
                hint="the checkpoint belongs to a query with another source; use a new checkpoint location.",
            )
        if value.get("version") != OFFSET_VERSION:
            raise InvalidInputError(
                f"the offset has version {value.get('version')!r}, this release reads version {OFFSET_VERSION}",
                hint="a newer Anabranch wrote the checkpoint: run the query with that release.",
            )
        position = Position.from_dict(value)
        origin = value.get("origin")
        began = None if origin is None else Position.from_dict(origin)
        match {"ended": 0, "originBranch": None, **value}:
            case {
                "table": str(table),
                "branch": str(branch),
                "name": str(name),
                "ended": int(ended),
                "originBranch": str() | None as origin_branch,
            } if position is not None and (origin is None) == (began is None):
                begun = beginnings_of(value.get("begun"))
                return cls(table, branch, name, position, began, origin_branch, begun, ended)
            case _:
                raise InvalidInputError(
                    f"the offset {_excerpt(value)} is damaged",
                    hint="restore the checkpoint, or use a new checkpoint location.",
                )


def is_offset(value: Any) -> bool:
    """Whether a JSON value is an offset of ours, of whatever version."""
    return isinstance(value, Mapping) and value.get("source") == _SOURCE and "version" in value


def check_same_history(offset: Offset, *, table_uuid: str, branch_uuid: str, name: str) -> None:
    """Raise `InvalidInputError` if the offset was made on another table or branch."""
    if offset.table_uuid != table_uuid:
        raise InvalidInputError(
            f"the offset belongs to table '{offset.name}', as it was called then, and the stream reads another one, "
            f"'{name}'",
            hint="the table was dropped and created again, or the checkpoint is another query's: "
            "use a new checkpoint location.",
        )
    if offset.branch_uuid != branch_uuid:
        raise InvalidInputError(
            f"the offset belongs to another branch of '{offset.name}' than the one that the stream reads as '{name}'",
            hint="read the branch the query began with, or use a new checkpoint location.",
        )


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


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
