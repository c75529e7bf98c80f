"""Runs job files, with a Spark started for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from anabranch.errors import NotFoundError, StorageError, UnsupportedFeatureError
from anabranch.jobs.board import Board, JobRecord
from anabranch.jobs.checkpoint import check_places
from anabranch.jobs.job import Job
from anabranch.jobs.lease import Leases, Wanted
from anabranch.jobs.load import NoSessionError, chosen, feeds, in_order, jobs_of, load_all, travel
from anabranch.jobs.local_spark import local_spark
from anabranch.jobs.prepare import Run
from anabranch.jobs.preview import PlannedJob, planned_job, preview
from anabranch.jobs.run import ALSO, run_jobs
from anabranch.jobs.signals import interruptible, stopping
from anabranch.jobs.status import JobStatus, RunEvent
from anabranch.jobs.taking import take
from anabranch.jobs.task import Policy, Stop
from anabranch.jobs.trigger import Schedule, with_trigger
from anabranch.lake import Lake, connect
from anabranch.runtime import Runtime
from anabranch.storage.open import open_storage

__all__ = [
    "JobStatus",
    "PlannedJob",
    "Policy",
    "Run",
    "Schedule",
    "Spark",
    "Stop",
    "declared",
    "planned",
    "run",
    "with_trigger",
]


T = TypeVar("T")

_TAKE_OVER_SECONDS = 45.0
"""Beyond the limit of a stop: until the other process looks, and until it has ended."""


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark that runs jobs."""

    master: str | None = None
    """Where it runs; this machine if neither this nor ``spark.master`` in the settings is given."""
    conf: Mapping[str, str] = field(default_factory=dict)
    loud: bool = False
    """Whether its own output goes to standard error."""

    @property
    def where(self) -> str | None:
        """The master; None if the settings give it."""
        return self.master or (None if "spark.master" in self.conf else "local[*]")


def declared(
    files: Sequence[str], names: Sequence[str] = (), *, warehouse: str, spark: Spark | None = None
) -> list[Job]:
    """Return the jobs of some files; those of these names, or all. Raises what `anabranch.jobs.load.load` raises.

    Spark is started for files that cannot be loaded without it.
    """
    try:
        return chosen(list(jobs_of(load_all(files))), names)
    except NoSessionError:
        check_spark()
    how = spark or Spark()
    session = local_spark(warehouse, "anabranch", master=how.where, conf=how.conf, quiet=not how.loud)
    with interruptible(), session:
        return chosen(list(jobs_of(load_all(files))), names)


def planned(warehouse: str, jobs: Sequence[Job], how: Run, spark: Spark) -> list[PlannedJob]:
    """Return the jobs in start order, each with what has changed since its last start; nothing is written.

    Spark is started where it must tell whether the operators with state are the same.

    Raises `InvalidInputError` if jobs feed each other in a circle, or one checkpoint is named for several.
    """
    check_places(how.places, _streaming(jobs), ALSO)
    ordered = in_order(jobs)
    previews = {job.name: preview(job, warehouse, how) for job in ordered}
    asked = [job for job in ordered if previews[job.name].needs_spark]
    if asked and has_spark():
        with local_spark(
            warehouse, "anabranch", master=spark.where, conf=spark.conf, quiet=not spark.loud
        ) as session:
            lake = connect(warehouse, spark=session)
            travel(ordered, session)
            previews |= {job.name: preview(job, warehouse, how, lake) for job in asked}
    feeding = feeds(jobs)
    return [planned_job(job, feeding[job.name], previews[job.name]) for job in ordered]


def run(
    warehouse: str,
    jobs: Sequence[Job],
    how: Run,
    schedule: Schedule,
    spark: Spark,
    *,
    take_over: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    on_status: Callable[[Sequence[JobStatus]], None],
    on_stop: Callable[[Stop], None] = lambda _: None,
    on_event: Callable[[RunEvent], None] = lambda _: None,
) -> tuple[JobStatus, ...]:
    """Run jobs until all have ended, or SIGINT, SIGTERM or SIGHUP stops them; return how each ended. See `run_jobs`.

    Args:
        take_over: end the jobs in other processes that run them, after the batch they are at.
        tell: told what is waited for.
        on_stop: told once how the end can be asked for.

    Raises:
        UnsupportedFeatureError: PySpark is not installed.
        InvalidInputError: the jobs cannot be run together, or not on a branch.
        JobTakenError: another process runs one of them.
    """
    check_places(how.places, _streaming(jobs), ALSO)
    check_spark()
    name = f"anabranch run {' '.join(job.name for job in jobs)}"
    with interruptible():
        leases = _leases(warehouse, jobs, how, schedule, take_over=take_over, tell=tell)
        # PySpark handles SIGINT itself when a session starts: signals are ours from then on.
        with (
            leases.beating(),
            local_spark(
                warehouse, name, master=spark.where, conf=spark.conf, quiet=not spark.loud
            ) as session,
            stopping() as stop,
        ):
            on_stop(stop)
            lake = connect(warehouse, spark=session)
            return run_jobs(
                *(jobs, lake, how, schedule), stop=stop, on_status=on_status, on_event=on_event, leases=leases
            )


def _streaming(jobs: Sequence[Job]) -> int:
    """Return the number of jobs that have a checkpoint, as far as it is known without calling functions among their sources."""
    return sum(any(source.is_stream for source in job.sources.values()) for job in jobs)


def _leases(
    warehouse: str,
    jobs: Sequence[Job],
    how: Run,
    schedule: Schedule,
    *,
    take_over: bool,
    tell: Callable[[str], None],
) -> Leases:
    """Take the jobs for this process. One whose table is not there is left out: its start tells."""
    lake = connect(warehouse)
    board = Board(open_storage(lake.url, lake.storage_options))

    def look() -> list[Wanted]:
        held = [*board.all()]
        wanted = [one for job in jobs if (one := _wanted(job, lake, how, held)) is not None]
        if wanted:
            board.sweep()
        return wanted

    wanted = _patiently(look, schedule, tell, board.runtime)
    patience = schedule.patience_seconds + _TAKE_OVER_SECONDS
    return take(board, wanted, take_over=take_over, patience_seconds=patience, tell=tell)


def _patiently(look: Callable[[], T], schedule: Schedule, tell: Callable[[str], None], runtime: Runtime) -> T:
    """Look again for as long as the store is away, as running jobs do: a machine may start before its store.

    Who asks for what is there now gets the error: somebody waits for the answer.
    """
    for tries in count(1):
        try:
            return look()
        except StorageError as error:
            if not error.retryable or schedule.trigger is not None:
                raise
            if tries == 1:
                tell(f"{error.message}; tried again until the store answers")
            pause = schedule.policy.pause(tries, runtime.ids.jitter(), passing=True)
            runtime.sleeper.sleep(pause)
    raise AssertionError("it is counted without end")


def _wanted(job: Job, lake: Lake, how: Run, held: Sequence[JobRecord]) -> Wanted | None:
    """Return the name under which a job is held, wherever its checkpoint is: by the branch that it writes to.

    A branch that is main now has the names of both. Who ran the job when another branch was main holds it by that one's name,
    and has gone over to this main since.
    """
    try:
        main = lake.table(job.sink).context.branch
    except NotFoundError:
        return None
    key = job.name if how.is_on_main else f"{job.name}@{how.branch}"
    sink = job.sink if how.is_on_main else f"{job.sink}$branch_{how.branch}"
    is_batch = not _streaming([job])
    if not how.is_on_main and how.branch != main:
        return Wanted(key, job.name, sink, is_batch=is_batch)
    key = job.name if main is None else f"{job.name}@{main}"
    sinks = (job.sink, f"{job.sink}$branch_{main}")
    others = {one.key for one in held if one.job == job.name and one.sink in sinks}
    return Wanted(key, job.name, sink, also=tuple(sorted({job.name, *others} - {key})), is_batch=is_batch)


def has_spark() -> bool:
    """Whether PySpark is installed."""
    try:
        check_spark()
    except UnsupportedFeatureError:
        return False
    return True


def check_spark() -> None:
    """Raise `UnsupportedFeatureError` if PySpark is not installed: called before anything is begun."""
    try:
        import pyspark  # noqa: F401 - only to see whether it is installed
    except ImportError as error:
        raise UnsupportedFeatureError(
            "jobs need Spark, which is not installed",
            feature="spark",
            hint="pip install 'anabranch[spark]', and Java 17 or newer.",
        ) from error
