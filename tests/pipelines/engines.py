"""Who runs the jobs of a pipeline: Spark, or rows computed in this process, which takes milliseconds and knows no state."""

import itertools
import threading
from contextlib import suppress
from dataclasses import replace

import duckdb
import pyarrow as pa

import anabranch
from anabranch.errors import NotFoundError
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.jobs.job import job as declare
from anabranch.jobs.prepare import Run, _starts
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import static
from anabranch.jobs.supervise import JobStatus, State
from anabranch.jobs.task import Policy, Stop
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.tag_log import get_tag
from anabranch.lake import Lake
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, TableInput
from anabranch.lineage.reads import state_read
from anabranch.storage.open import open_storage
from anabranch.streaming.offsets import BEGINNING, Position
from tests.cascade.embedded import _begun, _known, _read_as, _start
from tests.pipelines.kinds import BUGS, KINDS, SQL_BUGS
from tests.support.dying import Died

_names = itertools.count()
_POLICY = Policy(most=4, first_pause=0.3)
"""A machine that is busy may keep Spark from reaching its own processes in time."""


class OnSpark:
    """A session of its own for each pipeline, and a warehouse in a folder."""

    def __init__(self, spark, folder, pipeline):
        self.folder = str(folder)
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.shuffle.partitions", str(pipeline.partitions))
        self.pipeline = pipeline

    def lake(self):
        return anabranch.connect(self.folder, spark=self.spark)

    def storage(self):
        return open_storage(self.folder)

    def lake_on(self, storage):
        return Lake(storage, spark=self.spark)

    def jobs(self, *, wrong=False, fixed=False):
        p = self.pipeline
        changes = [p.change(step, wrong=wrong, fixed=fixed) for step in p.steps]
        return [step.job(BUGS.get(change)) for step, change in zip(p.steps, changes, strict=True)]

    def run(self, jobs, lake):
        return run_jobs(jobs, lake, Run(), Schedule(AVAILABLE_NOW, _POLICY))

    def run_one(self, job, lake, how, after_millis=None):
        """Run a job; stopped at once after so many milliseconds if it is said."""
        stop, timer = Stop(), None
        if after_millis is not None:
            timer = threading.Timer(after_millis / 1000, lambda: (stop.ask(), stop.ask()))
            timer.start()
        try:
            return run_jobs([job], lake, how, Schedule(AVAILABLE_NOW, _POLICY), stop=stop)
        finally:
            if timer is not None:
                timer.cancel()

    def after_death(self):
        """End what a dead process would have taken with it."""
        for query in self.spark.streams.active:
            with suppress(Exception):
                query.stop()


class Embedded:
    """Streams as `tests.cascade.embedded` has them, also with lookups; the rows of a batch come from DuckDB."""

    def __init__(self, pipeline, storage=None):
        self.pipeline = pipeline
        self._storage = storage or open_storage(f"memory://pipeline{next(_names)}")

    def copy(self):
        """The same warehouse once more."""
        there, here = Embedded(self.pipeline), self._storage
        there._storage.put_many({info.path: here.get(info.path) for info in here.list(recursive=True)})
        return there

    def lake(self):
        return Lake(self._storage)

    def storage(self):
        return self._storage

    def lake_on(self, storage):
        return Lake(storage)

    def jobs(self, *, wrong=False, fixed=False):
        p = self.pipeline
        return [_job(step, p.change(step, wrong=wrong, fixed=fixed)) for step in p.steps]

    def run(self, jobs, lake):
        return [status for job in jobs for status in run(job, lake, Run())]

    def run_one(self, job, lake, how, after_millis=None):
        if after_millis is not None:
            raise Died
        return run(job, lake, how)

    def after_death(self):
        pass


def _job(step, bug):
    kind = KINDS[step.kind]
    names = {f"s{number}": table for number, table in enumerate(step.sources)}
    if kind.is_batch:
        names = {key: static(table) for key, table in names.items()}
    elif kind.looks_up:
        names["s1"] = static(names["s1"])

    def transform(**rows):
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            for key in names:
                db.register(f"given_{key}", rows[key])
            before, after = SQL_BUGS[bug] if bug is not None else ("", "")
            sources = [f"given_{key}" for key in names]
            if before:
                sources[0] = f"({before.format(sources[0])})"
            query = kind.answer.format(*sources)
            if after:
                query = after.format(f"({query})")
            return db.execute(query).to_arrow_table()

    return declare(step.name, sources=names, sink=step.sink, mode=kind.mode)(transform)


def run(job, lake, how=None):
    """One batch of all there is."""
    how = how or Run()
    if how.from_tag is not None:
        how = _from_tag(job, lake, how)
    sink = lake.table(job.sink if how.branch is None else f"{job.sink}$branch_{how.branch}")
    if not any(source.is_stream for source in job.sources.values()):
        return _run_batch(job, lake, how, sink)
    user = f"{job.name}@{sink.branch_uuid}"
    before, number = _known(sink, job, user)
    starts = _begun(lake, user, how, job)
    reads, lookups, frames = [], [], {}
    for key, source in job.sources.items():
        table = lake.table(_read_as(source, how))
        if not source.is_stream:
            frames[key] = table.scan().to_arrow()
            lookups.append(state_read(table.context, table.snapshot))
            continue
        known = before.get(table.table_uuid)
        if known == BEGINNING and table.snapshot is not None and key not in starts:
            known = None  # what has read nothing may as well begin now
        frames[key], end, start = _added(table, known or _start(starts.get(key), table))
        if end is not None and end != start:
            start = start or BEGINNING
            name = table.context.name
            reads.append(TableInput(name, table.table_uuid, table.branch_uuid, start, end))
    if reads:
        engine = Engine("test", query=user, batch=number)
        entry = LineageEntry(job.name, "run", None, engine, (*reads, *lookups))
        rows = job(**frames)
        written = sink.writer()
        batches = _as(rows, written.schema).to_batches() if rows.num_rows else []
        sink.commit(
            Append(written.write(batches)),
            identity=CommitIdentity(user, number),
            properties={LINEAGE_PROPERTY: entry.to_json()},
        )
    return [JobStatus(job.name, sink.name, State.ENDED)]


def _from_tag(job, lake, how):
    """The same from where the job was at the tag."""
    main = lake.table(job.sink)
    create_if_absent(main, how.branch, how.from_tag)
    return replace(how, starts=_starts(job, lake, main, get_tag(main.context, how.from_tag)).options)


def create_if_absent(main, branch, tag):
    """Create a branch, or bring to its end what a killed one has begun."""
    try:
        main.branch(branch)
    except NotFoundError:
        main.create_branch(branch, tag)


def _added(table, start):
    head = table.snapshot
    if head is None:
        # As with Spark: the first batch is there, and says that it has read nothing.
        return table.scan().to_arrow(), BEGINNING, start
    end = Position.after(head)
    if start is None:
        return table.scan().to_arrow(), end, replace(end, files=0, full=True)
    rows = [table.changes(start.snapshot, head.id).to_arrow()]
    if start.full:
        rows.append(table.at(f"snapshot.{start.snapshot}").scan().to_arrow())
    return pa.concat_tables(rows), end, start


def _as(rows, schema):
    """Rows with the types of a table: sums of DuckDB are wider, and its times have no zone of ours."""
    assert {*rows.column_names} <= {*schema.names}, "a column that the table does not have"
    return pa.Table.from_arrays([rows.column(f.name).cast(f.type) for f in schema], schema=schema)


def _run_batch(job, lake, how, sink):
    with lake.job(job.name):
        given = {
            key: lake.table(_read_as(source, how)).scan().to_arrow() for key, source in job.sources.items()
        }
        made = _as(job(**given), sink.writer().schema)
        (sink.append if job.mode == "append" else sink.replace)(made)
    return [JobStatus(job.name, sink.name, State.ENDED)]


__all__ = ["Embedded", "OnSpark", "run"]
