"""A reference to one snapshot that stays true: numbers alone are reused after rollbacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptTableError


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A snapshot by branch, number and stamp. Whoever resolves it compares the stamp."""

    branch_uuid: str
    id: int
    """0 stands for the moment before the first snapshot; its stamp is empty."""
    stamp: str

    def to_dict(self) -> dict[str, Any]:
        return {"branch": self.branch_uuid, "snapshot": self.id, "stamp": self.stamp}

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> SnapshotRef:
        """Raises `CorruptTableError` naming `where` if `value` is not what `to_dict` gives."""
        match value:
            case {"branch": str(branch), "snapshot": int(number), "stamp": str(stamp)} if number >= 0:
                return cls(branch, number, stamp)
            case _:
                raise CorruptTableError("is no reference to a snapshot (branch, snapshot, stamp)", path=where)
