"""System tables about a table's history: snapshots, schemas, options, lineage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import Input, LineageEntry, TableInput, lineage_of
from anabranch.lineage.store import names_of
from anabranch.system_tables.definition import Rows, SystemTable, View, as_json


def _history(view: View) -> list[Snapshot]:
    """Return the moment of the view and its predecessors, newest first, down to the first gap.

    Same as `SnapshotLog.backwards`, but fetches many snapshots at once.
    """
    newest = view.snapshot
    if newest is None:
        return []
    log = view.context.snapshots
    below = [number for number in log.ids() if number < newest.id]
    found = {s.id: s for s in each(log.find, below) if s is not None}
    history = [newest]
    while (older := found.get(history[-1].id - 1)) is not None:
        if history[-1].properties.get(PARENT_PROPERTY, older.stamp) != older.stamp:
            break
        history.append(older)
    return history


def _snapshots(view: View) -> Rows:
    return (
        (
            *(s.id, s.schema_id, s.commit_user, s.commit_identifier, s.commit_kind.value, s.time_millis),
            *(s.base_manifest_list, s.delta_manifest_list, s.changelog_manifest_list),
            *(s.total_record_count, s.delta_record_count, s.changelog_record_count),
            *(s.watermark, s.next_row_id, s.operation, s.writer_version),
            *(s.stamp, as_json(dict(s.properties))),
        )
        for s in _history(view)
    )


SNAPSHOTS = SystemTable(
    "snapshots",
    "Retained snapshots, newest first.",
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, commit_user STRING NOT NULL, "
    "commit_identifier BIGINT NOT NULL, commit_kind STRING NOT NULL, "
    "commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL, base_manifest_list STRING NOT NULL, "
    "delta_manifest_list STRING NOT NULL, changelog_manifest_list STRING, total_record_count BIGINT, "
    "delta_record_count BIGINT, changelog_record_count BIGINT, watermark BIGINT, next_row_id BIGINT, "
    "operation STRING, writer_version STRING, stamp STRING NOT NULL, properties STRING NOT NULL",
    _snapshots,
    of_a_moment=True,
)


def _schemas(view: View) -> Rows:
    log = view.context.schemas
    ids = [number for number in log.ids() if number <= view.schema.id]
    return (_schema_row(schema) for schema in each(log.get, ids))


def _schema_row(schema: TableSchema) -> tuple[Any, ...]:
    stored = json.loads(schema.to_json())
    return (
        schema.id,
        *(as_json(stored[key]) for key in ("fields", "partitionKeys", "primaryKeys", "options")),
        schema.comment,
        schema.time_millis,
    )


SCHEMAS = SystemTable(
    "schemas",
    "All versions of the schema, oldest first.",
    "schema_id BIGINT NOT NULL, fields STRING NOT NULL, partition_keys STRING NOT NULL, "
    "primary_keys STRING NOT NULL, options STRING NOT NULL, comment STRING, "
    "update_time TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
    _schemas,
    of_a_moment=True,
)


OPTIONS = SystemTable(
    "options",
    "Options that are set in the table; others have their defaults.",
    "key STRING NOT NULL, value STRING NOT NULL",
    lambda view: sorted(view.schema.options.items()),
    of_a_moment=True,
)


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
    "snapshot_id BIGINT NOT NULL, commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL, "
    "job STRING NOT NULL, run STRING, code STRING, engine STRING NOT NULL, engine_version STRING, "
    "application STRING, query STRING, batch BIGINT, input_kind STRING, input_name STRING, input_table STRING, "
    "input_branch STRING, input_after BIGINT, input_through BIGINT, input_from STRING, input_to STRING, "
    "problems STRING NOT NULL",
    lambda view: (row for s in _history(view) for row in _lineage_rows(view, s)),
    of_a_moment=True,
)
