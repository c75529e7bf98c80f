"""The record of how a branch began: ``branch/branch-<name>/FORK``, write-once. Other engines ignore it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes

FORK_FILE = "FORK"
DELETING_FILE = "DELETING"
"""An empty file beside it: the branch is being deleted, and is none any more."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fork:
    """The point where a branch left main, and what it may call its own."""

    branch_uuid: str
    """Identity of the branch; a branch of the same name that is made later has another."""
    name: str
    tag: str
    """The tag of main it was made from."""
    snapshot: SnapshotRef
    """The snapshot that tag named; its branch is the one that was main then."""
    schema_id: int
    """Schema of that snapshot: schemas up to this one are main's, later ones the branch's own."""
    field_id_block: int
    """Columns added on the branch get ids from this block; see `kernel.branches.field_ids`."""
    created_millis: int
    """Epoch milliseconds."""
    created_by: str | None = None
    """Who made it, as the operating system or the job says."""
    time_retained: int | None = None
    """Milliseconds after its creation from which on `maintain` may delete the branch; never if None."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those of the snapshot: job, source positions, watermark."""

    @property
    def expires_millis(self) -> int | None:
        """Time from which `maintain` may delete the branch, epoch milliseconds; None if never."""
        return None if self.time_retained is None else self.created_millis + self.time_retained

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _VERSION,
                "branchUuid": self.branch_uuid,
                "name": self.name,
                "tag": self.tag,
                "fork": self.snapshot.to_dict(),
                "schemaId": self.schema_id,
                "fieldIdBlock": self.field_id_block,
                "createdMillis": self.created_millis,
                "createdBy": self.created_by,
                "timeRetainedMillis": self.time_retained,
                "properties": dict(self.properties),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> Fork:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        fork: Any = content.values.get("fork")
        return cls(
            branch_uuid=content.text("branchUuid"),
            name=content.text("name"),
            tag=content.text("tag"),
            snapshot=SnapshotRef.from_dict(fork, where=path),
            schema_id=content.integer("schemaId", minimum=0),
            field_id_block=content.integer("fieldIdBlock", minimum=0),
            created_millis=content.integer("createdMillis"),
            created_by=content.optional_text("createdBy"),
            time_retained=content.optional_integer("timeRetainedMillis", minimum=0),
            properties=content.optional_text_map("properties"),
        )
