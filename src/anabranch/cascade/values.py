"""What a plan of a cascade consists of: plain values."""

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
    """How many commits it had made that are taken out; 0 if it only goes on from where it was."""
    is_batch: bool
    starts: Mapping[str, Mapping[str, str]]
    """By source, the options with which it begins there."""
    notices: tuple[str, ...] = ()
    state: str | None = None
    """How it gets the state that belongs to the point where it begins; None if it keeps none."""
    took_millis: int | None = None
    """How long its commits that are made again took the first time, as far as they say: what to expect of it now."""


@dataclass(frozen=True, slots=True)
class CascadeStep:
    """A table that is corrected."""

    table: str
    branch: str
    """On which it is corrected."""
    is_there: bool
    """Whether the branch has been created already."""
    fork: int | None
    """The snapshot that the branch begins with, which contains nothing of what was taken out; None if none is left."""
    is_empty: bool
    """Whether the branch is emptied first, because the table contained something of it from the beginning."""
    bad: tuple[Range, ...]
    """Snapshots of main that took in what was taken out; those after the fork that did not are only made again."""
    anew: int
    """How many commits come after the fork, all of which are made again."""
    rows: int
    """Rows that these commits added."""
    jobs: tuple[JobPart, ...]
    problems: tuple[str, ...]
    """What no job can make again, and why: somebody has to do it by hand, on the branch."""
    notes: tuple[str, ...] = ()
    """What else a person should know."""


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """All that has to be done after a correction, in order."""

    table: str
    """The table that was corrected."""
    number: int
    """Of the replacement of its main."""
    taken_out: tuple[Range, ...]
    """Snapshots of the old main that the new one does not have."""
    taken_from: tuple[str, ...]
    """For each of these ranges, what that old main is called now, such as ``main@1``."""
    steps: tuple[CascadeStep, ...]
    """In the order in which the tables feed each other."""
    beside: tuple[str, ...] = ()
    """Branches that took in something of it and are not main: nothing is done about them."""
    warnings: tuple[str, ...] = ()
    """Where the plan may lack something."""
    name: str = ""
    """What the branches are called."""
    tag: str | None = None
    """The tag at which the table itself begins again; None if its main was replaced already."""

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
        """How long all that is made again took the first time; None if no commit says it."""
        known = [p.took_millis for step in self.steps for p in step.jobs if p.took_millis is not None]
        return sum(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "done": self.is_done, "took_millis": self.took_millis}
