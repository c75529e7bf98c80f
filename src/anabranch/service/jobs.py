"""Job files, run by a Spark that is started for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.errors import UnsupportedFeatureError
from anabranch.jobs.job import Job
from anabranch.jobs.load import NoSessionError, jobs_of, load_all
from anabranch.jobs.plan import chosen, feeds, in_order
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import Schedule, run_jobs, stopping, with_trigger
from anabranch.jobs.supervise import JobStatus, Policy, RunEvent
from anabranch.lake import connect
from anabranch.service.local_spark import local_spark

if TYPE_CHECKING:
    from anabranch.jobs.supervise import Stop

__all__ = [
    "JobStatus",
    "Planned",
    "Policy",
    "Run",
    "Schedule",
    "Spark",
    "declared",
    "planned",
    "run",
    "with_trigger",
]


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark that jobs are run by."""

    master: str | None = None
    """Where it runs; this machine if neither this nor ``spark.master`` among the settings says."""
    conf: Mapping[str, str] = field(default_factory=dict)
    loud: bool = False
    """Whether what it says itself goes to standard error."""

    @property
    def where(self) -> str | None:
        """The master; None where the settings say."""
        return self.master or (None if "spark.master" in self.conf else "local[*]")


@dataclass(frozen=True, slots=True)
class Planned:
    """A job in the order in which it starts."""

    job: str
    sink: str
    sources: tuple[str, ...]
    after: tuple[str, ...]
    """Jobs that feed it."""
    trigger: str
    place: str


def declared(
    files: Sequence[str], names: Sequence[str] = (), *, warehouse: str, spark: Spark | None = None
) -> list[Job]:
    """The jobs of some files; those of these names, or all. Raises what `anabranch.jobs.load.load` raises.

    A Spark is started for files that cannot be loaded without one.
    """
    try:
        return chosen(list(jobs_of(load_all(files))), names)
    except NoSessionError:
        check_spark()
    how = spark or Spark()
    with local_spark(warehouse, "anabranch", master=how.where, conf=how.conf, quiet=not how.loud):
        return chosen(list(jobs_of(load_all(files))), names)


def planned(jobs: Sequence[Job]) -> list[Planned]:
    """The jobs in the order in which they start. Raises `InvalidInputError` if they feed each other in a circle."""
    feeding = feeds(jobs)
    return [
        Planned(
            job.name,
            job.sink,
            tuple(f"{name}: {source}" for name, source in job.sources.items()),
            tuple(sorted(feeding[job.name])),
            str(job.trigger),
            str(job.place),
        )
        for job in in_order(jobs)
    ]


def run(
    warehouse: str,
    jobs: Sequence[Job],
    how: Run,
    schedule: Schedule,
    spark: Spark,
    *,
    on_status: Callable[[Sequence[JobStatus]], None],
    on_stop: Callable[[Stop], None] = lambda _: None,
    on_event: Callable[[RunEvent], None] = lambda _: None,
) -> tuple[JobStatus, ...]:
    """Run jobs until all are over, or SIGINT, SIGTERM or SIGHUP asks for the end; how each ended.

    Args:
        warehouse: path or URL.
        jobs: the jobs.
        how: branch, tag and checkpoint.
        schedule: how long, and how often again.
        spark: what runs them.
        on_status: told of all jobs, now and then.
        on_stop: told once how the end can be asked for.
        on_event: told of starts and ends.

    Raises:
        UnsupportedFeatureError: PySpark is not installed.
        InvalidInputError: the jobs cannot be run together, or not on a branch.
    """
    check_spark()
    name = f"anabranch run {' '.join(job.name for job in jobs)}"
    # PySpark takes SIGINT for itself when a session starts: signals are ours from then on.
    with (
        local_spark(warehouse, name, master=spark.where, conf=spark.conf, quiet=not spark.loud) as session,
        stopping() as stop,
    ):
        on_stop(stop)
        lake = connect(warehouse, spark=session)
        return run_jobs(jobs, lake, how, schedule, stop=stop, on_status=on_status, on_event=on_event)


def check_spark() -> None:
    """Raise `UnsupportedFeatureError` if PySpark is not installed: asked for before anything is begun."""
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UnsupportedFeatureError(
            "jobs need Spark, which is not installed",
            feature="spark",
            hint="pip install 'anabranch[spark]', and Java 17 or newer.",
        ) from error
