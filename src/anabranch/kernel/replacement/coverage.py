"""Whether a branch has caught up with main, in the positions of the sources that both were made from.

What jobs read is recorded above the kernel, so this comes in as a callable. Where it is not known, only a person can
say that the branch may take main's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.spec.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Covered:
    """How far a branch is, beside main."""

    behind: int
    """How many of main's last commits read something that the branch has not read yet."""
    resume: Snapshot | None
    """The last snapshot of the branch until which nothing is read beyond main; None if its first one goes beyond."""


@dataclass(frozen=True, slots=True)
class OnlyOnMain:
    """A commit of main that the branch lacks, and that none of its jobs is going to make."""

    snapshot: int
    job: str | None
    """Who made it; None if that is not known."""
    source: str | None
    """What it read and the branch does not; None if the commit does not say what it read."""


class Gaps(Protocol):
    """Finds what only main has."""

    def __call__(
        self, main: Sequence[Snapshot], branch: Sequence[Snapshot], fork: Snapshot | None, /
    ) -> list[OnlyOnMain]:
        """The commits, oldest first. Takes what `Coverage` takes."""
        ...


class Coverage(Protocol):
    """Compares what main and a branch have read of their sources."""

    def __call__(
        self, main: Sequence[Snapshot], branch: Sequence[Snapshot], fork: Snapshot | None, /
    ) -> Covered | None:
        """How far the branch is; None if it is not known.

        Args:
            main: its snapshots after the two parted, oldest first.
            branch: the same of the branch.
            fork: the newest snapshot that both have, if it is there.
        """
        ...
