"""Runs a cascade: branches, jobs, audits, and one write that makes all branches main.

1. *Create* for each table a branch that begins with its fork.
2. *Run* its jobs on it, in order, until they have read everything available: each from its positions at the fork, and
   reading the branches of the tables that are corrected.
3. *Audit* the branches, if asked to.
4. *Publish*: check once more that the plan still holds, and replace the mains of all tables as one group.

Before the last step nothing is visible to readers. A repeated run continues where it was: branches exist, checkpoints
hold the jobs' positions, and the group is made once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anabranch.cascade.affected import Affected
from anabranch.cascade.checks import (
    check_all_end,
    check_reads,
    check_same_code,
    is_current,
    made_by,
    partitions_left,
)
from anabranch.cascade.plan import moment_at, work_of
from anabranch.cascade.publish import publish
from anabranch.cascade.result import CascadeResult
from anabranch.cascade.schemas import take_in_schema
from anabranch.cascade.starts import on_corrected
from anabranch.cascade.values import CascadePlan, CascadeStep
from anabranch.cascade.work import Work
from anabranch.cascade.writers import EMPTYING
from anabranch.errors import AnabranchError, CommitConflictError, InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.jobs.checkpoint import Places, check_places
from anabranch.jobs.job import Job
from anabranch.jobs.prepare import Run, goes_on_at
from anabranch.jobs.run import run_jobs
from anabranch.jobs.status import JobStatus, RunEvent
from anabranch.jobs.task import Policy, Stop
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.jobs.underway import CorrectionScope, carried_out
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.branches.create import create_branch
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.moment import Moment
from anabranch.kernel.log.seals import is_replaced_by
from anabranch.kernel.replacement.take_past import copy_past
from anabranch.lineage.model import LINEAGE_PROPERTY, LineageEntry, entry_or_none

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table


Runner = Callable[["Job", "Lake", Run], Sequence[JobStatus]]
"""Runs a job until it has read everything available, and returns its final status. Repeated, it continues."""


@dataclass(frozen=True, slots=True)
class CascadeOptions:
    """How to run a cascade."""

    publish: bool = True
    """Whether to make the branches main once they are done."""
    by_hand: Collection[str] = ()
    """Tables for which the user confirms that the work no job can do was done by hand on their branches."""
    audits: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
    """Files of checks that the branches must pass, by table."""
    accept_empty_state: Collection[str] = ()
    """Jobs that may begin without state if none can be recovered: their tables may lack what was open at the point."""
    by: str | None = None
    reason: str | None = None
    only: Collection[str] | None = None
    """The tables whose mains may change, as somebody has confirmed them; None for those of the plan."""
    checkpoint: str | None = None
    """Folder of the checkpoint of main's job, if a single one with a stream among its sources is to run. That of its branch
    lies beside it, as ``<that>@<branch>``."""
    checkpoints: str | None = None
    """Folder with the checkpoints of all jobs, by their names and branches; of the warehouse if None."""

    @property
    def places(self) -> Places:
        """Where checkpoints are, as far as it is said."""
        return Places(self.checkpoint, self.checkpoints)


def run_cascade(
    lake: Lake,
    table: str,
    jobs: Sequence[Job],
    options: CascadeOptions | None = None,
    *,
    runner: Runner | None = None,
    stop: Stop | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> CascadeResult:
    """Correct the tables made from what was taken out of a table, and publish them together.

    Args:
        lake: the warehouse, with a Spark session for its jobs.
        table: the table whose main was replaced.
        jobs: those that write the tables, with their names in lineage.
        options: how.
        runner: runs a job; `on_spark` if None.
        stop: requests the end, which comes when the current job has ended.
        tell: called with progress messages for people, before each step; what it raises ends the run there.

    Raises:
        NotFoundError: there is no such table, or its main was never replaced.
        InvalidInputError: a branch of that name begins otherwise; a named table is not to be corrected; or one checkpoint is
            named for several jobs.
        CommitConflictError: an audit failed, the plan has changed meanwhile, or the mains cannot be
            replaced. All mains are as they were.
        JobTakenError: another process carries it out.
    """
    options, stop = options or CascadeOptions(), stop or Stop()

    def planned() -> Work:
        return work_of(lake, table, jobs, places=options.places)

    return carry_out(lake, planned, jobs, options, runner=runner, stop=stop, tell=tell)


def carry_out(
    lake: Lake,
    planned: Callable[[], Work],
    jobs: Sequence[Job],
    options: CascadeOptions,
    *,
    checks: str | os.PathLike[str] | None = None,
    runner: Runner | None,
    stop: Stop,
    tell: Callable[[str], None],
) -> CascadeResult:
    """Carry out what `planned` returns, as the only process that does; otherwise as `run_cascade`.

    `checks` is a file of checks for the table itself.
    """
    work = planned()
    if work.plan.is_done:
        return CascadeResult(work.plan, ())
    if checks is not None:
        options = replace(options, audits={**options.audits, work.plan.table: checks})
    what = CorrectionScope(work.plan.name, work.plan.table, work.plan.tag, work.plan.tables)
    with carried_out(lake, what, tell) as told:
        if told is not tell:
            work = planned()  # until now another process may have carried it out, or replaced main
        if work.plan.name == what.name:
            check_options(work.plan, options)
            check_all_end(work, lake)
            return _Cascade(lake, work, options, runner or on_spark(stop), stop, told).run(jobs)
    return carry_out(lake, planned, jobs, options, runner=runner, stop=stop, tell=tell)


def on_spark(
    stop: Stop | None = None,
    *,
    policy: Policy | None = None,
    on_status: Callable[[Sequence[JobStatus]], None] = lambda _: None,
    on_event: Callable[[RunEvent], None] = lambda _: None,
) -> Runner:
    """Return a runner that uses the lake's session until all available input is read. Arguments as of `run_jobs`."""

    def run(job: Job, lake: Lake, how: Run) -> Sequence[JobStatus]:
        schedule = Schedule(AVAILABLE_NOW, policy or Policy())
        return run_jobs([job], lake, how, schedule, stop=stop, on_status=on_status, on_event=on_event)

    return run


@dataclass
class _Cascade:
    lake: Lake
    work: Work
    options: CascadeOptions
    runner: Runner
    stop: Stop
    tell: Callable[[str], None]
    statuses: list[JobStatus] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> CascadeResult:
        plan = self.work.plan
        if plan.is_done:
            return CascadeResult(plan, ())
        steps = dict(zip(plan.tables, zip(plan.steps, self.work.tables, strict=True), strict=True))
        for step, one in steps.values():
            if step.fork is None:
                raise InvalidInputError(f"'{step.table}' cannot be corrected: {step.problems[0]}")
            self._create(step, one)
        for name, (step, one) in steps.items():
            if step.problems and name not in self.options.by_hand:
                return self._result(waiting=step)
            if not self._make(step, one):
                return self._result()
            left = None if name in self.options.by_hand else self._left(step, one)
            if left is not None:
                return self._result(waiting=left)
            self._audit(step)  # before anything is made from rows that do not pass
            self.done.append(name)
        if self.work.from_tag is not None:
            # New input since then, so that readers do not see less than before for long.
            for step, one in steps.values():
                if not self._make(step, one):
                    return self._result()
                self._audit(step)
        if not self.options.publish:
            return self._result()
        by, reason = self.options.by, self.options.reason
        group = publish(self.lake, self.work, jobs, self._check_reads, by=by, reason=reason)
        return CascadeResult(plan, tuple(self.done), tuple(self.statuses), group=group)

    def _result(self, waiting: CascadeStep | None = None) -> CascadeResult:
        return CascadeResult(self.work.plan, tuple(self.done), tuple(self.statuses), waiting)

    def _create(self, step: CascadeStep, one: Affected) -> None:
        """Create the branch of a table, with main's past, so that it can be read from before its fork."""
        assert step.fork is not None, "checked above"
        main = main_of(one.main)
        if not step.is_there:
            self.tell(f"{step.table}: branch {step.branch} begins with snapshot {step.fork}")
        moment = moment_at(main, step.fork)
        branch = _branch_of(main, step)
        if branch is None:
            branch = create_branch(main, step.branch, step.branch, moment=moment, created_by=self.options.by)
        fork = branch.fork
        head = branch.snapshots.head()
        first = None if fork is None else branch.snapshots.find(fork.snapshot.id + 1)
        is_as_said = first is None or _empties(first) == step.is_empty
        if fork is None or fork.snapshot.stamp != moment.snapshot.stamp or not is_as_said:
            raise InvalidInputError(
                f"there is a branch '{step.branch}' of '{step.table}' already, which begins otherwise than with snapshot "
                f"{step.fork}{', emptied' if step.is_empty else ''}",
                hint=f"delete it: delete-branch {step.table} --name {step.branch}.",
            )
        copy_past(main, branch, fork.snapshot)
        if step.is_empty and head is not None and head.stamp == fork.snapshot.stamp:
            said = LineageEntry("cascade", None, None, EMPTYING).to_json()
            self._table(step).commit(Overwrite([]), properties={LINEAGE_PROPERTY: said})
        self._change_schema(step, main, moment)

    def _change_schema(self, step: CascadeStep, main: TableContext, moment: Moment) -> None:
        """Change the branch's schema as main's was since: current jobs write by it, and main must not lose it."""
        if self._was_main(step):
            return
        changes = take_in_schema(main, self._table(step).context, moment.snapshot.schema_id)
        if changes:
            self.tell(
                f"{step.table}: branch {step.branch} gets what was changed on main since: {', '.join(changes)}"
            )

    def _make(self, step: CascadeStep, one: Affected) -> bool:
        """Run the jobs of a table on its branch; return whether all of them finished."""
        if self._was_main(step):
            self.tell(f"{step.table}: {step.branch} was main before; its jobs go on when it is main again")
            return True
        corrected = self.work.corrected(made=True)
        # Its own table too: a job may look up what it has written itself.
        branches = {c.table: c.branch for c in corrected.values() if c.branch is not None}
        branch = self._table(step).context
        for part in step.jobs:
            if self.stop.is_asked():
                return False
            job = self.work.jobs[part.job]
            has_run = part.is_batch and next(made_by(branch, part.job), None) is not None
            if has_run and (job.mode == "append" or is_current(self.lake, job, branch, branches)):
                continue
            places = self.options.places
            how = Run(
                step.branch,
                checkpoint=places.one,
                checkpoints=places.root,
                makes_branch=True,
                hands_over=True,
            )
            checkpoint = None if part.is_batch else goes_on_at(job, self.lake, how)
            check_same_code(self.work.plan, step, job, branch, checkpoint)
            check_reads(self.work, step, part.job, branch, corrected)
            start = self.work.start(job, one, corrected)
            if start.problem is not None:
                raise InvalidInputError(f"job '{part.job}' cannot go on: {start.problem}")
            self.tell(f"{step.table}: running {part.job} on {step.branch}")
            how = replace(
                how,
                source_branches=branches,
                starts=start.options,
                point=start.point,
                file_logs=start.file_logs,
                moved=on_corrected(self.work.read(job, corrected).values()),
                accept_empty_state=self.options.accept_empty_state,
            )
            ended = self.runner(job, self.lake, how)
            self.statuses += ended
            if any(status.state.value != "ended" for status in ended):
                return False
            check_reads(self.work, step, part.job, branch, corrected)
        return True

    def _check_reads(self) -> None:
        """Check once more what all jobs have read: other mains may have been replaced meanwhile."""
        corrected = self.work.corrected(made=True)
        for step in self.work.plan.steps:
            branch = self._table(step).context
            for part in step.jobs:
                check_reads(self.work, step, part.job, branch, corrected)
        # The last step before it: who has lost the correction to another process is stopped by what it tells.
        self.tell(f"publishing {', '.join(self.work.plan.tables)}")

    def _left(self, step: CascadeStep, one: Affected) -> CascadeStep | None:
        """Return the step with what its batch jobs have not made again, if anything."""
        branch = self._table(step).context
        jobs = [self.work.jobs[part.job] for part in step.jobs if part.is_batch]
        left = [text for job in jobs if (text := partitions_left(job, one, branch)) is not None]
        return replace(step, problems=(*step.problems, *left)) if left else None

    def _was_main(self, step: CascadeStep) -> bool:
        """Whether the branch was published and undone: then nothing is written to it until it is main again."""
        context = self._table(step).context
        head = context.snapshots.head()
        return head is not None and is_replaced_by(context, head) is not None

    def _audit(self, step: CascadeStep) -> None:
        checks = self.options.audits.get(step.table)
        if checks is None:
            return
        verdict = self._table(step).audit(checks, by=self.options.by)
        self.tell(f"{step.table}: {verdict}")
        if not verdict:
            raise CommitConflictError(
                f"'{step.table}$branch_{step.branch}' did not pass its audit: all mains are as they were",
                hint="correct the rows on the branch, or the job, and run the cascade again.",
            )

    def _table(self, step: CascadeStep) -> Table:
        return self.lake.table(f"{step.table}$branch_{step.branch}")


def _branch_of(main: TableContext, step: CascadeStep) -> TableContext | None:
    try:
        return open_branch(main, step.branch)
    except AnabranchError:
        return None  # or it is being created: creating it again completes it


def _empties(snapshot: Snapshot) -> bool:
    """Whether a snapshot emptied the branch of a cascade."""
    entry = entry_or_none(snapshot)
    return entry is not None and entry.engine.query == EMPTYING.query


def check_options(plan: CascadePlan, options: CascadeOptions) -> None:
    """Check how a plan is to be carried out, before anything is begun.

    Raises:
        InvalidInputError: a table is named that is not corrected, or one checkpoint for several jobs.
        CommitConflictError: a table would change that must not.
    """
    running = {part.job for step in plan.steps for part in step.jobs if not part.is_batch}
    check_places(options.places, len(running))
    unknown = sorted({*options.by_hand, *options.audits} - {*plan.tables})
    if unknown and not plan.is_done:
        raise InvalidInputError(
            f"'{unknown[0]}' is not to be corrected after '{plan.table}' was",
            hint=f"to correct are: {', '.join(plan.tables)}.",
        )
    others = [name for name in plan.tables if options.only is not None and name not in options.only]
    if others and not plan.is_done:
        raise CommitConflictError(
            f"this would change main of {', '.join(others)}, which was not confirmed",
            hint="look at the plan again: something was made of the table meanwhile.",
        )
