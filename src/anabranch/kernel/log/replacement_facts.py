"""What the snapshot says that made main's content that of a branch."""

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
    """Whose content main was given, and who did it why."""

    taken: SnapshotRef
    branch: str | None
    """Its name then."""
    by: str | None = None
    reason: str | None = None

    def to_properties(self) -> Mapping[str, str]:
        """As a snapshot keeps it."""
        said: dict[str, Any] = {"by": self.taken.to_dict(), "branch": self.branch}
        said |= {} if self.by is None else {"madeBy": self.by}
        said |= {} if self.reason is None else {"reason": self.reason}
        return {REPLACE_PROPERTY: json.dumps(said)}


def replace_facts(snapshot: Snapshot | PastSnapshot) -> ReplaceFacts | None:
    """None if it is no such snapshot, or does not say it legibly."""
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
