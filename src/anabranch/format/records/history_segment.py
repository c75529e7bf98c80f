"""Archive of a branch's expired snapshots: one file for some consecutive ones.

Lines of JSON, compressed: the first says which branch they were of and how it began, each of the others is a snapshot
without the names of its files. Such a file is written once and lies in the folder of the table, whatever the branch,
so that it outlives the branch. Other engines ignore it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import zstandard

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.json_object import JsonObject

_VERSION: Final = 1
_KNOWN: Final = frozenset(
    {
        *("id", "stamp", "schemaId", "commitKind", "commitUser", "commitIdentifier", "timeMillis"),
        *("totalRecordCount", "deltaRecordCount", "watermark", "properties"),
    }
)
_KNOWN_OF_HEAD: Final = frozenset({"version", "branch"})
_LEVEL: Final = 3
_MAX_BYTES: Final = 1 << 30
_NAME: Final = re.compile(r"history-([^/]+)-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """Facts about a branch that never change."""

    uuid: str
    name: str | None
    """None for the branch in the table's own folder."""
    fork: SnapshotRef | None
    """What it began with; None for the table's own folder and for branches that another engine made."""


@dataclass(frozen=True, slots=True)
class PastSnapshot:
    """A snapshot that may be gone: what it says but for its files. See `Snapshot`."""

    id: int
    stamp: str
    schema_id: int
    commit_kind: CommitKind
    commit_user: str
    commit_identifier: int
    time_millis: int
    total_record_count: int | None = None
    delta_record_count: int | None = None
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        return cls(
            snapshot.id,
            snapshot.stamp,
            snapshot.schema_id,
            snapshot.commit_kind,
            snapshot.commit_user,
            snapshot.commit_identifier,
            snapshot.time_millis,
            snapshot.total_record_count,
            snapshot.delta_record_count,
            snapshot.watermark,
            snapshot.properties,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            **self.others,
            "id": self.id,
            "stamp": self.stamp,
            "schemaId": self.schema_id,
            "commitKind": self.commit_kind.value,
            "commitUser": self.commit_user,
            "commitIdentifier": self.commit_identifier,
            "timeMillis": self.time_millis,
            "totalRecordCount": self.total_record_count,
            "deltaRecordCount": self.delta_record_count,
            "watermark": self.watermark,
            "properties": dict(self.properties),
        }

    @classmethod
    def from_object(cls, content: JsonObject) -> Self:
        """Raises `CorruptTableError`."""
        return cls(
            content.integer("id", minimum=1),
            content.text("stamp"),
            content.integer("schemaId", minimum=0),
            _kind(content),
            content.text("commitUser"),
            content.integer("commitIdentifier"),
            content.integer("timeMillis"),
            content.optional_integer("totalRecordCount"),
            content.optional_integer("deltaRecordCount"),
            content.optional_integer("watermark"),
            content.optional_text_map("properties"),
            content.others(_KNOWN),
        )


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
        branch = {
            "uuid": self.branch.uuid,
            "name": self.branch.name,
            "fork": None if self.branch.fork is None else self.branch.fork.to_dict(),
        }
        lines = [
            {**self.others, "version": _VERSION, "branch": branch},
            *(s.to_dict() for s in self.snapshots),
        ]
        text = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
        return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text.encode())

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Self:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        try:
            if zstandard.frame_content_size(data) > _MAX_BYTES:
                raise CorruptTableError("claims to hold more than any segment does", path=path)
            unpacked = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_BYTES)
        except zstandard.ZstdError as error:
            raise CorruptTableError("is no segment of history: it cannot be unpacked", path=path) from error
        lines = [line for line in unpacked.split(b"\n") if line]
        if len(lines) < 2:
            raise CorruptTableError("holds no snapshot", path=path)
        head, *rest = (JsonObject.parse(line, path=path) for line in lines)
        head.version(_VERSION)
        snapshots = [PastSnapshot.from_object(line) for line in rest]
        return cls(_facts(head), snapshots, head.others(_KNOWN_OF_HEAD))


def _facts(content: JsonObject) -> BranchFacts:
    branch = content.values.get("branch")
    match branch:
        case {"uuid": str(uuid), "name": str() | None as name, "fork": fork}:
            begun = None if fork is None else SnapshotRef.from_dict(fork, where=content.path)
            return BranchFacts(uuid, name, begun)
        case _:
            raise CorruptTableError("does not say which branch it is of", path=content.path)


def _kind(content: JsonObject) -> CommitKind:
    try:
        return CommitKind(content.text("commitKind"))
    except ValueError:
        content.fail(f"'commitKind' is '{content.text('commitKind')}', expected {', '.join(CommitKind)}")
