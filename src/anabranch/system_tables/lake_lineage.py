"""System tables of a whole warehouse about lineage: ``sys.jobs``, ``sys.table_lineage``, ``sys.snapshot_lineage``.

They cover all commits known to lineage, including expired ones and those of deleted branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.data_types import Field
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import Input, TableInput
from anabranch.lineage.questions.topology import jobs
from anabranch.lineage.store import kind_of, names_of
from anabranch.system_tables.definition import as_json

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
