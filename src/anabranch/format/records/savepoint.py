"""Savepoints: numbered moments of a table that are kept until somebody deletes them.

The file ``savepoint/savepoint-<id>`` is JSON. `id`, `savedSnapshotId`, `schemaId`, `fullManifestList`,
`recordCount` and `saveTime` are enough to read the rows of the moment. Ours say besides on which branch they were
made (`branchUuid`) and hold the snapshot itself (`savedSnapshot`), so that its time, watermark and identity outlive
its own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.layout import check_file_name, numbered_id, savepoint_id_of
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.format.text.record import Files

_PIN_PREFIX = f"{RESERVED_TAG_PREFIX}savepoint-"


class ManifestLists(Protocol):
    """Reader of manifest lists by name, such as the `manifests` of a table's context."""

    def read_list(self, name: str) -> Sequence[ManifestFileMeta]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """One moment of a table that is kept; times in milliseconds since the epoch.

    Example:
        >>> savepoint = table.create_savepoint()
        >>> savepoint.id, savepoint.saved_snapshot_id, savepoint.record_count
        (1, 2, 4)
        >>> table.at("savepoint.1").scan().count()
        4
    """

    id: int
    """Identifies the savepoint in its table, whatever the branch; never used for another one."""
    saved_snapshot_id: int
    """Which snapshot it saves."""
    schema_id: int
    """Id of the schema that was current then."""
    full_manifest_list: str
    """Name of the one manifest list, in the table's manifest folder, that names the manifests of all its data."""
    record_count: int
    """How many rows it has."""
    save_time: int | None = None
    """When it was made; None if its maker did not say."""
    branch_uuid: str | None = None
    """Identity of the branch it was made on; None if its maker did not say, which then was main."""
    saved_snapshot: Snapshot | None = field(default=None, repr=False)
    """The snapshot it saves, as its file said; None if its maker did not keep it."""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the file said beyond this, as parsed JSON."""

    @property
    def saved_time(self) -> int | None:
        """Commit time of the saved snapshot, as far as the savepoint tells."""
        return self.save_time if self.saved_snapshot is None else self.saved_snapshot.time_millis

    @property
    def pin(self) -> str:
        """Name of the tag that keeps its files from the expiry of every engine."""
        return pin_name(self.id)

    @property
    def snapshot(self) -> Snapshot:
        """The rows of the moment as a snapshot that is read through the full manifest list alone.

        It stands for the saved one in reading and in what it reaches. It never becomes a file, and its stamp is
        its own.
        """
        if self.saved_snapshot is not None:
            return replace(
                self.saved_snapshot,
                base_manifest_list=self.full_manifest_list,
                base_manifest_list_size=None,
                delta_manifest_list=NO_LIST,
                delta_manifest_list_size=None,
            )
        return Snapshot(
            id=self.saved_snapshot_id,
            schema_id=self.schema_id,
            base_manifest_list=self.full_manifest_list,
            delta_manifest_list=NO_LIST,
            commit_user="",
            commit_identifier=BATCH_COMMIT_IDENTIFIER,
            commit_kind=CommitKind.APPEND,
            time_millis=self.save_time or 0,
            total_record_count=self.record_count,
        )

    def data_manifests(self, lists: ManifestLists) -> list[ManifestFileMeta]:
        """The manifests of all data of this savepoint, in the order of their commits.

        Args:
            lists: what reads manifest lists: ``table.context.manifests``.

        Raises:
            CorruptTableError: the list is damaged or gone.
        """
        return list(lists.read_list(self.full_manifest_list))

    def to_json(self) -> bytes:
        """The content of the savepoint's file."""
        values: dict[str, Any] = {
            **self.extra,
            "id": self.id,
            "savedSnapshotId": self.saved_snapshot_id,
            "schemaId": self.schema_id,
            "fullManifestList": self.full_manifest_list,
            "recordCount": self.record_count,
        }
        if self.save_time is not None:
            values["saveTime"] = self.save_time
        if self.branch_uuid is not None:
            values["branchUuid"] = self.branch_uuid
        if self.saved_snapshot is not None:
            values["savedSnapshot"] = self.saved_snapshot.to_dict()
        return to_bytes(values)

    @classmethod
    def from_json(cls, data: bytes, *, path: str = "savepoint") -> Savepoint:
        """A savepoint from the content of its file; `path` is for messages.

        Raises:
            CorruptTableError: the file does not say what it must.
            UnsupportedFeatureError: the snapshot in it was written by a later version of the format.
        """
        content = JsonObject.parse(data, path=path)
        full_list = content.text("fullManifestList")
        check_file_name(full_list, path=path)
        savepoint = cls(
            id=content.integer("id", minimum=1),
            saved_snapshot_id=content.integer("savedSnapshotId", minimum=1),
            schema_id=content.integer("schemaId", minimum=0),
            full_manifest_list=full_list,
            record_count=content.integer("recordCount", minimum=0),
            save_time=content.optional_integer("saveTime"),
            branch_uuid=content.optional_text("branchUuid"),
            saved_snapshot=_saved_snapshot(content),
            extra=content.others(_KNOWN),
        )
        saved = savepoint.saved_snapshot
        if saved is not None and (saved.id, saved.schema_id) != (
            savepoint.saved_snapshot_id,
            savepoint.schema_id,
        ):
            content.fail(
                f"holds snapshot {saved.id} of schema {saved.schema_id}, expected snapshot "
                f"{savepoint.saved_snapshot_id} of schema {savepoint.schema_id}"
            )
        return savepoint

    @classmethod
    def from_path(cls, objects: Files, path: str) -> Savepoint:
        """The savepoint whose file is at `path`.

        Args:
            objects: what reads it: ``table.context.storage``.
            path: of the file, as `objects` takes it, or from its `url` on.

        Raises:
            NotFoundError: there is no such file.
            CorruptTableError: it does not say what it must.
        """
        found = cls.from_json(objects.get(path.removeprefix(f"{objects.url.rstrip('/')}/")), path=path)
        expected = savepoint_id_of(path)
        if expected is not None and found.id != expected:
            raise CorruptTableError(f"holds savepoint {found.id}, expected {expected}", path=path)
        return found


def pin_name(savepoint_id: int) -> str:
    """Name of the tag that pins the snapshot of a savepoint."""
    return f"{_PIN_PREFIX}{savepoint_id}"


def pinned_savepoint_of(tag_name: str) -> int | None:
    """The id of the savepoint that a tag of this name pins, or None."""
    return numbered_id(tag_name, _PIN_PREFIX)


_KNOWN = frozenset({
    "id", "savedSnapshotId", "schemaId", "fullManifestList", "recordCount", "saveTime", "branchUuid", "savedSnapshot",
})  # fmt: skip


def _saved_snapshot(content: JsonObject) -> Snapshot | None:
    values = content.values.get("savedSnapshot")
    if values is None:
        return None
    if not isinstance(values, dict):
        content.fail("'savedSnapshot' is no object, expected the content of a snapshot's file")
    return Snapshot.from_object(JsonObject(values, content.path))
