"""Running jobs: each is settled, becomes a query, and is kept running until all are over.

What is settled before a job's first batch is written to its checkpoint, and the options that say where its sources begin
are part of the query at every start. So a kill at any moment, also in the first batch, is followed by the same batch.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError, SealedBranchError
from anabranch.jobs.checkpoint import JobCheckpoint
from anabranch.jobs.code import code_version
from anabranch.jobs.definition import definition_of
from anabranch.jobs.frames import Reading, is_batch, start_query, write_batch
from anabranch.jobs.job import Job
from anabranch.jobs.load import travel
from anabranch.jobs.looking_up import Made, made_by, made_in
from anabranch.jobs.plan import feeds, in_order
from anabranch.jobs.prepare import Prepared, Run, goes_on_at, prepare
from anabranch.jobs.queries import RunningBatch, RunningQuery
from anabranch.jobs.state.keep import StateKeeper
from anabranch.jobs.state.mirror import StateMirror
from anabranch.jobs.state.settle import settle
from anabranch.jobs.supervise import JobStatus, Policy, RunEvent, Running, Stop, Supervisor, Task
from anabranch.jobs.topics import check_kept
from anabranch.jobs.trigger import AVAILABLE_NOW, ONCE, Trigger
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spark.deploy.executors import check_shared
from anabranch.storage.open import local_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.lake import Lake


_EXECUTORS_SECONDS = 120.0
"""How long a job with state waits for executors of a cluster, to ask them whether they share the disk of its checkpoint."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long jobs run, and what happens when they fail."""

    trigger: Trigger | None = None
    """In place of those that are declared: `AVAILABLE_NOW` or `ONCE`; None for the declared ones."""
    policy: Policy = field(default_factory=Policy)
    patience_seconds: float = 60.0
    """How long a clean end waits for batches that are under way."""


def run_jobs(
    jobs: Sequence[Job],
    lake: Lake,
    run: Run | None = None,
    schedule: Schedule | None = None,
    *,
    stop: Stop | None = None,
    on_status: Callable[[Sequence[JobStatus]], None] = lambda _: None,
    on_event: Callable[[RunEvent], None] = lambda _: None,
    runtime: Runtime = SYSTEM,
) -> tuple[JobStatus, ...]:
    """Run jobs to their end, or until they are asked to stop.

    Jobs that feed each other start in that order; where those before end by themselves, once they have.

    Args:
        jobs: in the order of their declaration.
        lake: their warehouse, with a session.
        run: branch, tag and checkpoint.
        schedule: how long, and how often again.
        stop: asks for the end.
        on_status: told of all jobs, now and then; from this thread.
        on_event: told of starts and ends; from this thread.
        runtime: clock, chance and waiting.

    Returns:
        How each job ended, in the order in which they were started.

    Raises:
        InvalidInputError: they cannot be run together, or not on a branch. A job's own failure is in its status.
    """
    run, schedule = run or Run(), schedule or Schedule()
    ordered = in_order(jobs)
    _check_together(ordered, run)
    travel(ordered, lake.spark)
    reading = Reading(lake, run.source_branches)
    batches = {job.name for job in ordered if is_batch(job, reading)}
    runner = _Runner(lake, run, schedule, runtime)
    ending = batches if schedule.trigger is None else {job.name for job in ordered}
    ending |= {job.name for job in ordered if job.trigger.ends}
    feeding = feeds(ordered)
    tasks = [
        Task(
            job.name,
            job.sink if run.is_on_main else f"{job.sink}$branch_{run.branch}",
            partial(runner.start, job, job.name in batches),
            after=feeding[job.name] & ending,
            restarts=job.name not in batches,
            correcting=None if job.name in ending else runner.correcting(job),
        )
        for job in ordered
    ]
    supervisor = Supervisor(
        tasks, policy=schedule.policy, stop=stop, on_status=on_status, on_event=on_event, runtime=runtime
    )
    return supervisor.run()


@contextmanager
def stopping() -> Iterator[Stop]:
    """A `Stop` that SIGINT, SIGTERM and SIGHUP ask for; a second one asks for it at once. Of the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    asking = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, lambda *_: stop.ask()) for number in asking}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Runner:
    """Starts jobs."""

    lake: Lake
    run: Run
    schedule: Schedule
    runtime: Runtime
    begun: dict[str, list[str]] = field(default_factory=dict)
    """By job: the checkpoints with which this run has started it."""
    corrections: dict[str, _Correction] = field(default_factory=dict)
    """By job: the mains it was started with."""

    def correcting(self, job: Job) -> _Correction:
        """Tells when a job may go on whose tables are corrected."""
        return self.corrections.setdefault(job.name, _Correction(self, job))

    def start(self, job: Job, batch: bool) -> Running:
        """Settle a job and start it."""
        code = code_version(Path(job.place.file))
        if job.name in self.corrections:
            self.corrections[job.name].starts()
        prepared = prepare(job, self.lake, self.run, code, is_batch=batch)
        self._check_same_work(prepared)
        if prepared.checkpoint is not None:
            prepared.checkpoint.note_definition(definition_of(job))
        reading = Reading(self.lake, self.run.source_branches, prepared.starts)
        if batch:
            return self._start_batch(prepared, reading)
        _check_topics(prepared)
        made = self._made(job, reading)
        rows = made.rows

        def remade(starts: Mapping[str, Mapping[str, str]]) -> DataFrame:
            nonlocal made
            made = self._made(job, replace(reading, starts={**reading.starts, **starts}))
            return made.rows

        settled = settle(prepared, rows, remade, self.lake, self.run)
        state, checkpoint, keeper = settled.begun, prepared.checkpoint, None
        if state is not None and state.starts:
            rows = remade(state.starts)
        if settled.has_state and checkpoint is not None:
            keeper = self._keeper(prepared, checkpoint)
            keeper.look()  # before the first batch, after which Spark removes old state
        trigger = self.schedule.trigger or job.trigger
        query = start_query(prepared, rows, self.lake, trigger, made.looked_up)
        return RunningQuery(
            query,
            prepared.notices,
            begun=None if state is None else state.title,
            keeper=keeper,
            patience_seconds=self.schedule.patience_seconds,
            runtime=self.runtime,
        )

    def _keeper(self, prepared: Prepared, checkpoint: JobCheckpoint) -> StateKeeper:
        job, mirror = prepared.job.name, None
        if checkpoint.copies is not None:
            mirror = StateMirror(checkpoint.storage, checkpoint.copies, job, self.runtime)
        self._check_disk_is_shared(job, checkpoint)
        return StateKeeper(
            checkpoint.storage, prepared.table.context, job, checkpoint.location, mirror, self.runtime
        )

    def _check_disk_is_shared(self, job: str, checkpoint: JobCheckpoint) -> None:
        """Raise `InvalidInputError` if executors on other machines would keep state on disks of their own."""
        folder = local_folder(checkpoint.location)
        blind = None if folder is None else check_shared(self.lake.spark, folder, patience=_EXECUTORS_SECONDS)
        if blind is not None:
            raise InvalidInputError(
                f"job '{job}' keeps state below {checkpoint.location}, which executors on {blind} do not see: they would "
                "keep it each on its own disk, where no other could read it",
                hint="name a folder that all machines share, or one in an object store for which Spark has a connector: "
                "--checkpoint s3a://bucket/folder, with hadoop-aws.",
            )

    def _made(self, job: Job, reading: Reading) -> Made:
        made = made_by(job, reading)
        if not made.rows.isStreaming:
            raise InvalidInputError(
                f"{job}: its rows are not a stream, though one of its sources is",
                hint="return a DataFrame that is made of the sources.",
            )
        return made

    def _check_same_work(self, prepared: Prepared) -> None:
        """Raise `SealedBranchError` if a job that is started again would go on with the work of another query.

        That one made the branch which became main meanwhile, maybe by better code than this process has loaded. A
        cascade says that its queries have ended, and by which code they were.
        """
        if prepared.checkpoint is None:
            return
        known = self.begun.setdefault(prepared.job.name, [])
        is_ours = prepared.checkpoint.location in known or not known
        if not is_ours and not self.takes_over(prepared.job, prepared.checkpoint):
            raise SealedBranchError(
                f"main of '{prepared.job.sink}' was replaced while job '{prepared.job.name}' was to be started again, "
                "and the work of the new main is that of another query",
                hint="run the jobs anew, by the code that made the new main: they go on where that query is.",
            )
        if prepared.checkpoint.location not in known:
            known.append(prepared.checkpoint.location)

    def takes_over(self, job: Job, checkpoint: JobCheckpoint) -> bool:
        """Whether the work of a checkpoint is that of the same job, by the same code, which has ended."""
        begun, own = checkpoint.known(), definition_of(job)
        return begun is not None and begun.hands_over and own is not None and checkpoint.definitions == {own}

    def _start_batch(self, prepared: Prepared, reading: Reading) -> Running:
        job, spark = prepared.job, self.lake.spark
        run, tag = self.runtime.ids.uuid(), f"job-{job.name}"

        def work() -> None:
            spark.createDataFrame(
                [], "a INT"
            )  # Spark looks for data sources in the session that is active in the thread
            spark.addTag(tag)
            with self.lake.job(job.name, code=prepared.code) as current:
                write_batch(prepared, made_in(current, job, reading), self.lake)

        return RunningBatch(run, work, partial(spark.interruptTag, tag), job.name)


def _check_topics(prepared: Prepared) -> None:
    """Raise `NotFoundError` if a job would begin at a recorded position behind which a topic has lost records.

    Only before its first batch: a kill in it leaves no position yet. Afterwards the query itself says what is gone.
    """
    checkpoint = prepared.checkpoint
    if checkpoint is None or checkpoint.is_in_use:
        return
    for name, options in prepared.starts.items():
        source = prepared.job.sources[name]
        if source.kind == "kafka":
            check_kept(source, options)


@dataclass
class _Correction:
    """Which branches are main of a job's tables, to tell when one of them was corrected. See `Correcting`."""

    runner: _Runner
    job: Job
    sink: str | None = None
    """Identity of the sink's main when the job was last started."""
    sources: tuple[str, ...] | None = None
    """Of its sources', at the first look after that."""

    def starts(self) -> None:
        """The job is about to be started."""
        self.sink, self.sources = self._main(self.job.sink), None

    def is_corrected(self) -> bool:
        if self._main(self.job.sink) != self.sink:
            return True
        sources = tuple(self._main(name) for name in self.job.tables)
        before, self.sources = self.sources, sources
        return before is not None and before != sources

    def hands_over(self) -> bool:
        checkpoint = goes_on_at(self.job, self.runner.lake, self.runner.run)
        known = self.runner.begun.get(self.job.name, [])
        return checkpoint.location not in known[-1:] and (
            checkpoint.location in known or self.runner.takes_over(self.job, checkpoint)
        )

    def _main(self, table: str) -> str:
        return self.runner.lake.table(table).branch_uuid


def _check_together(jobs: Sequence[Job], run: Run) -> None:
    """Raise `InvalidInputError` for what only goes with a single job, or with jobs that do not feed each other."""
    if run.checkpoint is not None and len(jobs) > 1:
        raise InvalidInputError(
            f"one checkpoint is named for {len(jobs)} jobs, and each has its own",
            hint="leave --checkpoint out, or choose one job with --job.",
        )
    fed = {name: sources for name, sources in feeds(jobs).items() if sources}
    if fed and not run.is_on_main and not run.source_branches:
        name, sources = next(iter(fed.items()))
        raise InvalidInputError(
            f"job '{name}' reads what job '{min(sources)}' writes: on branch '{run.branch}' it would go on to read main",
            hint="run one of them with --job; `cascade` corrects tables downstream when the first is done.",
        )


def with_trigger(schedule: Schedule, *, available_now: bool, once: bool) -> Schedule:
    """The schedule with the trigger that flags ask for. Raises `InvalidInputError` for both."""
    if available_now and once:
        raise InvalidInputError(
            "take what is there in several batches, or in one", hint="give one of the two."
        )
    if not available_now and not once:
        return schedule
    return replace(schedule, trigger=AVAILABLE_NOW if available_now else ONCE)


def failures(statuses: Sequence[JobStatus]) -> Mapping[str, JobStatus]:
    """Those that did not end well, by the name of the job."""
    bad = ("fenced", "failed", "skipped")
    return {status.job: status for status in statuses if status.state in bad}
