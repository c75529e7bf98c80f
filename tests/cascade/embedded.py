"""Streaming jobs without Spark: each batch takes what was added to its sources, and says so in its commit as Spark's do.

A job's function takes the new rows of each source as a list of dicts, and returns those for the sink. What it had read is
known from its own commits, so it goes on where it was, whoever runs it.
"""

import json
from dataclasses import replace

import pyarrow as pa

from anabranch.format.records.snapshot import CommitIdentity
from anabranch.jobs.job import job as declare
from anabranch.jobs.prepare import Run
from anabranch.jobs.source import static, stream
from anabranch.jobs.status import JobStatus, State
from anabranch.kernel.actions.append import Append
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, TableInput, lineage_of
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.offsets import BEGINNING, Offset, Position

SCHEMA = "id BIGINT NOT NULL, v BIGINT"
BATCH_MILLIS = 61_000
"""How long each batch says that it took."""


def streaming(name, sources, sink, function, **options):
    """A job that reads these tables, and whose function takes lists of rows."""
    given = {key.replace("_", "."): value for key, value in options.items()}
    names = {f"s{number}": stream(table, given) for number, table in enumerate(sources)}

    def transform(**frames):
        return function(*(frames[key] for key in names))

    return declare(name, sources=names, sink=sink)(transform)


def batch(name, source, sink, function, mode="append"):
    """A job that reads a table as it is, each time it is run."""

    def transform(rows):
        return function(rows)

    return declare(name, sources={"rows": static(source)}, sink=sink, mode=mode)(transform)


def run(job, lake, how=None):
    """One batch of all there is; the runner of a cascade."""
    how = how or Run()
    sink = lake.table(job.sink if how.branch is None else f"{job.sink}$branch_{how.branch}")
    if not any(source.is_stream for source in job.sources.values()):
        return _run_batch(job, lake, how, sink)
    user = f"{job.name}@{sink.branch_uuid}"
    before, number = _known(sink, job, user)
    starts = _begun(lake, user, how, job)
    reads, frames = [], {}
    for key, source in job.sources.items():
        table = lake.table(_read_as(source, how))
        start = before.get(table.table_uuid) or _start(starts.get(key), table)
        head = table.snapshot
        if head is None:
            frames[key] = []
            continue
        end = Position.after(head)
        if start is None:  # the rows there are, and later what is added
            frames[key] = table.scan().to_arrow().to_pylist()
            start = replace(end, files=0, full=True)
        elif start.full:
            frames[key] = [
                *table.at(f"snapshot.{start.snapshot}").scan().to_arrow().to_pylist(),
                *table.changes(start.snapshot, head.id, on_overwrite="added").to_arrow().to_pylist(),
            ]
        else:
            frames[key] = table.changes(start.snapshot, head.id, on_overwrite="added").to_arrow().to_pylist()
        if end != start:
            name = table.context.name
            reads.append(TableInput(name, table.table_uuid, table.branch_uuid, start, end))
    if reads:
        rows = job(**frames)
        engine = Engine("test", query=user, batch=number)
        entry = LineageEntry(job.name, "run", None, engine, tuple(reads), millis=BATCH_MILLIS)
        written = sink.writer()
        batches = pa.Table.from_pylist(rows, schema=written.schema).to_batches() if rows else []
        sink.commit(
            Append(written.write(batches)),
            identity=CommitIdentity(user, number),
            properties={LINEAGE_PROPERTY: entry.to_json()},
        )
    return [JobStatus(job.name, sink.name, State.ENDED)]


def _run_batch(job, lake, how, sink):
    (source,) = job.sources.values()
    with lake.job(job.name):
        table = lake.table(_read_as(source, how))
        made = job(table.scan().to_arrow().to_pylist())
        (sink.append if job.mode == "append" else sink.replace)(made)
    return [JobStatus(job.name, sink.name, State.ENDED)]


def _read_as(source, how):
    branch = None if source.names_branch else how.source_branches.get(source.table)
    return source.name if branch is None else f"{source.table}$branch_{branch}"


def _begun(lake, user, how, job):
    """Where the job began on this branch, as it was told when it was run there for the first time."""
    checkpoints = lake.catalog.storage.scoped("_checkpoints")
    told = {name: dict(options) for name, options in how.starts.items()}
    for name, source in job.sources.items():
        if source.options.get("scan.mode") == "latest" and name not in told:
            table = lake.table(_read_as(source, how))
            head = BEGINNING if table.snapshot is None else Position.after(table.snapshot)
            offset = Offset(table.table_uuid, table.branch_uuid, table.name, head)
            told[name] = {SCAN_START_OFFSET.key: json.dumps(offset.to_dict())}
    checkpoints.put_if_absent(user, json.dumps(told).encode())
    return json.loads(checkpoints.get(user))


def _known(sink, job, user):
    """By table how far the job has read it, as its commits on the branch say, and the number of its next batch."""
    found, number = {}, 0
    for snapshot in sink.snapshots():
        if snapshot.commit_user != user:
            continue
        number = max(number, snapshot.commit_identifier + 1)
        for read in lineage_of(snapshot.properties, where="").inputs:
            found.setdefault(read.table_uuid, read.end)
    return found, number


def _start(options, table):
    if options is None:
        return None
    offset = Offset.from_dict(json.loads(options[SCAN_START_OFFSET.key]))
    assert offset.branch_uuid == table.branch_uuid, "it begins on another branch than it reads"
    if offset.position == BEGINNING:
        return BEGINNING
    snapshot = table.context.snapshots.find(offset.position.snapshot)
    assert snapshot is not None, "where it begins is not there"
    assert snapshot.stamp == offset.position.stamp
    return replace(offset.position, watermark=None)
