"""Metadata of the snapshot that gave main the content of a branch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.log.properties import REPLACE_PROPERTY


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
