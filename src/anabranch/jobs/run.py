"""Runs jobs: each is prepared, becomes a query, and is kept running until all are over.

What is settled before a job's first batch is written to its checkpoint, and the options that say where its sources begin
are part of the query at every start. So a kill at any moment, also in the first batch, is followed by the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.jobs.checkpoint import check_places
from anabranch.jobs.frames import SourceReading, is_batch
from anabranch.jobs.job import Job
from anabranch.jobs.lease import Leases
from anabranch.jobs.load import feeds, in_order, travel
from anabranch.jobs.prepare import Run
from anabranch.jobs.runner import Runner
from anabranch.jobs.status import JobStatus, RunEvent
from anabranch.jobs.supervise import Supervisor
from anabranch.jobs.task import Stop, Task
from anabranch.jobs.trigger import Schedule
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spark.context.running import is_alive

if TYPE_CHECKING:
    from anabranch.lake import Lake


ALSO = ", or choose one job with --job"
"""What else than a folder for all jobs helps where one checkpoint is named for several."""


def run_jobs(
    jobs: Sequence[Job],
    lake: Lake,
    run: Run | None = None,
    schedule: Schedule | None = None,
    *,
    stop: Stop | None = None,
    on_status: Callable[[Sequence[JobStatus]], None] = lambda _: None,
    on_event: Callable[[RunEvent], None] = lambda _: None,
    leases: Leases | None = None,
    runtime: Runtime = SYSTEM,
) -> tuple[JobStatus, ...]:
    """Run jobs to their end, or until they are stopped.

    Jobs that feed each other start in that order; where those before end by themselves, once they have.

    Args:
        jobs: in the order of their declaration.
        lake: their warehouse, with a session.
        run: branch, tag and checkpoint.
        schedule: how long, and how often again.
        stop: requests the end.
        on_status: called with all jobs, from time to time; from this thread.
        on_event: called for starts and ends; from this thread.
        leases: told what the jobs are doing, and tells what others ask of them. With these, jobs of main hold consumers of the
            tables that they read.
        runtime: clock, randomness and sleeping.

    Returns:
        How each job ended, in the order in which they were started.

    Raises:
        InvalidInputError: they cannot be run together, or not on a branch. A job's own failure is in its status.
    """
    run, schedule = run or Run(), schedule or Schedule()
    ordered = in_order(jobs)
    _check_fed(ordered, run)
    travel(ordered, lake.spark)
    reading = SourceReading(lake, run.source_branches)
    batches = frozenset(job.name for job in ordered if is_batch(job, reading))
    check_places(run.places, len(ordered) - len(batches), ALSO)
    is_held = leases is not None
    runner = Runner(*(lake, run, schedule, runtime), is_held=is_held, pins_sources=is_held and run.is_on_main)

    def tell(statuses: Sequence[JobStatus]) -> None:
        if leases is not None:
            leases.note(statuses)
        on_status(statuses)

    supervisor = Supervisor(
        _tasks(ordered, batches, runner),
        policy=schedule.policy,
        stop=stop,
        on_status=tell,
        on_event=on_event,
        others=leases,
        has_engine=partial(is_alive, lake.spark),
        is_away=partial(_is_away, lake),
        runtime=runtime,
    )
    return supervisor.run()


def _is_away(lake: Lake) -> bool:
    """Whether the warehouse, which had databases, has none just now: its disk or mount is not there."""
    try:
        return not lake.catalog.databases()
    except AnabranchError:
        return True


def _tasks(jobs: Sequence[Job], batches: frozenset[str], runner: Runner) -> list[Task]:
    """Return what is supervised, in the order of the jobs; `batches` are those without a stream among their sources."""
    run, feeding = runner.run, feeds(jobs)
    ending = batches if runner.schedule.trigger is None else {job.name for job in jobs}
    ending |= {job.name for job in jobs if job.trigger.ends}
    return [
        Task(
            job.name,
            job.sink if run.is_on_main else f"{job.sink}$branch_{run.branch}",
            partial(runner.start, job, job.name in batches),
            after=feeding[job.name] & ending,
            restarts=job.name not in batches,
            ends=job.name in ending,
            correcting=None if job.name in ending else runner.correcting(job),
        )
        for job in jobs
    ]


def _check_fed(jobs: Sequence[Job], run: Run) -> None:
    """Raise `InvalidInputError` for jobs on a branch that feed each other."""
    fed = {name: sources for name, sources in feeds(jobs).items() if sources}
    if fed and not run.is_on_main and not run.source_branches:
        name, sources = next(iter(fed.items()))
        raise InvalidInputError(
            f"job '{name}' reads what job '{min(sources)}' writes: on branch '{run.branch}' it would go on to read main",
            hint="run one of them with --job; `cascade` corrects tables downstream when the first is done.",
        )


def failures(statuses: Sequence[JobStatus]) -> Mapping[str, JobStatus]:
    """Return the statuses that did not end well, by the name of the job."""
    bad = ("fenced", "failed", "skipped", "lost")
    return {status.job: status for status in statuses if status.state in bad}
