"""Whether a branch has caught up with main, by positions in their common sources.

What jobs read is recorded above the kernel, so this is passed in as a callable. Where it is not known, only a person
can say that the branch may replace main.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.shell import command_line
from anabranch.kernel.log.context import TableContext

if TYPE_CHECKING:
    from anabranch.kernel.log.context import TableContext

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Covered:
    """Progress of a branch relative to main."""

    behind: int
    """Number of main's last commits that read something the branch has not read yet."""
    resume: Snapshot | None
    """The last snapshot of the branch that reads nothing beyond main; None if its first one already does."""


@dataclass(frozen=True, slots=True)
class OnlyOnMain:
    """A commit of main that the branch lacks, and that none of its jobs will make."""

    snapshot: int
    job: str | None
    """Job that made it; None if not known."""
    source: str | None
    """The source it read and the branch does not; None if the commit does not name its sources."""
    why: Literal["origin", "source", "job", "expired"] = "origin"
    """Why it will not come: its ``origin`` is not known, the branch does not read its ``source``, or does not run
    that ``job``, which reads whole tables rather than their changes; or it and perhaps later ones have
    ``expired`` and nothing is known of them."""
    time_millis: int | None = None
    """Commit time."""
    rows: int | None = None
    """Number of rows main grew by; None if not known."""

    @property
    def reason(self) -> str:
        """Why the branch will not have it, in words."""
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
    """Commits of one job on main that the branch lacks."""

    job: str | None
    """None for commits that do not name their job."""
    commits: tuple[OnlyOnMain, ...]
    """Oldest first."""
    bring: str
    """What to do to have them on the branch as well."""

    @property
    def rows(self) -> int | None:
        """Number of rows main grew by with them; None if not known for all."""
        counts = [commit.rows for commit in self.commits]
        return sum(count for count in counts if count is not None) if None not in counts else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why they will not come, in words; each reason once."""
        return tuple(dict.fromkeys(commit.reason for commit in self.commits))

    @property
    def is_unknown(self) -> bool:
        """Whether the origin of some of their rows is not known."""
        return any(commit.why in ("origin", "expired") for commit in self.commits)

    @property
    def snapshots(self) -> str:
        """Their snapshot ids as text: ``snapshots 5, 6``."""
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
    """Group the commits that only main has by job, in the order of each job's first commit.

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
    name = str(branch)
    if job is None:
        return f"append these rows to the branch as well: `{command_line('append', table, 'FILE', '--branch', name)}`"
    if job.startswith(merge):
        return (
            f"bring what '{branch}' did into main with `{command_line('merge-branch', table, '--name', name)}`, which keeps what "
            f"came from '{job.removeprefix(merge)}', rather than replacing main"
        )
    return f"run that job on the branch as well: `{command_line('run', 'FILE', '--branch', name)}`"


class Gaps(Protocol):
    """Finds the commits that only main has."""

    def __call__(self, main: TableContext, branch: TableContext, /) -> list[OnlyOnMain]:
        """Return the commits since the fork, oldest first."""
        ...


class Coverage(Protocol):
    """Compares what main and a branch have read of their sources."""

    def __call__(
        self, main: Sequence[Snapshot], branch: Sequence[Snapshot], fork: Snapshot | None, /
    ) -> Covered | None:
        """Return the progress of the branch; None if not known.

        Args:
            main: its snapshots since the fork, oldest first.
            branch: the same of the branch.
            fork: the newest snapshot that both have, if it exists.
        """
        ...


# Lineage properties for commits that bring in rows of a branch.
#
# Lineage is known above the kernel, so this is passed in as a callable. It must not raise: missing lineage is
# no reason to stop a commit.


class Origin(Protocol):
    """Builds the lineage properties."""

    def __call__(
        self, branch: TableContext, taken: SnapshotRef, head: Snapshot, commits: Sequence[Snapshot], /
    ) -> Mapping[str, str]:
        """Return properties for the snapshot; deterministic.

        Args:
            taken: its last snapshot that is not brought in, because it was before.
            head: its last snapshot that is.
            commits: the retained and effective ones between the two, oldest first, including `head`.
        """
        ...
