"""The result of a cascade."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from anabranch.cascade.values import CascadePlan, CascadeStep
from anabranch.jobs.status import JobStatus
from anabranch.kernel.replacement.result import GroupResult


@dataclass(frozen=True, slots=True, repr=False)
class CascadeResult:
    """Result of a cascade run. Running it again continues from there.

    A job that failed, or a table that somebody has to finish, is no exception: then nothing is published, see `is_published`.
    """

    plan: CascadePlan
    done: tuple[str, ...]
    """Tables whose branches have been made again, in order."""
    statuses: tuple[JobStatus, ...] = ()
    """Final status of each job of this run."""
    waiting: CascadeStep | None = None
    """A table that somebody has to finish by hand before the cascade can continue."""
    group: GroupResult | None = None
    """What was published; None if nothing was."""

    @property
    def failed(self) -> tuple[JobStatus, ...]:
        """The jobs that did not finish."""
        return tuple(status for status in self.statuses if status.state.value != "ended")

    @property
    def is_published(self) -> bool:
        """Whether no main contains anything of what was taken out any more."""
        return self.plan.is_done or self.group is not None

    def __repr__(self) -> str:
        if self.is_published:
            tables = () if self.group is None else (name for name, _ in self.group.tables)
            said = f"published: {', '.join(tables) or 'nothing was left to do'}"
        elif self.waiting is not None:
            said = f"not published: waits for '{self.waiting.table}', which somebody has to finish"
        else:
            failed = (f"job '{one.job}' {one.state.value}: {one.message}" for one in self.failed)
            said = "; ".join(("not published", *failed))
        return f"<CascadeResult {said}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "plan": self.plan.to_dict(),
            "done": list(self.done),
            "jobs": [asdict(status) for status in self.statuses],
            "waiting": None if self.waiting is None else self.waiting.table,
            "group": None if self.group is None else asdict(self.group),
            "published": self.is_published,
        }
