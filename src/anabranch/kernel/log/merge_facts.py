"""Merge metadata of a snapshot, stored in its commit user and a property."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.json_object import check_version
from anabranch.kernel.log.properties import MERGE_PROPERTY

_VERSION: Final = 1
MERGE_USER: Final = "merge:"
"""Prefix of the commit users of merges; the uuid of the branch follows."""


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """Merge metadata of a snapshot."""

    branch_uuid: str
    branch: str
    """Its name."""
    head: SnapshotRef
    """The snapshot of the branch that was merged."""
    replaced: frozenset[bytes] = frozenset()
    """Partition rows whose files were replaced by the branch's."""
    theirs: frozenset[bytes] = frozenset()
    """Those of them where both sides had changes and a person chose the branch's."""
    ours: frozenset[bytes] = frozenset()
    """Partition rows that a person chose to leave as they are on main."""
    is_ended: bool = False
    """Whether this only marks a merge as ended without merging, so that a delayed process stops."""

    def to_text(self) -> str:
        """The value of the property."""
        return json.dumps(
            {
                "version": _VERSION,
                "branch": self.branch_uuid,
                "name": self.branch,
                "head": self.head.to_dict(),
                "replaced": sorted(row.hex() for row in self.replaced),
                "theirs": sorted(row.hex() for row in self.theirs),
                "ours": sorted(row.hex() for row in self.ours),
                "ended": self.is_ended,
            },
            separators=(",", ":"),
        )


def merge_facts(snapshot: Snapshot | PastSnapshot) -> MergeFacts:
    """Parse the merge metadata of a snapshot. Raises `CorruptTableError` if it is missing or unreadable."""
    where = f"snapshot {snapshot.id}"
    try:
        value = json.loads(snapshot.properties[MERGE_PROPERTY])
        check_version(value.get("version"), _VERSION, path=where)
        replaced, theirs, ours = (
            frozenset(bytes.fromhex(row) for row in value[key]) for key in ("replaced", "theirs", "ours")
        )
        return MergeFacts(
            str(value["branch"]),
            str(value["name"]),
            SnapshotRef.from_dict(value["head"], where=where),
            replaced,
            theirs,
            ours,
            bool(value["ended"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(f"property '{MERGE_PROPERTY}' cannot be read", path=where) from error


def is_marker(snapshot: Snapshot) -> bool:
    """Whether a merge's snapshot only marks that the merge was ended."""
    return merge_facts(snapshot).is_ended
