"""Procedures for lineage: trace rows back and forward, find their producer, and find where to resume."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.lineage.joining import made_of
from anabranch.lineage.model import TableInput
from anabranch.lineage.store import kind_of, names_of
from anabranch.lineage.trace import Trace
from anabranch.spark.catalog.verb import Arguments, Parameter, Row, Verb, without
from anabranch.table import Table

_SNAPSHOT: Final = Parameter(
    "snapshot",
    "STRING",
    "a snapshot, 'savepoint.N', a tag, or a range as '5..9'; all of the table if left out",
)
_BAD: Final = Parameter(
    "snapshots", "STRING", "those that are bad: a snapshot or a range as '5..9'", required=True
)
_MOMENT: Final = Parameter(
    "snapshot", "STRING", "a snapshot's id, 'savepoint.N' or a tag; the newest if left out"
)
_DEPTH: Final = Parameter("depth", "BIGINT", "how many jobs to go on; as far as it leads if left out")
_TRACE_COLUMNS: Final = (
    "depth INT, kind STRING, dataset STRING, first_snapshot_id BIGINT, last_snapshot_id BIGINT, jobs STRING"
)


def _upstream(table: Table, given: Arguments) -> Iterable[Row]:
    return _rows(table.lineage.upstream(**given), towards=True)


def _downstream(table: Table, given: Arguments) -> Iterable[Row]:
    return _rows(table.lineage.downstream(**given))


def _impact(table: Table, given: Arguments) -> Iterable[Row]:
    return _rows(table.lineage.impact(given["snapshots"], **without(given, "snapshots")))


def _rows(trace: Trace, *, towards: bool = False) -> Iterator[Row]:
    """Yield a row for each range of snapshots of each dataset, with the jobs on the way to it."""
    for dataset in trace.datasets:
        near = (flow.job for flow in trace.flows if dataset.id == (flow.source if towards else flow.sink))
        jobs = ", ".join(dict.fromkeys(near)) or None
        for first, last in dataset.snapshots or ((None, None),):
            yield (dataset.depth, dataset.kind, dataset.name, first, last, jobs)


def _positions(table: Table, given: Arguments) -> Iterator[Row]:
    for found in table.lineage.positions(given.get("snapshot")):
        for source in found.sources:
            position = json.dumps(source.position, ensure_ascii=False)
            options = json.dumps(source.options, ensure_ascii=False)
            yield (found.job, found.commit, source.kind, source.name, source.source, position, options)


def _producer(table: Table, given: Arguments) -> Iterator[Row]:
    """Yield a row for each input, or a single row if there are none."""
    found = table.lineage.producer(given.get("snapshot"))
    entry = found.entry
    made = (found.snapshot, found.kind)
    if entry is None:
        yield (*made, *(None,) * 9)
        return
    engine = entry.engine
    by = (*made, None if entry.is_of_no_job else entry.job, entry.run, entry.code, engine.name, engine.batch)
    for read in made_of(entry) or (None,):
        if read is None:
            yield (*by, None, None, None, None)
        elif isinstance(read, TableInput):
            yield (*by, "table", read.name, None if read.is_state else str(read.after), str(read.through))
        else:
            ends = (None if end is None else json.dumps(end) for end in (read.start, read.end))
            yield (*by, kind_of(read), ", ".join(names_of(read, entry.job)), *ends)


LINEAGE_VERBS: Final = (
    Verb(
        "lineage_upstream",
        "What a table or snapshots of it were made of: one row for each range of snapshots.",
        (_SNAPSHOT, _DEPTH),
        _TRACE_COLUMNS,
        _upstream,
    ),
    Verb(
        "lineage_downstream",
        "What was made of a table or of snapshots of it: one row for each range of snapshots.",
        (_SNAPSHOT, _DEPTH),
        _TRACE_COLUMNS,
        _downstream,
    ),
    Verb(
        "lineage_impact",
        "What has taken in bad snapshots, in the order in which to correct it.",
        (_BAD, _DEPTH),
        _TRACE_COLUMNS,
        _impact,
    ),
    Verb(
        "lineage_positions",
        "How far each job had read its sources at a moment of the table.",
        (_MOMENT,),
        "job STRING, snapshot_id BIGINT, kind STRING, name STRING, source STRING, position STRING, options STRING",
        _positions,
    ),
    Verb(
        "lineage_producer",
        "What made a snapshot: one row for each of its inputs.",
        (_MOMENT,),
        "snapshot_id BIGINT, commit_kind STRING, job STRING, run STRING, code STRING, engine STRING, batch BIGINT, "
        "input_kind STRING, input_name STRING, input_after STRING, input_through STRING",
        _producer,
    ),
)
