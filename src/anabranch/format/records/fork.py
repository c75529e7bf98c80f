"""The records of a branch: how it began, its audits, and what remains of a deleted one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.record import JsonFile, JsonRecord, Stored

FORK_FILE = "FORK"
DELETING_FILE = "DELETING"
"""An empty file beside it: the branch is being deleted, and is none any more."""


@dataclass(frozen=True, slots=True)
class Fork(JsonFile):
    """The point where a branch left main, and what it may call its own."""

    branch_uuid: str
    """Identity of the branch; a branch of the same name that is made later has another."""
    name: str
    tag: str
    """The tag of main it was made from."""
    snapshot: Annotated[SnapshotRef, Stored(key="fork")]
    """The snapshot that tag named; its branch is the one that was main then."""
    schema_id: Annotated[int, Stored(minimum=0)]
    """Schema of that snapshot: schemas up to this one are main's, later ones the branch's own."""
    field_id_block: Annotated[int, Stored(minimum=0)]
    """Columns added on the branch get ids from this block; see `kernel.branches.field_ids`."""
    created_millis: int
    """Epoch milliseconds."""
    created_by: str | None = None
    """Who made it, as the operating system or the job says."""
    time_retained: Annotated[int | None, Stored(key="timeRetainedMillis", minimum=0)] = None
    """Milliseconds after its creation from which on `maintain` may delete the branch; never if None."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those of the snapshot: job, source positions, watermark."""

    @property
    def expires_millis(self) -> int | None:
        """Time from which `maintain` may delete the branch, epoch milliseconds; None if never."""
        return None if self.time_retained is None else self.created_millis + self.time_retained


# The remains of a deleted branch: ``branch/DELETED-<branch uuid>``, write-once.
#
# All other records of a branch lie in its folder and go with it. This one keeps what was done with it, for people.

DELETED_PREFIX = "DELETED-"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class BranchOperation(JsonRecord):
    """Something that was done with a branch."""

    time_millis: int
    """Epoch milliseconds."""
    operation: str
    """``created``, ``audited``, ``merged``, ``merge_given_up``, ``replaced_main``, ``undone``, ``dropped`` or ``deleted``."""
    branch: str
    """Its name then; ``main`` for the branch in the table's own folder."""
    branch_uuid: str
    snapshot_id: Annotated[int | None, Stored(key="snapshot")] = None
    """Of the branch: what it began with, what was audited or merged, what became main."""
    main_snapshot_id: Annotated[int | None, Stored(key="mainSnapshot")] = None
    """Of main: what the branch was made from, what the merge or the replacing commit made, the
    last of a main that was replaced."""
    by: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """As JSON has values."""


def operations_to_json(operations: tuple[BranchOperation, ...]) -> bytes:
    """The content of the file: all that was done with the branch, oldest first."""
    return to_bytes({"version": _VERSION, "operations": [o.to_dict() for o in operations]})


def operations_from_json(data: bytes, *, path: str) -> tuple[BranchOperation, ...]:
    """Parse a file. Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
    content = JsonObject.parse(data, path=path)
    content.version(_VERSION)
    return tuple(BranchOperation.from_dict(item, where=path) for item in content.items("operations"))


# The record of one audit of a branch: ``AUDIT-<n>`` in the branch's folder, write-once. Other engines ignore it.
#
# Main has its records beside the folders of the branches, ``branch/AUDIT-<n>``, as long as it lies in the table's own
# folder.

AUDIT_PREFIX = "AUDIT-"


@dataclass(frozen=True, slots=True)
class CheckResult(JsonRecord):
    """Result of one check."""

    name: str
    kind: str
    """``row_count``, ``not_null``, ... as the file of checks calls it."""
    passed: bool
    expected: str
    found: str
    blocking: bool = True
    """Whether the audit fails with it; a check of severity ``warn`` only tells."""
    offending: int | None = None
    """Rows that are not as they should be, or keys that are missing; None for a check of another kind."""
    sample: tuple[Mapping[str, Any], ...] = ()
    """Some of these rows, by column, as JSON has values."""


@dataclass(frozen=True, slots=True)
class AuditRecord(JsonFile):
    """Record of an audit: the checks made at one head of a branch, and the findings."""

    name: str
    """Of the set of checks; gates ask by it."""
    snapshot: SnapshotRef
    """The head that was looked at: branch uuid, id and stamp."""
    schema_id: Annotated[int, Stored(minimum=0)]
    """Newest schema of the branch then."""
    passed: bool
    checks: tuple[CheckResult, ...]
    digest: str
    """SHA-256 of the text of the checks, 64 hex digits."""
    created_millis: int
    """Epoch milliseconds."""
    created_by: str | None = None
    against: SnapshotRef | None = None
    """What it was compared with: main's head, or what the branch began with. None for an audit of main."""
