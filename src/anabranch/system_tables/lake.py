"""System tables of a whole warehouse: ``sys.tables``, ``sys.jobs``, ``sys.table_lineage``, ``sys.snapshot_lineage``.

Those about lineage cover all commits known to it, including expired ones and those of deleted branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow as pa

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.errors import AnabranchError, NotFoundError, nearest
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import Input, TableInput
from anabranch.lineage.questions.topology import jobs
from anabranch.lineage.store import healing, kind_of, names_of
from anabranch.system_tables.definition import arrow_table, as_json, by_column

if TYPE_CHECKING:
    from anabranch.lineage.index import IndexStore


_TIME = "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL"


@dataclass(frozen=True)
class LineageTable:
    """A system table whose rows are made of commits."""

    fields: tuple[Field, ...]
    rows: Callable[[IndexStore], Iterator[tuple[Any, ...]]]


def _jobs(store: IndexStore) -> Iterator[tuple[Any, ...]]:
    for job in jobs(store):
        yield (
            *(job.name, job.engine, job.run, job.code, list(job.sources), list(job.sinks)),
            *(job.commits, job.first_millis, job.last_millis),
        )


class _Seen(NamedTuple):
    """A job seen with a dataset."""

    job: str
    role: str
    kind: str
    dataset: str
    name: str


def _table_lineage(store: IndexStore) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each job and dataset that it reads or writes."""
    found: dict[_Seen, tuple[int, int, int]] = {}
    for flow in store.flows():
        seen = _Seen(flow.job, "source", flow.source_kind, flow.source, flow.source_name)
        commits, first, last = found.get(seen, (0, flow.first_millis, flow.last_millis))  # for other sinks
        found[seen] = commits + flow.commits, min(first, flow.first_millis), max(last, flow.last_millis)
    for made in store.jobs():
        seen = _Seen(made.job, "sink", "table", made.sink, made.sink)
        found[seen] = made.commits, made.first_millis, made.last_millis
    rows = []
    for seen, times in found.items():
        line = store.line(seen.dataset) if seen.kind == "table" else None
        named = (seen.name, None, None) if line is None else (line.title, line.table_uuid, line.branch_uuid)
        rows.append((seen.job, seen.role, seen.kind, *named, *times))
    yield from sorted(rows, key=lambda row: (row[0], row[1] == "sink", row[3], row[5] or ""))


def _snapshot_lineage(store: IndexStore) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each input of each commit, or one without if it had none."""
    for line in store.lines():
        sink = (line.table, line.branch, line.branch_uuid)
        for commit in store.commits(line.branch_uuid):
            entry = commit.entry
            if entry is None or entry.is_anonymous or not commit.may_bring_rows:
                continue
            for row in _of_inputs(store, entry.job, made_of(entry)):
                yield (
                    *sink,
                    commit.snapshot,
                    commit.time_millis,
                    entry.job,
                    entry.run,
                    entry.engine.batch,
                    *row,
                )


def _of_inputs(store: IndexStore, job: str, inputs: tuple[Input, ...]) -> Iterator[tuple[Any, ...]]:
    if not inputs:
        yield (None,) * 8
    for read in inputs:
        stored = read.to_dict()
        positions = (as_json(stored["from"]), as_json(stored["to"]))
        if isinstance(read, TableInput):
            line = store.line(read.branch_uuid)
            table, branch = (read.name, None) if line is None else (line.table, line.branch)
            after = 0 if read.is_state else read.after
            yield ("table", table, branch, read.branch_uuid, after, read.through, *positions)
        else:
            name = ", ".join(names_of(read, job))
            yield (kind_of(read), name, None, None, None, None, *positions)


LINEAGE_TABLES: dict[str, LineageTable] = {
    "jobs": LineageTable(
        parse_columns(
            "job STRING NOT NULL, engine STRING, run STRING, code STRING, sources ARRAY<STRING>, "
            f"sinks ARRAY<STRING>, commits BIGINT NOT NULL, first_seen {_TIME}, last_seen {_TIME}"
        ),
        _jobs,
    ),
    "table_lineage": LineageTable(
        parse_columns(
            "job STRING NOT NULL, role STRING NOT NULL, kind STRING NOT NULL, table_name STRING NOT NULL, "
            f"table_uuid STRING, branch_uuid STRING, commits BIGINT NOT NULL, first_seen {_TIME}, last_seen {_TIME}"
        ),
        _table_lineage,
    ),
    "snapshot_lineage": LineageTable(
        parse_columns(
            "sink_table STRING NOT NULL, sink_branch STRING, sink_branch_uuid STRING NOT NULL, "
            f"snapshot_id BIGINT NOT NULL, commit_time {_TIME}, job STRING NOT NULL, run STRING, batch BIGINT, "
            "source_kind STRING, source_table STRING, source_branch STRING, source_branch_uuid STRING, "
            "source_after BIGINT, source_through BIGINT, source_from STRING, source_to STRING"
        ),
        _snapshot_lineage,
    ),
}
"""Their columns and rows, by name."""


LAKE_TABLES: dict[str, tuple[Field, ...]] = {
    "tables": parse_columns(
        "database_name STRING NOT NULL, table_name STRING NOT NULL, table_type STRING NOT NULL, "
        "partitioned BOOLEAN, primary_key BOOLEAN, owner STRING, created_at BIGINT, created_by STRING, "
        "updated_at BIGINT, updated_by STRING, record_count BIGINT, file_size_in_bytes BIGINT, "
        "file_count BIGINT, last_file_creation_time BIGINT, location STRING NOT NULL, uuid STRING, "
        "latest_snapshot_id BIGINT, problem STRING"
    ),
    **{name: table.fields for name, table in LINEAGE_TABLES.items()},
}
"""Their columns, by name."""

_WHOLE = ("kind", "file_size", "creation_time")


def lake_table_of(name: str) -> str | None:
    """Return ``tables`` for ``sys.tables``; None for a name other than the warehouse's system tables."""
    database, dot, table = name.partition(".")
    return table if dot and database == SYSTEM_DATABASE else None


def lake_table(name: str) -> tuple[Field, ...]:
    """Return the columns of a system table of a warehouse. Raises `NotFoundError` suggesting a similar name."""
    found = LAKE_TABLES.get(name)
    if found is not None:
        return found
    near = nearest(name, LAKE_TABLES)
    raise NotFoundError(
        f"there is no system table '{SYSTEM_DATABASE}.{name}'",
        hint=(f"did you mean '{SYSTEM_DATABASE}.{near}'? " if near else "")
        + f"There are: {', '.join(f'{SYSTEM_DATABASE}.{known}' for known in LAKE_TABLES)}.",
    )


@healing
def read_lake_table(
    catalog: FilesystemCatalog, name: str, options: Mapping[str, str] | None = None
) -> pa.Table:
    """Return all rows of a warehouse's system table; the options locate its lineage index. Raises as `lake_table`."""
    fields = lake_table(name)
    if name in LINEAGE_TABLES:
        from anabranch.lineage.index import LineageIndex

        index = LineageIndex.of(catalog, options)
        index.catch_up()
        with index.reading() as store:
            rows = list(LINEAGE_TABLES[name].rows(store))
        index.close()
        return arrow_table(fields, by_column(fields, rows))
    tables = [
        Identifier(database, table) for database in catalog.databases() for table in catalog.tables(database)
    ]
    return arrow_table(fields, by_column(fields, each(lambda table: _table_row(catalog, table), tables)))


def _table_row(catalog: FilesystemCatalog, table: Identifier) -> tuple[Any, ...]:
    """Return the row of a table; for one that cannot be read, with the reason."""
    named = (table.database, table.table, "table")
    location = f"{catalog.storage.url.rstrip('/')}/{table.path}"
    try:
        known, last = _facts(catalog.open(table))
    except AnabranchError as error:
        return (*named, *(None,) * 11, location, None, None, error.message)
    return (*named, *known, location, *last, None)


def _facts(context: TableContext) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    first, newest, head = context.schemas.find(0), context.schemas.latest(), context.snapshots.head()
    assert newest is not None, "an open table has a schema"
    updated = newest.time_millis if head is None else max(newest.time_millis, head.time_millis)
    size, files, last_file = _live_files(context, head)
    known = (
        *(bool(newest.partition_keys), bool(newest.primary_keys), None),
        *(None if first is None else first.time_millis, None),
        *(updated, None if head is None else head.commit_user),
        *(0 if head is None else head.total_record_count, size, files, last_file),
    )
    return known, (context.table_uuid, None if head is None else head.id)


def _live_files(context: TableContext, head: Snapshot | None) -> tuple[int, int, int | None]:
    """Return bytes and number of live files, and the creation time of the newest file listed.

    Every deleted file was added before, so counting suffices: no entries are matched.
    """
    if head is None:
        return 0, 0, None
    entries = context.manifests.entries(context.manifests.of_snapshot(head), only=_WHOLE).df
    signs = pl.when(pl.col("kind") == int(FileKind.ADD)).then(1).otherwise(-1)
    size, files, newest = entries.select(
        size=(signs * pl.col("file_size")).sum(), files=signs.sum(), newest=pl.col("creation_time").max()
    ).row(0)
    return int(size), int(files), None if newest is None else _instant(context, int(newest))


def _instant(context: TableContext, wall_clock: int) -> int:
    """Convert a local wall-clock time to milliseconds since the epoch, assuming its writer's zone was ours."""
    return wall_clock - context.runtime.clock.local_offset_millis(wall_clock)
