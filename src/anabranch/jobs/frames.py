"""Turns a declaration into a running query: sources become DataFrames, these the rows, and the rows go to the sink."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.format.rows.partition_path import parse_partition
from anabranch.jobs.job import Job
from anabranch.jobs.prepare import Prepared
from anabranch.jobs.source import STARTING_OFFSETS, Source, with_new_partitions
from anabranch.jobs.trigger import Trigger
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.lineage.recording import Gathered, JobRun, gathering, unknown_rows
from anabranch.options import (
    CODE_VERSION,
    CONSUMER_ID,
    JOB,
    LOOKED_UP,
    OVERWRITE_PARTITION,
    SCAN_MODE,
    SCAN_SNAPSHOT_ID,
    SCAN_START_OFFSET,
    SCAN_VERSION,
)
from anabranch.spark.context.options import CHECKPOINT, spelled, table_options
from anabranch.spark.lineage.given_values import OF_JOBS, may_hold_values
from anabranch.spark.lineage.job_marks import marked
from anabranch.spark.lineage.lookups import Lookups
from anabranch.table.table import committing_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.lake import Lake

_KAFKA_STARTS = {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
_TABLE_STARTS = {
    SCAN_MODE.key,
    CONSUMER_ID.key,
    SCAN_START_OFFSET.key,
    *(option.key for option in MOMENT_OPTIONS),
}
_READ_BEFORE: Final = (
    "its rows may be made of what this process had read before the function of the job was called: {}; read inside of the "
    "function"
)
_VIEWS = threading.Lock()
"""Names of temporary views are shared by the whole session."""


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How the sources of a job are read."""

    lake: Lake
    """The warehouse, with a session."""
    branches: Mapping[str, str] = field(default_factory=dict)
    """Branches to read tables on that are named without one, by the table."""
    starts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source, options that replace those for its start."""


def frames_of(job: Job, reading: SourceReading) -> dict[str, DataFrame]:
    """Return a job's sources as DataFrames, by name. Raises `NotFoundError`, `OptionError`, `InvalidInputError`."""
    return {name: _frame(name, source, reading) for name, source in job.sources.items()}


def is_batch(job: Job, reading: SourceReading) -> bool:
    """Whether none of the sources of a job is a stream. Functions among them are called to find out."""
    streams = [source.is_stream for source in job.sources.values()]
    if any(streams) or None not in streams:
        return not any(streams)
    unknown = {name: source for name, source in job.sources.items() if source.is_stream is None}
    return not any(_frame(name, source, reading).isStreaming for name, source in unknown.items())


def rows_of(job: Job, frames: Mapping[str, DataFrame], lake: Lake) -> DataFrame:
    """Return the rows that a job makes of its sources. Raises `InvalidInputError` unless they are a DataFrame."""
    if isinstance(job.transform, str):
        selected: DataFrame = _selected(job.transform, frames, lake)
        return selected
    rows: Any = job.transform(**frames)
    if not hasattr(rows, "isStreaming"):
        raise InvalidInputError(
            f"{job}: its function returned {type(rows).__name__}",
            hint="return a DataFrame of the rows for the sink.",
        )
    made: DataFrame = rows
    return made


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of a job, with what its function read while making them.

    A function that returns a DataFrame has read nothing: what Spark reads is in the plan of each batch. But it may also
    have counted a table, or taken rows of one into Python, and computed its DataFrame with them. Such reads go into
    every commit.
    """

    rows: DataFrame
    looked_up: Gathered


def made_by(job: Job, reading: SourceReading) -> Made:
    """Return the rows of a job. Raises as `frames_of` and `rows_of`, and what the function raises."""
    with gathering(job.name, mark=lambda run: marked(reading.lake.spark, run)) as reads:
        rows = made_in(reads, job, reading)
    return Made(rows, reads.seen)


def made_in(run: JobRun, job: Job, reading: SourceReading) -> DataFrame:
    """Return the same, in a run that records reads."""
    rows = rows_of(job, frames_of(job, reading), reading.lake)
    before = unknown_rows(None, but=run.seen.inputs, of_jobs=False)
    if before is not None and may_hold_values(rows):
        run.problem(_READ_BEFORE.format(before), is_positioned=True)
    return rows


def start_query(
    prepared: Prepared, rows: DataFrame, lake: Lake, trigger: Trigger, looked_up: Gathered
) -> StreamingQuery:
    """Start the streaming query of a job. Spark's and our errors are raised as they are."""
    job, checkpoint = prepared.job, prepared.checkpoint
    assert checkpoint is not None, "a streaming job has one"
    if job.mode == "overwrite":
        raise InvalidInputError(
            f"{job} overwrites, but reads a stream: each batch would replace the one before",
            hint="use mode='append', or 'complete' for an aggregation over everything.",
        )
    # A session has one query of a name, and may run the job on main while a correction runs it on a branch.
    branch = Identifier.parse(prepared.sink).branch
    name = job.name if branch is None else f"{job.name}@{branch}"
    writer = rows.writeStream.format("anabranch").outputMode(job.mode).queryName(name)
    writer = writer.options(**_of_write(prepared, lake)).option(CHECKPOINT, checkpoint.location)
    if looked_up != Gathered():
        writer = writer.option(LOOKED_UP.key, Lookups.of(looked_up).to_json())
    OF_JOBS.add(name)
    given = trigger.spark()
    if given:
        writer = writer.trigger(**given)
    query: StreamingQuery = writer.start(prepared.sink)
    return query


def write_batch(prepared: Prepared, rows: DataFrame, lake: Lake, number: int | None = None) -> None:
    """Write the rows of a batch job, in one commit with their lineage.

    With the number of a run of the job on a branch, as `next_run` returns it, that run makes one commit, whichever process is first.
    """
    options = spelled({k: v for k, v in _of_write(prepared, lake).items() if k not in lake.storage_options})
    table = prepared.table.with_options(table_options(options))
    fork = prepared.table.context.fork
    if number is not None and fork is not None:
        begun = replace(fork.snapshot, branch_uuid=table.branch_uuid)
        table = committing_once(table, CommitIdentity(_user(prepared), number), after=begun)
    if prepared.job.mode == "append":
        table.append(rows)
    else:
        part = OVERWRITE_PARTITION.of(options)
        table.overwrite(rows, None if part is None else parse_partition(part))


def next_run(prepared: Prepared) -> int:
    """Return the number of a batch job's next run on a branch; of one that appends there is one only."""
    context = prepared.table.context
    head = context.snapshots.head()
    if prepared.job.mode == "append" or head is None:
        return 0
    first = 0 if context.fork is None else context.fork.snapshot.id + 1
    own = (
        snapshot.commit_identifier
        for snapshot in takewhile(lambda one: one.id >= first, context.snapshots.backwards(head))
        if snapshot.commit_user == _user(prepared)
    )
    return next(own, -1) + 1


def _user(prepared: Prepared) -> str:
    """Return the commit user of a batch job's runs on a branch: not that of a stream, whose batches count from 0 too."""
    return f"batch:{prepared.job.name}@{prepared.table.branch_uuid}"


def _of_write(prepared: Prepared, lake: Lake) -> dict[str, str]:
    return {
        **lake.storage_options,
        **prepared.job.options,
        "warehouse": lake.url,
        JOB.key: prepared.job.name,
        **({} if prepared.code is None else {CODE_VERSION.key: prepared.code}),
    }


def _frame(name: str, source: Source, reading: SourceReading) -> DataFrame:
    lake, start = reading.lake, reading.starts.get(name)
    spark = lake.spark
    frame: Any
    match source.kind:
        case "table":
            options = _started(source.options, start, _TABLE_STARTS)
            frame = lake.read_stream(_on_branch(source, reading), **options)
        case "static":
            frame = _as_it_is(source, reading)
        case "kafka":
            options = _started(source.options, start, _KAFKA_STARTS)
            if start is not None:
                options[STARTING_OFFSETS] = with_new_partitions(source, start)
            frame = spark.readStream.format("anabranch-kafka").options(**options).load()
        case "files":
            schema = source.schema
            if schema is None:
                schema = spark.read.format(source.format).options(**source.options).load(source.name).schema
            reader = spark.readStream.format(source.format).schema(schema)
            frame = reader.options(**source.options).load(source.name)
        case _:
            assert source.function is not None, "a source of this kind is one"
            frame = source.function(spark)
    if not hasattr(frame, "isStreaming"):
        raise InvalidInputError(
            f"the function of source '{name}' returned {type(frame).__name__}",
            hint="return a DataFrame of the session that it is given.",
        )
    return cast("DataFrame", frame)


def _started(options: Mapping[str, str], start: Mapping[str, str] | None, keys: set[str]) -> dict[str, str]:
    """Return the options of a source, with those for its start replaced if given."""
    if start is None:
        return dict(options)
    kept = {key: value for key, value in options.items() if key not in keys and key.lower() not in keys}
    return {**kept, **start}


def _on_branch(source: Source, reading: SourceReading) -> str:
    branch = reading.branches.get(source.table or "")
    return source.name if branch is None or "$" in source.name else f"{source.name}$branch_{branch}"


def _as_it_is(source: Source, reading: SourceReading) -> Any:
    """Return a table at a moment: pinned now, so that all batches look up in the same snapshot."""
    lake, name, options = reading.lake, _on_branch(source, reading), dict(source.options)
    if not _TABLE_STARTS & options.keys():
        table = lake.table(name)
        snapshot = table.snapshot
        if snapshot is not None and table.context.main_generation:
            # After a replacement of main a bare number may be a snapshot of either main.
            options[SCAN_VERSION.key] = f"{MAIN_BRANCH}.snapshot.{snapshot.id}"
        elif snapshot is not None:
            options[SCAN_SNAPSHOT_ID.key] = str(snapshot.id)
    reader = lake.spark.read.format("anabranch").options(**{**lake.storage_options, "warehouse": lake.url})
    return reader.options(**options).load(name)


def _selected(query: str, frames: Mapping[str, DataFrame], lake: Lake) -> Any:
    """Return the rows of a statement, with the sources as its tables."""
    spark = lake.spark
    with _VIEWS:
        try:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            return spark.sql(query)
        finally:
            for name in frames:
                spark.catalog.dropTempView(name)
