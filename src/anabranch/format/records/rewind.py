"""The record of a rollback for good: ``branch/REWOUND-<n>``, written once, before the first snapshot is removed.

It names the snapshots that were removed, so that it is known later what readers saw at a time before the rollback.
Other engines ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptTableError
from anabranch.format.text.json_object import JsonObject, to_bytes

REWIND_PREFIX = "REWOUND-"
_VERSION = 1


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
                "version": _VERSION,
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
        content.version(_VERSION)
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
