"""The remains of a deleted branch: ``branch/DELETED-<branch uuid>``, write-once.

All other records of a branch lie in its folder and go with it. This one keeps what was done with it, for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.record import JsonRecord, Stored

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
