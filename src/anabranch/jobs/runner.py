"""Starts a job: it is prepared, gets its state, and becomes a query, or a batch in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError, NotFoundError, SealedBranchError
from anabranch.jobs.checkpoint import JobCheckpoint, set_aside
from anabranch.jobs.definition import definition_of
from anabranch.jobs.deployment import deploy, deployment_of
from anabranch.jobs.failure import verdict
from anabranch.jobs.frames import Made, SourceReading, made_by, made_in, next_run, start_query, write_batch
from anabranch.jobs.job import Job
from anabranch.jobs.pins import SourcePins
from anabranch.jobs.prepare import Prepared, Run, goes_on_at, prepare, sink_of
from anabranch.jobs.queries import RunningBatch, RunningQuery
from anabranch.jobs.source import check_kept
from anabranch.jobs.starts import resumed
from anabranch.jobs.state.checks import check_whole
from anabranch.jobs.state.keep import StateKeeper
from anabranch.jobs.state.mirror import StateMirror
from anabranch.jobs.state.operators import check_ends, operators_of
from anabranch.jobs.state.settle import settle
from anabranch.jobs.task import RunningTask
from anabranch.jobs.trigger import Schedule
from anabranch.lineage.code_version import code_version
from anabranch.runtime import Runtime
from anabranch.spark.deploy.executors import check_shared
from anabranch.storage.open import local_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.lake import Lake

_EXECUTORS_SECONDS = 120.0
"""How long a stateful job waits for executors of a cluster, to check that they share the disk of its checkpoint."""


@dataclass(frozen=True)
class Runner:
    """Starts jobs."""

    lake: Lake
    run: Run
    schedule: Schedule
    runtime: Runtime
    is_held: bool = False
    """Whether no other process runs the jobs."""
    pins_sources: bool = False
    """Whether consumers keep what jobs have not read: not for runs on branches, which go with these."""
    begun: dict[str, list[str]] = field(default_factory=dict)
    """By job: the checkpoints with which this run has started it."""
    swept: set[str] = field(default_factory=set)
    """Jobs whose checkpoint was cleaned of unfinished files."""
    started: set[str] = field(default_factory=set)
    """Jobs whose query has been started."""
    renewed: set[str] = field(default_factory=set)
    """Jobs whose checkpoint was set aside."""
    corrections: dict[str, CorrectionWatch] = field(default_factory=dict)
    """By job: the mains it was started with."""

    def correcting(self, job: Job) -> CorrectionWatch:
        """Return what tells when a job may continue whose tables are being corrected."""
        return self.corrections.setdefault(job.name, CorrectionWatch(self, job))

    def start(self, job: Job, batch: bool) -> RunningTask:
        """Prepare a job and start it."""
        code = code_version(Path(job.place.file))
        if job.name in self.corrections:
            self.corrections[job.name].starts()
        self._renew(job, batch)
        prepared = prepare(job, self.lake, self.run, code, is_batch=batch)
        self._check_same_work(prepared)
        if self.is_held and prepared.checkpoint is not None and job.name not in self.swept:
            self.swept.add(job.name)
            prepared.checkpoint.sweep()
        if prepared.checkpoint is not None:
            check_whole(prepared.checkpoint, job.name)
            prepared.checkpoint.note_definition(definition_of(job))
        reading = SourceReading(self.lake, self.run.source_branches, prepared.starts)
        if batch:
            return self._start_batch(prepared, reading)
        _check_topics(prepared)
        made = self._made(job, reading)
        rows = made.rows

        def remade(starts: Mapping[str, Mapping[str, str]]) -> DataFrame:
            nonlocal made
            made = self._made(job, replace(reading, starts={**reading.starts, **starts}))
            return made.rows

        checkpoint = prepared.checkpoint
        assert checkpoint is not None, "a streaming job has one"
        operators = operators_of(rows, definition_of(job))
        if self.run.makes_branch:
            check_ends(job.name, job.sink, operators)
        now = deployment_of(job, self.lake, code, operators)
        told = (*prepared.notices, *deploy(checkpoint, now, job.name))
        with self._holding(job, checkpoint) as pins:
            settled = settle(prepared, rows, operators, remade, self.lake, run=self.run)
            state, keeper = settled.begun, None
            if state is not None and state.starts:
                rows = remade(state.starts)
            if settled.has_state or job.reads_files:
                keeper = self._keeper(prepared, checkpoint, has_state=settled.has_state)
                keeper.look()  # before the first batch, after which Spark removes old state
            trigger = self.schedule.trigger or job.trigger
            query = start_query(prepared, rows, self.lake, trigger, made.looked_up)
        self.started.add(job.name)
        return RunningQuery(
            query,
            told,
            begun=None if state is None else state.title,
            keeper=keeper,
            pins=pins,
            patience_seconds=self.schedule.patience_seconds,
            runtime=self.runtime,
        )

    @contextmanager
    def _holding(self, job: Job, checkpoint: JobCheckpoint) -> Iterator[SourcePins | None]:
        """Hold what the job has not read, from before it is settled where its sources begin, which may be at the oldest that is left."""
        if not self.pins_sources:
            yield None
            return
        pins = SourcePins(job, self.lake, self.runtime)
        pins.begin(anew=not checkpoint.is_in_use)
        try:
            yield pins
        except Exception as error:
            # What is tried again needs what it holds, and so does what was begun: it may read once more what its state is made of.
            what = verdict(error, has_run=job.name in self.started)
            if what == "final" and not checkpoint.is_in_use:
                pins.withdraw()
            raise

    def _renew(self, job: Job, batch: bool) -> None:
        """Set a checkpoint aside that the job is not to go on with: at its first start in this run only."""
        if job.name not in self.run.renew or job.name in self.renewed or batch:
            return
        self.renewed.add(job.name)
        with suppress(NotFoundError):  # the table, or the branch, is told of by what follows
            checkpoint = goes_on_at(job, self.lake, self.run)
            if job.name not in self.run.start_anew:  # what it could not go on without is not set aside
                sink, places = sink_of(job, self.lake, self.run), self.run.places
                resumed(job, self.lake, sink, places, checkpoint.location, since_fork=False)
            set_aside(checkpoint, self.lake.storage_options)

    def _keeper(self, prepared: Prepared, checkpoint: JobCheckpoint, *, has_state: bool) -> StateKeeper:
        job, mirror = prepared.job.name, None
        if checkpoint.copies is not None:
            mirror = StateMirror(checkpoint.storage, checkpoint.copies, job, self.runtime, has_state)
        if has_state:
            self._check_disk_is_shared(job, checkpoint)
        return StateKeeper(
            *(checkpoint.storage, prepared.table.context, job, checkpoint.location, mirror, self.runtime),
            has_state=has_state,
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
                "--checkpoints s3a://bucket/folder, with hadoop-aws.",
            )

    def _made(self, job: Job, reading: SourceReading) -> Made:
        made = made_by(job, reading)
        if not made.rows.isStreaming:
            raise InvalidInputError(
                f"{job}: its rows are not a stream, though one of its sources is",
                hint="return a DataFrame that is made of the sources.",
            )
        return made

    def _check_same_work(self, prepared: Prepared) -> None:
        """Raise `SealedBranchError` if a restarted job would continue the work of another query.

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
        """Whether a checkpoint belongs to a finished run of the same job with the same code."""
        begun, own = checkpoint.known(), definition_of(job)
        return begun is not None and begun.hands_over and own is not None and checkpoint.definitions == {own}

    def _start_batch(self, prepared: Prepared, reading: SourceReading) -> RunningTask:
        job, spark = prepared.job, self.lake.spark
        run, tag = self.runtime.ids.uuid(), f"job-{job.name}"
        # A correction knows which runs it has made, and another process may take it over meanwhile.
        number = next_run(prepared) if self.run.makes_branch else None

        def work() -> None:
            spark.createDataFrame(
                [], "a INT"
            )  # Spark looks for data sources in the session that is active in the thread
            spark.addTag(tag)
            with self.lake.job(job.name, code=prepared.code) as current:
                write_batch(prepared, made_in(current, job, reading), self.lake, number)

        return RunningBatch(
            *(run, work, partial(spark.interruptTag, tag), job.name),
            patience_seconds=self.schedule.patience_seconds,
            runtime=self.runtime,
        )


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
class CorrectionWatch:
    """Tracks which branches are main of a job's tables, to tell when one of them was corrected. See `Correcting`."""

    runner: Runner
    job: Job
    sink: str | None = None
    """Identity of the sink's main when the job was last started."""
    sources: tuple[str, ...] | None = None
    """Of its sources', at the first look after that."""

    def starts(self) -> None:
        """Record that the job is about to be started."""
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
