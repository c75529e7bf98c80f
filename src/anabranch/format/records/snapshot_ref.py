"""A reference to one snapshot that stays true: numbers alone are reused after rollbacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from anabranch.format.text.record import JsonRecord, Stored


@dataclass(frozen=True, slots=True)
class SnapshotRef(JsonRecord):
    """A snapshot by branch, number and stamp. Whoever resolves it compares the stamp."""

    WHAT: ClassVar = "reference to a snapshot"

    branch_uuid: Annotated[str, Stored(key="branch")]
    id: Annotated[int, Stored(key="snapshot", minimum=0)]
    """0 stands for the moment before the first snapshot; its stamp is empty."""
    stamp: str
