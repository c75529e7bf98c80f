"""System tables about a table's history: snapshots, schemas, options, lineage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.parallel import each, tried
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import Input, LineageEntry, TableInput, lineage_of
from anabranch.lineage.store import names_of
from anabranch.system_tables.definition import (
    Rows,
    SystemTable,
    View,
    as_json,
    damaged_row,
    problem_of,
)


def _history(view: View, unread: dict[int, AnabranchError]) -> list[Snapshot]:
    """Return the moment of the view and its predecessors, newest first, down to the first gap.

    Args:
        unread: gets the numbers of damaged ones, which are left out.
    """
    newest = view.snapshot if view.damage is None else _newest(view, unread)
    return [] if newest is None else [*view.context.snapshots.down_to(newest, 1, unread.__setitem__)]


def _newest(view: View, unread: dict[int, AnabranchError]) -> Snapshot | None:
    """Return the newest snapshot that can be read, where the newest of all may be damaged."""
    log = view.context.snapshots
    try:
        return log.head()
    except CorruptTableError:
        ids = reversed(log.ids())
    found = (tried(number, partial(log.find, number), unread.__setitem__) for number in ids)
    return next((snapshot for snapshot in found if snapshot is not None), None)


def _snapshots(view: View) -> Rows:
    unread: dict[int, AnabranchError] = {}
    rows = [
        (
            *(s.id, s.schema_id, s.commit_user, s.commit_identifier, s.commit_kind.value, s.time_millis),
            *(s.base_manifest_list, s.delta_manifest_list, s.changelog_manifest_list),
            *(s.total_record_count, s.delta_record_count, s.changelog_record_count),
            *(s.watermark, s.next_row_id, s.operation, s.writer_version),
            *(s.stamp, as_json(dict(s.properties)), None),
        )
        for s in _history(view, unread)
    ]
    rows += [
        damaged_row(SNAPSHOTS.fields, problem_of(error), snapshot_id=number)
        for number, error in unread.items()
    ]
    return sorted(rows, key=lambda row: int(row[0]), reverse=True)


SNAPSHOTS = SystemTable(
    "snapshots",
    "Retained snapshots, newest first.",
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT, commit_user STRING, "
    "commit_identifier BIGINT, commit_kind STRING, "
    "commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE, base_manifest_list STRING, "
    "delta_manifest_list STRING, changelog_manifest_list STRING, total_record_count BIGINT, "
    "delta_record_count BIGINT, changelog_record_count BIGINT, watermark BIGINT, next_row_id BIGINT, "
    "operation STRING, writer_version STRING, stamp STRING, properties STRING, problem STRING",
    _snapshots,
    of_a_moment=True,
)


def _schemas(view: View) -> Rows:
    log, unread = view.context.schemas, dict[int, AnabranchError]()
    ids = [number for number in log.ids() if view.damage is not None or number <= view.schema.id]
    found = each(lambda number: tried(number, partial(log.get, number), unread.__setitem__), ids)
    rows = [_schema_row(schema) for schema in found if schema is not None]
    rows += [
        damaged_row(SCHEMAS.fields, problem_of(error), schema_id=number) for number, error in unread.items()
    ]
    return sorted(rows, key=lambda row: int(row[0]))


def _schema_row(schema: TableSchema) -> tuple[Any, ...]:
    stored = json.loads(schema.to_json())
    return (
        schema.id,
        *(as_json(stored[key]) for key in ("fields", "partitionKeys", "primaryKeys", "options")),
        schema.comment,
        schema.time_millis,
        None,
    )


SCHEMAS = SystemTable(
    "schemas",
    "All versions of the schema, oldest first.",
    "schema_id BIGINT NOT NULL, fields STRING, partition_keys STRING, "
    "primary_keys STRING, options STRING, comment STRING, "
    "update_time TIMESTAMP(3) WITH LOCAL TIME ZONE, problem STRING",
    _schemas,
    of_a_moment=True,
)


OPTIONS = SystemTable(
    "options",
    "Options that are set in the table; others have their defaults.",
    "key STRING NOT NULL, value STRING NOT NULL",
    lambda view: sorted(view.schema.options.items()),
    of_a_moment=True,
    needs_newest=True,
)


def _lineage(view: View) -> Rows:
    unread: dict[int, AnabranchError] = {}
    rows = []
    for snapshot in _history(view, unread):
        of_one = partial(lambda snapshot: [*_lineage_rows(view, snapshot)], snapshot)
        rows += tried(snapshot.id, of_one, unread.__setitem__) or []
    for number, error in unread.items():
        row = damaged_row(LINEAGE.fields, "", snapshot_id=number, problems=as_json([problem_of(error)]))
        rows.append(row)
    return sorted(rows, key=lambda row: int(row[0]), reverse=True)


def _lineage_rows(view: View, snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    """Yield one row per input, or one without if the commit had none that is known."""
    where = view.context.layout.snapshot_path(snapshot.id)
    entry = lineage_of(snapshot.properties, where=where)
    if entry is None:
        return
    of_rows = made_of(replace(entry, taken=None))
    for found in of_rows or (None,):
        yield (
            snapshot.id,
            snapshot.time_millis,
            *_producer(entry),
            *_input(found, entry.job),
            as_json(entry.problems),
        )


def _producer(entry: LineageEntry) -> tuple[Any, ...]:
    engine = entry.engine
    return (
        *(entry.job, entry.run, entry.code),
        *(engine.name, engine.version, engine.application, engine.query, engine.batch),
    )


def _input(found: Input | None, job: str) -> tuple[Any, ...]:
    if found is None:
        return (None,) * 8
    stored = found.to_dict()
    span = (as_json(stored["from"]), as_json(stored["to"]))
    if isinstance(found, TableInput):
        ids = (found.table_uuid, found.branch_uuid, found.after, found.through)
        return ("table", found.name, *ids, *span)
    return (found.kind, ", ".join(names_of(found, job)), None, None, None, None, *span)


LINEAGE = SystemTable(
    "lineage",
    "What went into each retained snapshot whose commit said so: one row an input, newest first.",
    "snapshot_id BIGINT NOT NULL, commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE, "
    "job STRING, run STRING, code STRING, engine STRING, engine_version STRING, "
    "application STRING, query STRING, batch BIGINT, input_kind STRING, input_name STRING, input_table STRING, "
    "input_branch STRING, input_after BIGINT, input_through BIGINT, input_from STRING, input_to STRING, "
    "problems STRING NOT NULL",
    _lineage,
    of_a_moment=True,
)
