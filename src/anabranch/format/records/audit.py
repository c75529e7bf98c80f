"""The record of one audit of a branch: ``AUDIT-<n>`` in the branch's folder, write-once. Other engines ignore it.

Main has its records beside the folders of the branches, ``branch/AUDIT-<n>``, as long as it lies in the table's own
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.text.record import JsonFile, JsonRecord, Stored

AUDIT_PREFIX = "AUDIT-"


@dataclass(frozen=True, slots=True)
class CheckResult(JsonRecord):
    """Result of one check."""

    name: str
    kind: str
    """``row_count``, ``not_null``, ... as the file of checks calls it."""
    passed: bool
    expected: str
    found: str
    blocking: bool = True
    """Whether the audit fails with it; a check of severity ``warn`` only tells."""
    offending: int | None = None
    """Rows that are not as they should be, or keys that are missing; None for a check of another kind."""
    sample: tuple[Mapping[str, Any], ...] = ()
    """Some of these rows, by column, as JSON has values."""


@dataclass(frozen=True, slots=True)
class AuditRecord(JsonFile):
    """Record of an audit: the checks made at one head of a branch, and the findings."""

    name: str
    """Of the set of checks; gates ask by it."""
    snapshot: SnapshotRef
    """The head that was looked at: branch uuid, id and stamp."""
    schema_id: Annotated[int, Stored(minimum=0)]
    """Newest schema of the branch then."""
    passed: bool
    checks: tuple[CheckResult, ...]
    digest: str
    """SHA-256 of the text of the checks, 64 hex digits."""
    created_millis: int
    """Epoch milliseconds."""
    created_by: str | None = None
    against: SnapshotRef | None = None
    """What it was compared with: main's head, or what the branch began with. None for an audit of main."""
