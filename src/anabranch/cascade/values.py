"""The parts of a cascade plan, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.cascade.starts import SourceStart
from anabranch.lineage.trace import Range


@dataclass(frozen=True, slots=True)
class JobPart:
    """A job that makes rows of a table again."""

    job: str
    sources: tuple[SourceStart, ...]
    commits: int
    """Number of its commits that are taken out; 0 if it only continues from where it was."""
    is_batch: bool
    starts: Mapping[str, Mapping[str, str]]
    """By source, the options with which it begins there."""
    notices: tuple[str, ...] = ()
    state: str | None = None
    """How it gets the state for the point where it begins; None if it keeps none."""
    took_millis: int | None = None
    """Recorded time its commits that are made again took the first time: an estimate for now."""


@dataclass(frozen=True, slots=True)
class CascadeStep:
    """A table that is corrected."""

    table: str
    branch: str
    """Branch on which it is corrected."""
    is_there: bool
    """Whether the branch exists already."""
    fork: int | None
    """The snapshot that the branch begins with, free of what was taken out; None if there is none."""
    is_empty: bool
    """Whether the branch is emptied first, because the table contained something of it from the beginning."""
    bad: tuple[Range, ...]
    """Snapshots of main that took in what was taken out; clean ones after the fork are only made again."""
    anew: int
    """Number of commits after the fork, all of which are made again."""
    rows: int
    """Rows that these commits added."""
    jobs: tuple[JobPart, ...]
    problems: tuple[str, ...]
    """What no job can make again, and why: it has to be done by hand, on the branch."""
    notes: tuple[str, ...] = ()
    """Further notes for people."""


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """Everything that has to be done after a correction, in order."""

    table: str
    """The table that was corrected."""
    number: int
    """Number of the replacement of its main."""
    taken_out: tuple[Range, ...]
    """Snapshots of the old main that the new one does not have."""
    taken_from: tuple[str, ...]
    """Current name of the old main of each of these ranges, such as ``main@1``."""
    steps: tuple[CascadeStep, ...]
    """In the order in which the tables feed each other."""
    beside: tuple[str, ...] = ()
    """Affected branches other than main, which are left unchanged."""
    warnings: tuple[str, ...] = ()
    """Possible gaps in the plan."""
    name: str = ""
    """Name of the branches."""
    tag: str | None = None
    """The tag at which the table itself begins again; None if its main was replaced already."""
    is_named: bool = False
    """Whether the name was given, and is not derived from table and tag."""

    @property
    def is_done(self) -> bool:
        """Whether no main contains anything of what was taken out."""
        return not self.steps

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables to correct, in order."""
        return tuple(step.table for step in self.steps)

    @property
    def took_millis(self) -> int | None:
        """How long everything to be made again took the first time; None if not recorded."""
        known = [p.took_millis for step in self.steps for p in step.jobs if p.took_millis is not None]
        return sum(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "done": self.is_done, "took_millis": self.took_millis}
