"""Publishes a cascade: checks once more that the plan still holds, and replaces the mains as of that check.

Between the check and the seal a main may only get commits that the jobs on the branches make again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from anabranch.cascade.plan import work_of
from anabranch.cascade.values import CascadePlan, CascadeStep
from anabranch.cascade.work import Work
from anabranch.errors import CommitConflictError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.jobs.job import Job
from anabranch.kernel.replacement.request import SeenMain
from anabranch.kernel.replacement.result import GroupResult
from anabranch.lineage.model import entry_or_none
from anabranch.table.grouping import replace_together

if TYPE_CHECKING:
    from anabranch.lake import Lake

_LOOKS = 5
"""Most checks that the plan holds, if commits to a main keep coming in between."""


def publish(
    lake: Lake,
    work: Work,
    jobs: Sequence[Job],
    check: Callable[[], None] = lambda: None,
    *,
    by: str | None,
    reason: str | None,
) -> GroupResult:
    """Replace the mains of all tables of a plan that was carried out.

    Args:
        work: the plan, as of the start of the run.
        jobs: those that the plan was made with.
        check: raises if what the branches hold is not, or no longer, right.
        by: who does it, for people.
        reason: why; if None, the correction it follows.

    Raises `CommitConflictError`: the plan has changed meanwhile, or the mains cannot be replaced.
    """
    plan, looks = work.plan, 0
    reason = reason or (
        f"cascade of {plan.table} after replacement {plan.number}"
        if plan.tag is None
        else f"correction of {plan.table} from tag '{plan.tag}'"
    )
    while True:
        looks += 1
        seen = {step.table: _seen(lake, work, step) for step in plan.steps}
        _check_unchanged(plan, work_of(lake, plan.table, jobs, work.from_tag).plan)
        check()
        members = [(lake.table(table), plan.name) for table in plan.tables]
        try:
            return replace_together(members, seen=seen, by=by, reason=reason)
        except CommitConflictError as error:
            if looks == _LOOKS or all(one.kind != "MAIN_MOVED" for one in error.conflicts):
                raise


def _seen(lake: Lake, work: Work, step: CascadeStep) -> SeenMain:
    head = lake.table(step.table).context.snapshots.head()
    assert head is not None, "it contains what is taken out"
    again = {part.job for part in step.jobs if not part.is_batch or work.jobs[part.job].mode != "append"}
    return SeenMain(head.id, head.stamp, lambda snapshot: _is_made_again(snapshot, again))


def _is_made_again(snapshot: Snapshot, jobs: Collection[str]) -> bool:
    """Whether a commit to main can be dropped without loss: it brought no rows, or one of these jobs made it."""
    if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
        return True
    entry = entry_or_none(snapshot)
    return entry is not None and entry.taken is None and not entry.is_of_no_job and entry.job in jobs


def _check_unchanged(plan: CascadePlan, again: CascadePlan) -> None:
    """Raise `CommitConflictError` if the plan that was carried out is out of date.

    Work by hand covers only what was known when the run began: later commits are not included.
    """
    before = {step.table: step for step in plan.steps}
    changed = plan.number != again.number or before.keys() != {step.table for step in again.steps}
    for step in () if changed else again.steps:
        known = before[step.table]
        new = set(step.problems) - set(known.problems)
        jobs = {part.job for part in step.jobs} - {part.job for part in known.jobs}
        if known.fork != step.fork or jobs or new:
            changed = True
    if changed:
        raise CommitConflictError(
            f"what has to be corrected after '{plan.table}' has changed while it was being done: nothing was published",
            hint="look at it with `cascade --plan`, and run it again: what is done already stays.",
        )
