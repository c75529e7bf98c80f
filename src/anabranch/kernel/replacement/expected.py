"""The snapshot of main that a replacement expects: its number, and a stamp prefix that makes it unique."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef

ExpectedMain: TypeAlias = int | str | Snapshot | SnapshotRef
"""A number, text such as ``57`` or ``57@0c1f9a2b``, or a snapshot."""

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:@([0-9a-f]{4,64}))?")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected snapshot of main."""

    id: int
    stamp: str = ""
    """The beginning of the snapshot's stamp; empty if only its number is known."""
    branch_uuid: str | None = None
    """Identity of the branch that is expected to be main, if known."""

    @classmethod
    def of(cls, asked: ExpectedMain, branch_uuid: str | None = None) -> Expected:
        """Parse a user's expectation; `branch_uuid` is the main it refers to. Raises `InvalidInputError`."""
        match asked:
            case Snapshot():
                return cls(asked.id, asked.stamp, branch_uuid)
            case SnapshotRef():
                return cls(asked.id, asked.stamp, asked.branch_uuid)
            case bool():
                pass
            case int():
                return cls(asked, "", branch_uuid)
            case str() if match := _TEXT.fullmatch(asked):
                return cls(int(match[1]), match[2] or "", branch_uuid)
        raise InvalidInputError(
            f"'{asked}' names no snapshot of main",
            hint="write its number, or its number and the beginning of its stamp as `replace-main-branch --dry-run` says.",
        )

    def is_met_by(self, snapshot: Snapshot) -> bool:
        """Whether the expectation is met by this snapshot."""
        return snapshot.id == self.id and snapshot.stamp.startswith(self.stamp)

    def __str__(self) -> str:
        return f"{self.id}@{self.stamp[:_SHOWN]}" if self.stamp else str(self.id)


def identified(snapshot: Snapshot) -> str:
    """Format a snapshot as unique text: ``57@0c1f9a2b``."""
    return str(Expected(snapshot.id, snapshot.stamp))
