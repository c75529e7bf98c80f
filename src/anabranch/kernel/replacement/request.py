"""The request and state of a replacement of main, and the snapshot of main that it expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.provenance.coverage import Coverage, Gaps, Origin
from anabranch.lazy import lazy

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


@dataclass(frozen=True, slots=True)
class SeenMain:
    """State of main when the branch's content was checked against it."""

    snapshot: int
    """Id of its newest snapshot."""
    stamp: str
    """Stamp of that snapshot."""
    may_follow: Callable[[Snapshot], bool]
    """Whether a given later commit to main is harmless."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A requested replacement of main, with its conditions."""

    branch: str
    expect_main: Expected | None = None
    """Expected newest snapshot of main; if it differs, nothing is done."""
    wait_millis: int | None = None
    """How long to wait until the branch has caught up with main; None to skip the check."""
    force: bool = False
    """Replace main even if the check failed, or the branch's progress is not known."""
    audit: str | bool = False
    """An audit that the branch must have passed in its current state: by name, or any if True."""
    by: str | None = None
    reason: str | None = None
    coverage: Coverage | None = None
    """Compares what both have read of their sources; None if not known."""
    gaps: Gaps | None = None
    """Finds what only main has; None if not known."""
    origin: Origin | None = None
    """Lineage of the commit's rows, if it is one that replaces rows; None if not known."""
    seen: SeenMain | None = None
    """State of main and what may have been added since; with anything else nothing is done."""


@dataclass(frozen=True)
class Replacing:
    """A replacement that passed its check."""

    main: TableContext
    target: TableContext
    fork: SnapshotRef
    wishes: Replacement
    undoes: int | None = None
    """The replacement that is undone; its past is there already."""

    @lazy
    def main_since(self) -> SinceFork:
        """Snapshots of main above the fork."""
        return SinceFork(self.main, self.fork)

    @lazy
    def target_since(self) -> SinceFork:
        """Snapshots of the branch above the fork."""
        return SinceFork(self.target, self.fork)


@dataclass
class SinceFork:
    """The snapshots of a branch above its fork, each read once."""

    context: TableContext
    fork: SnapshotRef

    def __post_init__(self) -> None:
        self._known: list[Snapshot] = []

    def until(self, head: Snapshot | None) -> list[Snapshot]:
        """Return the retained ones up to `head`, oldest first."""
        last = self._known[-1].stamp if self._known else None
        if head is not None and last is not None and head.properties.get(PARENT_PROPERTY) == last:
            self._known = [*self._known, head]  # right on top of what is known
            return self._known
        new: list[Snapshot] = []
        goes_on = False
        lowest = max(self.fork.id, self._known[-1].id if self._known else 0)
        for snapshot in () if head is None else self.context.snapshots.down_to(head, lowest):
            goes_on = snapshot.stamp == last
            if goes_on or snapshot.id <= self.fork.id:
                break
            new.append(snapshot)
        self._known = [*(self._known if goes_on else ()), *reversed(new)]
        return self._known
