"""Snapshots: what one commit made of a table."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from anabranch.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from anabranch.format.records.layout import check_file_name
from anabranch.format.text.json_object import MAX_LONG, MIN_LONG, JsonObject, describe, to_bytes
from anabranch.format.text.record import JsonRecord, Stored
from anabranch.runtime import Runtime
from anabranch.tabular import Glance, Shown, time_text

BATCH_COMMIT_IDENTIFIER = MAX_LONG
"""Commit identifier of commits that are made once, by a user of their own."""

NO_LIST = ""
"""In place of a manifest list's name: a list of nothing. Only in snapshots that are no files; see `Savepoint`."""

NEWEST_VERSION = 3
_VERSION_BEFORE_VERSIONS = 1
_OURS = "anabranch."
_CHECKSUM = "anabranch.checksum"
"""Property by which a changed bit in a snapshot of ours is noticed; see `Snapshot.checksum`."""
_NO_WATERMARK = MIN_LONG


class CommitKind(StrEnum):
    """Kind of a commit."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Snapshot(Shown):
    """One immutable version of a table; sizes in bytes, times in milliseconds since the epoch.

    The files are named, not located: manifest lists lie in the table's manifest folder, `statistics` in
    its statistics folder.

    Example:
        >>> newest = table.snapshot
        >>> newest
        <Snapshot 2 APPEND, ... UTC, +2 rows, 4 in all>
        >>> newest.id, str(newest.commit_kind), newest.total_record_count
        (2, 'APPEND', 4)
    """

    id: int
    schema_id: int
    """Id of the newest schema when the commit was made."""
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    version: int = NEWEST_VERSION
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    log_offsets: Mapping[int, int] = field(default_factory=dict)
    total_record_count: int | None = None
    """Rows of the table; None in snapshots of very old engines."""
    delta_record_count: int | None = None
    """Rows added minus rows removed by this commit; None in snapshots of very old engines."""
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    next_row_id: int | None = None
    uuid: str | None = None
    """Fresh for each attempt at a commit, so a writer knows its own snapshot again."""
    operation: str | None = None
    writer_version: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the file said beyond this, as parsed JSON."""

    def __repr__(self) -> str:
        return f"<{self.title}>"

    @property
    def title(self) -> str:
        """Number, kind, time and rows, on one line."""
        delta, total = self.delta_record_count, self.total_record_count
        counted = [
            f"{delta:+,} rows" if delta is not None else "",
            f"{total:,} in all" if total is not None else "",
        ]
        title = f"Snapshot {self.id} {self.commit_kind.value}, {time_text(self.time_millis)}"
        return ", ".join([title, *filter(None, counted)])

    def _glance(self) -> Glance:
        rows = [
            ("schema", self.schema_id),
            ("commit user", self.commit_user),
            ("commit identifier", str(self.commit_identifier)),
            ("watermark", time_text(self.watermark)),
            *sorted(self.properties.items()),
        ]
        return Glance(self.title, (), ("", ""), rows)

    @property
    def stamp(self) -> str:
        """Identity that tells this snapshot from any other of the same id: 32 hex digits, the same for all readers."""
        identity = [
            self.commit_user,
            self.commit_identifier,
            self.time_millis,
            self.base_manifest_list,
            self.delta_manifest_list,
        ]
        # JSON quotes its text, so no two identities have the same bytes.
        return hashlib.sha256(json.dumps(identity).encode("ascii")).digest()[:16].hex()

    @property
    def brings_nothing(self) -> bool:
        """Whether a stream finds no row in it: files were only rewritten or analyzed, or it is an empty batch."""
        return self.commit_kind is not CommitKind.OVERWRITE and self.delta_record_count in (0, None)

    @property
    def checksum(self) -> str:
        """CRC-32, as 8 hex digits, of what the snapshot says; without what some engines leave out of a tag of it."""
        said = [
            *(self.id, self.schema_id, self.commit_user, self.commit_identifier, self.commit_kind.value),
            *(self.time_millis, self.watermark, self.total_record_count, self.delta_record_count),
            *(self.base_manifest_list, self.delta_manifest_list, self.changelog_manifest_list),
            *(self.index_manifest, self.statistics, sorted(self.properties.items())),
        ]
        return f"{zlib.crc32(json.dumps(said).encode('ascii')):08x}"

    def to_json(self) -> bytes:
        """The content of the snapshot's file."""
        return to_bytes(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the snapshot's file, readable by old and new engines.

        Raises `InvalidInputError` for a snapshot that only stands for another one and cannot be a file.
        """
        if NO_LIST in (self.base_manifest_list, self.delta_manifest_list):
            raise InvalidInputError(
                f"snapshot {self.id} is there only as the full manifest list of a savepoint",
                hint="its rows can be read; no other reference to it can be made.",
            )
        properties = dict(self.properties)
        if any(key.startswith(_OURS) for key in properties):
            properties[_CHECKSUM] = self.checksum
        values: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "schemaId": self.schema_id,
            "baseManifestList": self.base_manifest_list,
            "baseManifestListSize": self.base_manifest_list_size,
            "deltaManifestList": self.delta_manifest_list,
            "deltaManifestListSize": self.delta_manifest_list_size,
            "changelogManifestListSize": self.changelog_manifest_list_size,
            "indexManifest": self.index_manifest,
            "commitUser": self.commit_user,
            "commitIdentifier": self.commit_identifier,
            "commitKind": self.commit_kind.value,
            "timeMillis": self.time_millis,
            "totalRecordCount": self.total_record_count,
            "deltaRecordCount": self.delta_record_count,
            "watermark": self.watermark,
            "statistics": self.statistics,
            "properties": properties or None,
            "nextRowId": self.next_row_id,
            "uuid": self.uuid,
            "operation": self.operation,
            "writerVersion": self.writer_version,
        }
        return {
            **self.extra,
            **{key: value for key, value in values.items() if value is not None},
            # Engines of the 0.9 line expect these three, also where there is nothing to say.
            "changelogManifestList": self.changelog_manifest_list,
            "logOffsets": {str(key): value for key, value in self.log_offsets.items()},
            "changelogRecordCount": self.changelog_record_count or 0,
        }

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> Snapshot:
        """A snapshot from its file.

        Raises:
            CorruptTableError: the file does not say what it must.
            UnsupportedFeatureError: it was written by a later version of the format.
        """
        return cls.from_object(JsonObject.parse(data, path=path))

    @classmethod
    def from_object(cls, content: JsonObject, *, besides: Collection[str] = ()) -> Snapshot:
        """A snapshot from the parsed content of its file, or of a tag's; raises as `from_json` does.

        Args:
            content: what was parsed.
            besides: keys of whatever else the file holds, which are not the snapshot's.
        """
        version = content.optional_integer("version", minimum=0)
        if version is not None and version > NEWEST_VERSION:
            raise UnsupportedFeatureError(
                f"snapshot of format version {version}, the newest known is {NEWEST_VERSION}",
                feature="snapshot-version",
                path=content.path,
                hint="read the table with a newer version of Anabranch.",
            )
        watermark = content.optional_integer("watermark")
        properties = dict(content.optional_text_map("properties"))
        checksum = properties.pop(_CHECKSUM, None)
        if checksum is None:
            content.check_keys(properties, (_CHECKSUM,))
        made = cls(
            version=_VERSION_BEFORE_VERSIONS if version is None else version,
            id=content.integer("id", minimum=1),
            schema_id=content.integer("schemaId", minimum=0),
            base_manifest_list=_file_name(content, "baseManifestList"),
            base_manifest_list_size=content.optional_integer("baseManifestListSize", minimum=0),
            delta_manifest_list=_file_name(content, "deltaManifestList"),
            delta_manifest_list_size=content.optional_integer("deltaManifestListSize", minimum=0),
            changelog_manifest_list=_optional_file_name(content, "changelogManifestList"),
            changelog_manifest_list_size=content.optional_integer("changelogManifestListSize", minimum=0),
            index_manifest=_optional_file_name(content, "indexManifest"),
            commit_user=content.text("commitUser"),
            commit_identifier=content.integer("commitIdentifier"),
            commit_kind=_commit_kind(content),
            time_millis=content.integer("timeMillis"),
            log_offsets=content.optional_integer_map("logOffsets"),
            total_record_count=content.optional_integer("totalRecordCount"),
            delta_record_count=content.optional_integer("deltaRecordCount"),
            changelog_record_count=content.optional_integer("changelogRecordCount"),
            watermark=None if watermark == _NO_WATERMARK else watermark,
            statistics=_optional_file_name(content, "statistics"),
            properties=properties,
            next_row_id=content.optional_integer("nextRowId"),
            uuid=content.optional_text("uuid"),
            operation=content.optional_text("operation"),
            writer_version=content.optional_text("writerVersion"),
            extra=content.others(_KNOWN.union(besides)),
        )
        if checksum not in (None, made.checksum):
            raise CorruptTableError(
                f"does not say what was written: its checksum is {describe(checksum)}, of what it says {made.checksum}",
                path=content.path,
                hint="the file is damaged. `verify` tells what depends on it, `repair` mends a single bit.",
            )
        return made


_KNOWN = frozenset({
    "version", "id", "schemaId", "timeMillis", "properties", "nextRowId", "uuid", "operation", "writerVersion",
    "baseManifestList", "baseManifestListSize", "deltaManifestList", "deltaManifestListSize",
    "changelogManifestList", "changelogManifestListSize", "indexManifest", "statistics", "watermark",
    "commitUser", "commitIdentifier", "commitKind", "logOffsets",
    "totalRecordCount", "deltaRecordCount", "changelogRecordCount",
})  # fmt: skip


def _file_name(content: JsonObject, key: str) -> str:
    """The name of a file, which must not lead out of its folder."""
    name = content.text(key)
    check_file_name(name, path=content.path)
    return name


def _optional_file_name(content: JsonObject, key: str) -> str | None:
    return None if content.values.get(key) is None else _file_name(content, key)


def _commit_kind(content: JsonObject) -> CommitKind:
    name = content.text("commitKind")
    try:
        return CommitKind(name)
    except ValueError as error:
        raise UnsupportedFeatureError(
            f"the commit kind {describe(name)} is not known, expected {', '.join(CommitKind)}",
            feature="commit-kind",
            path=content.path,
            hint="read the table with a newer version of Anabranch.",
        ) from error


@dataclass(frozen=True, slots=True)
class SnapshotRef(JsonRecord):
    """A snapshot by branch, number and stamp. Whoever resolves it compares the stamp."""

    WHAT: ClassVar = "reference to a snapshot"

    branch_uuid: Annotated[str, Stored(key="branch")]
    id: Annotated[int, Stored(key="snapshot", minimum=0)]
    """0 stands for the moment before the first snapshot; its stamp is empty."""
    stamp: str


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """A commit user and the number of the commit among that user's commits.

    A streaming job keeps its user and counts up, so a repeated commit is recognised. A one-shot batch
    commit has its own user.
    """

    user: str
    identifier: int

    @classmethod
    def batch(cls, runtime: Runtime) -> CommitIdentity:
        """Return a new, unique identity."""
        return cls(runtime.ids.uuid(), BATCH_COMMIT_IDENTIFIER)

    @property
    def is_batch(self) -> bool:
        return self.identifier == BATCH_COMMIT_IDENTIFIER
