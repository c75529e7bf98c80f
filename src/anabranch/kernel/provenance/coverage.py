"""Whether a branch has caught up with main, in the positions of the sources that both were made from.

What jobs read is recorded above the kernel, so this comes in as a callable. Where it is not known, only a person can
say that the branch may take main's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from anabranch.format.records.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.kernel.log.context import TableContext

_SHOWN = 10


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
    why: Literal["origin", "source", "job", "expired"] = "origin"
    """Why it is not going to come: its ``origin`` is not known, the branch does not read its ``source``, or does not run
    that ``job``, which reads tables as they are and not what is new in them; or it and perhaps others after it have
    ``expired`` and nothing is known of them."""
    time_millis: int | None = None
    """When it was committed."""
    rows: int | None = None
    """By how many rows main grew with it; None if that is not known."""

    @property
    def reason(self) -> str:
        """Why the branch is not going to have it, in words."""
        match self.why:
            case "source":
                return f"it read {self.source}, of which the branch reads nothing"
            case "job":
                return "the branch does not run that job"
            case "expired":
                return "snapshots from here on have expired, and nothing is known of them"
            case _:
                return "it does not say what it read"


@dataclass(frozen=True, slots=True)
class JobOnMain:
    """What one job committed to main that the branch lacks."""

    job: str | None
    """None for commits that do not say who made them."""
    commits: tuple[OnlyOnMain, ...]
    """Oldest first."""
    bring: str
    """What to do to have it on the branch as well."""

    @property
    def rows(self) -> int | None:
        """By how many rows main grew with them; None if that is not known of all."""
        counts = [commit.rows for commit in self.commits]
        return sum(count for count in counts if count is not None) if None not in counts else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why they are not going to come, in words; each reason once."""
        return tuple(dict.fromkeys(commit.reason for commit in self.commits))

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known of all of them where their rows come from."""
        return any(commit.why in ("origin", "expired") for commit in self.commits)

    @property
    def snapshots(self) -> str:
        """The numbers of its snapshots: ``snapshots 5, 6``."""
        shown = ", ".join(str(commit.snapshot) for commit in self.commits[:_SHOWN])
        more = len(self.commits) - _SHOWN
        return f"snapshot{'' if len(self.commits) == 1 else 's'} {shown}" + (
            f" and {more} more" if more > 0 else ""
        )

    def __str__(self) -> str:
        who = "" if self.job is None else f" by job '{self.job}'"
        rows = "" if self.rows is None else f", {self.rows:+,} rows"
        return f"{self.snapshots}{who}{rows}: {'; '.join(self.reasons)}"


def by_job(commits: Iterable[OnlyOnMain], table: str, branch: str | None) -> tuple[JobOnMain, ...]:
    """What only main has, job by job, in the order of the first commit of each.

    Args:
        commits: oldest first.
        table: name of the table.
        branch: name of the branch that lacks them.
    """
    found: dict[str | None, list[OnlyOnMain]] = {}
    for commit in commits:
        found.setdefault(commit.job, []).append(commit)
    return tuple(JobOnMain(job, tuple(made), _bring(job, table, branch)) for job, made in found.items())


def _bring(job: str | None, table: str, branch: str | None) -> str:
    merge = "merge-branch "
    if job is None:
        return f"append these rows to the branch as well: `anabranch append {table} FILE --branch {branch}`"
    if job.startswith(merge):
        return (
            f"bring what '{branch}' did into main with `anabranch merge-branch {table} --name {branch}`, which keeps what "
            f"came from '{job.removeprefix(merge)}', rather than replacing main"
        )
    return f"run that job on the branch as well: `anabranch run FILE --branch {branch}`"


class Gaps(Protocol):
    """Finds what only main has."""

    def __call__(self, main: TableContext, branch: TableContext, /) -> list[OnlyOnMain]:
        """The commits since the two parted, oldest first."""
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
