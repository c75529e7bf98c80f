"""Lineage of a batch write of Spark: the job that its commit records, and the inputs (found by `plan_inputs`).

The job is the one of `Lake.job`, where one is running; else what the option ``anabranch.job`` of the write says, or the
setting of that name of the session; else it is called as the application. Nothing here raises: what cannot be found out
is a problem that the entry tells of, and the log once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.lineage.code_version import git_commit
from anabranch.lineage.columns import column_origins
from anabranch.lineage.joining import joined
from anabranch.lineage.model import LINEAGE_PROPERTY, ColumnOrigin, Engine, LineageEntry
from anabranch.lineage.reads import ORIGINS
from anabranch.lineage.recording import Gathered, JobRun, Taken, WritePlan, unknown_rows
from anabranch.lineage.remembered import Handed
from anabranch.options import CODE_VERSION, JOB
from anabranch.runtime import SYSTEM
from anabranch.spark.context.options import CHECKPOINT
from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import connect_lineage, plans
from anabranch.spark.lineage.batch_reads import gathered
from anabranch.spark.lineage.batch_reads import seen as seen_in
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.given_values import holds_values
from anabranch.spark.lineage.lookups import Lookups, lookups_of
from anabranch.spark.lineage.plan_inputs import PlanInputs, found_in
from anabranch.spark.lineage.stream_lineage import BatchSources, batch_sources
from anabranch.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE_BATCH: Final = (
    "the rows of this batch went through a function, and may be made of what this process had read before: {}; read inside "
    "of the function"
)
_GIVEN_BEFORE: Final = "values or functions in the plan may be made of what this process had read before: {}; read and write inside of lake.job()"
_GIVEN_THERE: Final = (
    "values or functions in the plan may be made of what the program had read through Spark Connect, which does not tell: name "
    "it with job.read_from() inside of lake.job()"
)
_LOG = logging.getLogger(__name__)
_TOLD: set[tuple[str, str]] = set()
"""Jobs and problems that the log has reported already."""


@dataclass(frozen=True, slots=True)
class WriteProducer:
    """Job, run, code version and engine of a write, as far as the session knows them."""

    job: str
    run: str | None
    code: str | None
    engine: Engine


HoldsValues = Callable[[], bool]
"""Tells whether a plan may hold values that the program computed."""

_STATEMENT: ContextVar[str | None] = ContextVar("anabranch statement", default=None)


@contextmanager
def statement(text: str) -> Iterator[None]:
    """Attribute the frames written in the block to this statement, which Spark got in another form."""
    token = _STATEMENT.set(text)
    try:
        yield
    finally:
        _STATEMENT.reset(token)


class FrameOrigin:
    """Lineage of a frame: to be made before the rows are written, and queried afterwards."""

    def __init__(self, frame: DataFrame, table: Table, run: JobRun | None) -> None:
        """Look at the sources now if Spark will not say afterwards what it read.

        Args:
            frame: as it was handed over.
            run: the job that is running, if one is.
        """
        self._taken: Taken | None = None
        self._begun = SYSTEM.clock.monotonic()
        self._frame = frame
        self._table = table
        self._run = run
        self._plan: Any = None
        self._before = PlanInputs()
        if context_of(frame.sparkSession) is None:
            try:
                self._plan = connect_lineage.plan_of(frame)
                self._before = connect_lineage.sources_of(frame, self._plan)
            except Exception as error:  # whatever Spark is made of: lineage must not stop a commit
                _LOG.debug("the plan cannot be read: %s", error)

    def properties(self, written: DataFrame) -> Mapping[str, str]:
        """Return the properties for the commit, once `written`, which wrote the rows, was carried out."""
        spark, table, run = self._frame.sparkSession, self._table, self._run
        try:
            holds: HoldsValues = _not_seen
            if context_of(spark) is not None:
                found = found_in(Jvm(spark), lambda: plans.executed_leaves(written))
                text = plans.statement_text(self._frame)
                holds = lambda: holds_values(plans.plan_of(self._frame))  # noqa: E731 - it may never be asked
            else:
                plan = self._plan or connect_lineage.plan_of(self._frame)
                found = connect_lineage.settled(self._before, connect_lineage.sources_of(self._frame, plan))
                text = _STATEMENT.get() or connect_lineage.statement_of(plan)
                given = connect_lineage.holds_values(plan, _STATEMENT.get())
                holds = lambda: given  # noqa: E731
                if given and (run is None or not run.is_told):
                    found.problems.append(_GIVEN_THERE)
            self._taken = _taken(table, run, found, holds)
            millis = round((SYSTEM.clock.monotonic() - self._begun) * 1000)
            names = self._frame.columns
            return _said(
                spark, table, run, found, self._taken, text=text, written=names, millis=millis, holds=holds
            )
        except Exception as error:  # as above
            self._taken = None
            return _hardly(table, run, error)

    def told(self, sink: str) -> None:
        """Record the lineage of a commit to the branch of that identity."""
        if self._run is not None and self._taken is not None:
            self._run.committed(sink, self._taken)


def command_origin(jvm: Jvm, table: Table, run: JobRun | None) -> Mapping[str, str]:
    """Return the lineage properties of the command that this thread of Spark is planning."""

    def holds() -> bool:
        return holds_values(plans.command_plan(jvm))

    try:
        found = found_in(jvm, lambda: plans.command_leaves(jvm))
        taken = _taken(table, run, found, holds)
        return _said(jvm.spark, table, run, found, taken, text=plans.command_text(jvm), holds=holds)
    except Exception as error:  # as above
        return _hardly(table, run, error)


def rows_in_batch(table: Any, rows: Handed | None) -> Mapping[str, str] | None:
    """Return the properties for in-memory rows written by a ``foreachBatch`` function; None outside of one."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public word for it
        return None
    try:
        spark = SparkSession.getActiveSession()
        batch = None if spark is None else plans.Batch.current(spark)
        if spark is None or batch is None:
            return None
        known = Lookups.of(Gathered(() if rows is None else rows.inputs)).inputs
        return _said(
            spark, table, None, PlanInputs([*known], has_rows_of_program=True), None, text=None, rows=rows
        )
    except Exception as error:  # as above
        return _hardly(table, None, error)


def producer(spark: SparkSession, options: Mapping[str, str], run: JobRun | None) -> WriteProducer:
    """Return the producer of a write with these options."""
    application = spark.conf.get("spark.app.id", None)
    engine = Engine("spark", pyspark.__version__, application)
    if run is not None:
        return WriteProducer(run.name, run.run, CODE_VERSION.of(options) or run.code, engine)
    name = JOB.of(options) or spark.conf.get(JOB.key, None)
    code = CODE_VERSION.of(options) or spark.conf.get(CODE_VERSION.key, None) or git_commit()
    return WriteProducer(str(name or spark.conf.get("spark.app.name", "spark")), application, code, engine)


def _taken(table: Table, run: JobRun | None, found: PlanInputs, holds: HoldsValues) -> Taken | None:
    """Return the reads of the job besides the plan that the rows may contain; None without a job."""
    if run is None:
        return None
    planned = None if found.has_others else WritePlan(tuple(found.inputs), holds)
    return run.taken(table.branch_uuid, planned=planned)


def _not_seen() -> bool:
    return False


def _said(
    spark: SparkSession,
    table: Table,
    run: JobRun | None,
    found: PlanInputs,
    taken: Taken | None,
    *,
    text: str | None,
    written: Sequence[str] | None = None,
    rows: Handed | None = None,
    millis: int | None = None,
    holds: HoldsValues = _not_seen,
) -> Mapping[str, str]:
    by = producer(spark, table.options, run)
    sources = BatchSources(inputs=[*found.inputs], problems=[*found.problems])
    batch = plans.Batch.current(spark)
    if batch is not None and found.has_others:
        by = replace(by, run=batch.run, engine=replace(by.engine, query=batch.query, batch=batch.batch))
        sources.take(_of_batch(spark, batch))
    elif run is None and found.has_others:
        sources.is_positioned = False
        sources.problems.append(
            "some rows are of an RDD, of a checkpoint or of the program, and Spark does not say what went into them"
        )
    elif run is None and batch is None:
        given = unknown_rows(None, but=sources.inputs)
        if given is not None and holds():
            sources.is_positioned = True
            sources.problems.append(_GIVEN_BEFORE.format(given))
    seen: list[Gathered | Taken] = [] if taken is None else [taken]
    if batch is not None:
        of_batch = gathered(batch) if found.has_rows_of_program else seen_in(batch)
        seen.append(replace(of_batch, inputs=Lookups.of(of_batch).inputs))
    if sources.is_positioned is None and not sources.problems:
        sources.is_positioned = all(one.is_positioned or not one.problems for one in seen) or None
    for one in seen:
        sources.inputs += one.inputs
        sources.problems += (problem for problem in one.problems if problem not in sources.problems)
    before = None if batch is None else unknown_rows(rows, but=sources.inputs, of_jobs=False)
    if before is not None:
        sources.problems.append(_BEFORE_BATCH.format(before))
    columns: tuple[ColumnOrigin, ...] = ()
    if text is not None:
        sink = [column.name for column in table.schema.fields]
        columns = column_origins(text, sink, found.columns, written)
    return _properties(by, sources, columns, millis)


def _of_batch(spark: SparkSession, batch: plans.Batch) -> BatchSources:
    """Return the sources of a streaming batch, from its query's checkpoint and its plan."""
    try:
        checkpoint = Checkpoint.of({CHECKPOINT: batch.checkpoint})
        return batch_sources(checkpoint, batch.batch, lookups_of(spark, batch.query, batch.batch))
    except Exception as error:  # as above
        problem = f"what batch {batch.batch} of the stream read: {_first_line(error)}"
        return BatchSources(problems=[problem], is_positioned=False)


def _properties(
    by: WriteProducer,
    sources: BatchSources,
    columns: tuple[ColumnOrigin, ...] = (),
    millis: int | None = None,
) -> Mapping[str, str]:
    for problem in sources.problems:
        if (by.job, problem) not in _TOLD:
            _TOLD.add((by.job, problem))
            _LOG.warning("lineage of job '%s' is incomplete: %s", by.job, problem)
    entry = LineageEntry(
        by.job,
        by.run,
        by.code,
        by.engine,
        joined(sources.inputs),
        tuple(sources.problems),
        columns=columns,
        held=tuple(sources.held),
        is_positioned=sources.is_positioned if sources.problems else None,
        millis=millis,
    )
    return {LINEAGE_PROPERTY: entry.to_json()}


def _hardly(table: Table, run: JobRun | None, error: Exception) -> Mapping[str, str]:
    """Return the minimal lineage properties for a write whose sources could not be determined."""
    job = JOB.of(table.options) or "spark" if run is None else run.name
    by = WriteProducer(job, None if run is None else run.run, None, Engine("spark", pyspark.__version__))
    return _properties(by, BatchSources(problems=[f"what the rows were computed from: {_first_line(error)}"]))


def _first_line(error: Exception) -> str:
    message = error.message if isinstance(error, AnabranchError) else str(error)
    return (message or type(error).__name__).partition("\n")[0]


ORIGINS.append(rows_in_batch)
