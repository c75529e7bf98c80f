"""Archive of a branch's expired snapshots: one file for some consecutive ones.

Lines of JSON, compressed: the first says which branch they were of and how it began, each of the others is a snapshot
without the names of its files. Such a file is written once and lies in the folder of the table, whatever the branch,
so that it outlives the branch. Other engines ignore it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Self

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import CommitKind, Snapshot, SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.packed import pack, unpack
from anabranch.format.text.record import JsonRecord, Stored

_VERSION: Final = 1
_NAME: Final = re.compile(r"history-([^/]+)-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class BranchFacts(JsonRecord):
    """Facts about a branch that never change."""

    uuid: str
    name: str | None
    """None for the branch in the table's own folder."""
    fork: SnapshotRef | None
    """What it began with; None for the table's own folder and for branches that another engine made."""


@dataclass(frozen=True, slots=True)
class PastSnapshot(JsonRecord):
    """A snapshot that may be gone: what it says but for its files. See `Snapshot`."""

    id: Annotated[int, Stored(minimum=1)]
    stamp: str
    schema_id: Annotated[int, Stored(minimum=0)]
    commit_kind: CommitKind
    commit_user: str
    commit_identifier: int
    time_millis: int
    total_record_count: int | None = None
    delta_record_count: int | None = None
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    others: Annotated[Mapping[str, Any], Stored(others=True)] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        return cls(**{f.name: getattr(snapshot, f.name) for f in fields(cls) if f.name != "others"})


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The name of a segment, which says what is in it."""

    branch_uuid: str
    first: int
    """Id of the oldest snapshot."""
    last: int
    """Id of the newest."""
    end: str
    """The beginning of the stamp of the newest: another history of the same numbers has another name."""

    def __str__(self) -> str:
        return f"history-{self.branch_uuid}-{self.first}-{self.last}-{self.end}"

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Parse a path; None if it is not exactly such a name."""
        match = _NAME.fullmatch(path.rpartition("/")[2])
        return None if match is None else cls(match[1], int(match[2]), int(match[3]), match[4])


@dataclass(frozen=True, slots=True)
class HistorySegment:
    """Snapshots of one branch, oldest first, at least one."""

    branch: BranchFacts
    snapshots: Sequence[PastSnapshot]
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields of the file that this release does not know."""

    @property
    def name(self) -> SegmentName:
        last = self.snapshots[-1]
        return SegmentName(self.branch.uuid, self.snapshots[0].id, last.id, last.stamp[:16])

    def to_bytes(self) -> bytes:
        """The content of the file; the same for the same snapshots."""
        head = {**self.others, "version": _VERSION, "branch": self.branch.to_dict()}
        lines = [head, *(s.to_dict() for s in self.snapshots)]
        text = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
        return pack(text)

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Self:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        lines = [line for line in unpack(data, path=path).split(b"\n") if line]
        if len(lines) < 2:
            raise CorruptTableError("holds no snapshot", path=path)
        head, *rest = (JsonObject.parse(line, path=path) for line in lines)
        head.version(_VERSION)
        snapshots = [PastSnapshot.from_object(line) for line in rest]
        branch = BranchFacts.from_dict(head.values.get("branch"), where=path)
        return cls(branch, snapshots, head.others({"version", "branch"}))


# The record of a rollback for good: ``branch/REWOUND-<n>``, written once, before the first snapshot is removed.
#
# It names the snapshots that were removed, so that it is known later what readers saw at a time before the rollback.
# Other engines ignore it.

REWIND_PREFIX = "REWOUND-"
_REWIND_VERSION = 1


@dataclass(frozen=True, slots=True)
class RemovedSnapshot:
    """A snapshot that a rollback removed, or that had expired before it."""

    id: int
    stamp: str
    time_millis: int

    @classmethod
    def from_list(cls, value: Any, *, where: str) -> RemovedSnapshot:
        """Raises `CorruptTableError` naming `where`."""
        match value:
            case [int(number), str(stamp), int(millis)]:
                return cls(number, stamp, millis)
            case _:
                raise CorruptTableError("names no removed snapshot (id, stamp, time)", path=where)


@dataclass(frozen=True, slots=True)
class Rewind:
    """A branch was rolled back for good."""

    number: int
    branch_uuid: str
    target: int
    """Id of the snapshot that it was rolled back to."""
    removed: tuple[RemovedSnapshot, ...]
    """Newest first, with those that had expired before; ids that are left out were removed by other engines."""
    made_millis: int

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _REWIND_VERSION,
                "branch": self.branch_uuid,
                "target": self.target,
                "removed": [[s.id, s.stamp, s.time_millis] for s in self.removed],
                "madeMillis": self.made_millis,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, number: int, path: str) -> Rewind:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_REWIND_VERSION)
        removed = content.values.get("removed")
        if not isinstance(removed, list):
            raise CorruptTableError("'removed' is no list", path=path)
        return cls(
            number,
            content.text("branch"),
            content.integer("target", minimum=0),
            tuple(RemovedSnapshot.from_list(item, where=path) for item in removed),
            content.integer("madeMillis"),
        )
