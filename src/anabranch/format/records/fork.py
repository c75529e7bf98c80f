"""The record of how a branch began: ``branch/branch-<name>/FORK``, write-once. Other engines ignore it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.record import JsonFile, Stored

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
