"""Properties that our snapshots carry: their keys, and what the ones of merges and replacements say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.json_object import check_version

BRANCH_PROPERTY = "anabranch.branch"
"""Identity of the branch a snapshot was made on."""
WRITER_PROPERTY = "anabranch.writer"
"""Marks our snapshots, with the version of the writer."""
PARENT_PROPERTY = "anabranch.parent"
"""Stamp of the snapshot it was built on."""
OVERWRITE_PROPERTY = "anabranch.overwrite"
"""Partitions that an overwrite replaced."""
EXPIRED_PARTITIONS_PROPERTY = "anabranch.expired-partitions"
"""Partitions that an overwrite took away because of their age."""
ROLLBACK_PROPERTY = "anabranch.rollback"
"""Snapshot that a rollback restored."""
WATERMARK_PROPERTY = "anabranch.watermark"
"""Event-time progress of the sources of the rows."""
AHEAD_PROPERTY = "anabranch.rows-ahead"
"""Number of rows of a commit whose event times are too far ahead of the clock to move the watermark."""
WATERMARK_SINCE_PROPERTY = "anabranch.watermark-since"
"""Id of the last snapshot whose watermark was reset, so that it may be lower than the one before."""
REWRITE_PROPERTY = "anabranch.rewrite"
"""How a compaction rewrote files; rows are unchanged."""
MERGE_PROPERTY = "anabranch.merge"
"""Branch that a snapshot of main merged, up to which snapshot, and how."""
FENCE_PROPERTY = "anabranch.fence"
"""Marks a branch snapshot that only records a merge point: compaction keeps older rows from younger ones."""
SEAL_PROPERTY = "anabranch.seal"
"""Number of the replacement of main for which this snapshot, which changes nothing, seals the old main."""
REPLACE_PROPERTY = "anabranch.replace"
"""Branch whose content an overwrite put in place of main's."""
LEFTOVER_PROPERTY = "anabranch.leftover"
"""Stamp of the overtaken writer's snapshot in whose place this one was stored."""


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


@dataclass(frozen=True, slots=True)
class ReplaceFacts:
    """Branch and snapshot whose content main was given, by whom and why."""

    taken: SnapshotRef
    branch: str | None
    """The branch's name at the time."""
    by: str | None = None
    reason: str | None = None

    def to_properties(self) -> Mapping[str, str]:
        """Return these facts as snapshot properties."""
        said: dict[str, Any] = {"by": self.taken.to_dict(), "branch": self.branch}
        said |= {} if self.by is None else {"madeBy": self.by}
        said |= {} if self.reason is None else {"reason": self.reason}
        return {REPLACE_PROPERTY: json.dumps(said)}


def replace_facts(snapshot: Snapshot | PastSnapshot) -> ReplaceFacts | None:
    """Parse the facts of a snapshot; None if it has none, or they are unreadable."""
    text = snapshot.properties.get(REPLACE_PROPERTY)
    if text is None:
        return None
    try:
        said = json.loads(text)
        taken = SnapshotRef.from_dict(said["by"], where=f"snapshot {snapshot.id}")
    except (ValueError, KeyError, TypeError, CorruptTableError):
        return None
    texts = (said.get(key) for key in ("branch", "madeBy", "reason"))
    return ReplaceFacts(taken, *(text if isinstance(text, str) else None for text in texts))
