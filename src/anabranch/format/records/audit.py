"""The record of one audit of a branch: ``AUDIT-<n>`` in the branch's folder, write-once. Other engines ignore it.

Main has its records beside the folders of the branches, ``branch/AUDIT-<n>``, as long as it lies in the table's own
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.text.json_object import JsonObject, to_bytes

AUDIT_PREFIX = "AUDIT-"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CheckResult:
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "passed": self.passed,
            "blocking": self.blocking,
            "expected": self.expected,
            "found": self.found,
            "offending": self.offending,
            "sample": [dict(row) for row in self.sample],
        }

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> CheckResult:
        """Raises `CorruptTableError` naming `where`."""
        match value:
            case {
                "name": str(name),
                "kind": str(kind),
                "passed": bool(passed),
                "blocking": bool(blocking),
                "expected": str(expected),
                "found": str(found),
                "offending": int() | None as offending,
                "sample": list(sample),
            } if all(isinstance(row, dict) for row in sample):
                return cls(name, kind, passed, expected, found, blocking, offending, tuple(sample))
            case _:
                raise CorruptTableError("holds what is no result of a check", path=where)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Record of an audit: the checks made at one head of a branch, and the findings."""

    name: str
    """Of the set of checks; gates ask by it."""
    snapshot: SnapshotRef
    """The head that was looked at: branch uuid, id and stamp."""
    schema_id: int
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

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes(
            {
                "version": _VERSION,
                "name": self.name,
                "snapshot": self.snapshot.to_dict(),
                "schemaId": self.schema_id,
                "passed": self.passed,
                "checks": [check.to_dict() for check in self.checks],
                "digest": self.digest,
                "createdMillis": self.created_millis,
                "createdBy": self.created_by,
                "against": None if self.against is None else self.against.to_dict(),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> AuditRecord:
        """Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        content = JsonObject.parse(data, path=path)
        content.version(_VERSION)
        passed = content.values.get("passed")
        if not isinstance(passed, bool):
            content.fail("'passed' is neither true nor false")
        against = content.values.get("against")
        return cls(
            name=content.text("name"),
            snapshot=SnapshotRef.from_dict(content.values.get("snapshot"), where=path),
            schema_id=content.integer("schemaId", minimum=0),
            passed=passed,
            checks=tuple(CheckResult.from_dict(item, where=path) for item in content.items("checks")),
            digest=content.text("digest"),
            created_millis=content.integer("createdMillis"),
            created_by=content.optional_text("createdBy"),
            against=None if against is None else SnapshotRef.from_dict(against, where=path),
        )
