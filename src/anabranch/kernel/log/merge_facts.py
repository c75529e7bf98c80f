"""What the snapshot of a merge says of it, in its commit user and its property."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.properties import MERGE_PROPERTY

MERGE_USER: Final = "merge:"
"""Commit users of merges begin so; the uuid of the branch follows."""


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What the snapshot of a merge says of it."""

    branch_uuid: str
    branch: str
    """Its name."""
    head: SnapshotRef
    """The snapshot of the branch that was merged."""
    replaced: frozenset[bytes] = frozenset()
    """Partition rows whose files were replaced by the branch's."""
    theirs: frozenset[bytes] = frozenset()
    """Those of them that were chosen by a person where both sides had changed them."""
    ours: frozenset[bytes] = frozenset()
    """Those that a person chose to leave as they are."""
    is_ended: bool = False
    """Whether nothing was merged, so that whoever began it and was held up stops."""

    def to_text(self) -> str:
        """The value of the property."""
        return json.dumps(
            {
                "version": 1,
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
    """What the snapshot of a merge says of it. Raises `CorruptTableError` if it says nothing that can be read."""
    where = f"snapshot {snapshot.id}"
    try:
        value = json.loads(snapshot.properties[MERGE_PROPERTY])
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
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(f"property '{MERGE_PROPERTY}' cannot be read", path=where) from error


def is_marker(snapshot: Snapshot) -> bool:
    """Whether a snapshot by a merge's commit user only says that the merge was ended."""
    return merge_facts(snapshot).is_ended
