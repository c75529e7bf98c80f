"""One table: what it is, its schemas, history, files, rows and statistics."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import polars as pl

from anabranch import AnabranchError, Table
from anabranch.frames.row_values import First, tuples_of
from anabranch.lineage.recording import aside
from anabranch.options import TARGET_FILE_SIZE
from anabranch.system_tables import View, read_system_table
from anabranch.ui.asked import Asked
from anabranch.ui.cells import cell
from anabranch.ui.history import COLUMNS, other_branches, sampled, snapshot_prefix
from anabranch.ui.site import Site, checked_health, stamp
from anabranch.ui.statistics import column_statistics
from anabranch.verbs.legible import (
    Unread,
    legible_savepoints,
    legible_schemas,
    look_at_records,
    visible_tags,
)
from anabranch.verbs.tables import describe_table, phrases, shown_options

_MOST_LINES = 2_000
_MOST_ROWS = 500
_MOST_PARTITIONS = 3_000
_SMALL_TENTHS = 7
"""Tenths of the target size below which a file is small, as `health` counts."""


def table(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what a table, branch or moment of it is."""
    view, unread = site.table(asked), Unread(asked.text("table"))
    try:
        key = ("table", view.name, str(view.moment), stamp(view))
        found = site.kept_for_good(key, lambda: asdict(describe_table(view)))
    except AnabranchError:  # told is what can be read all the same
        found = asdict(describe_table(view, unread))
    names = ("uuid", "location", "schema_id", "columns", "partition_keys", "options", "comment", "watermark")
    told = {name: found[name] for name in (*names, "snapshot", "moment", "files", "bytes")}
    told |= {"options": shown_options(told["options"]), **_refs(site, asked, unread)}
    return {"name": view.name, **told, "damaged": unread.found}


def health(site: Site, asked: Asked) -> dict[str, Any]:
    """Return the health of a table, branch or moment, and the commands that mend it."""
    view = site.table(asked)
    key = ("health", view.name, stamp(view))
    found = site.kept_lately(key, lambda: checked_health(lambda: site.table(asked))[1])
    return {
        "score": found.score,
        "small": found.small_files,
        "snapshots": found.snapshots,
        "partitions": found.partitions,
        "findings": [asdict(finding) for finding in found.findings],
    }


def _refs(site: Site, asked: Asked, unread: Unread) -> dict[str, Any]:
    """Return names that a moment can be asked for by."""
    main, now = site.open(asked.text("table")), site.open(asked.text("table"), asked.optional("branch"))
    tags, saved = visible_tags(now, unread), legible_savepoints(now, unread)
    look_at_records(now, unread)
    return {
        "prefix": snapshot_prefix(now),
        "branches": ["main", *other_branches(main)],
        "tags": [
            {
                "name": tag.name,
                "snapshot": tag.snapshot.id,
                "millis": tag.snapshot.time_millis,
                "rows": tag.snapshot.total_record_count,
            }
            for tag in tags
        ],
        "savepoints": [
            {
                "id": one.id,
                "snapshot": one.saved_snapshot_id,
                "millis": one.save_time,
                "rows": one.record_count,
            }
            for one in saved
        ],
    }


def schemas(site: Site, asked: Asked) -> list[dict[str, Any]]:
    """Return the versions of the schema, newest first, each with what it changed."""
    view = site.table(asked)
    found: list[dict[str, Any]] = []
    last = None
    for number, version in legible_schemas(view):
        if isinstance(version, AnabranchError):
            found.append({"id": number, "millis": None, "changes": [], "damaged": version.message})
            continue
        if last is not None:
            changes = phrases(last, version)
        else:
            changes = ["what it changed is not known"] if found else ["created"]
        found.append({"id": number, "millis": version.time_millis, "changes": changes, "damaged": None})
        last = version
    return found[::-1]


def history(site: Site, asked: Asked) -> dict[str, Any]:
    """Return snapshots below an id, newest first, as rows of `columns`."""
    view = site.open(asked.text("table"), asked.optional("branch"))
    before = asked.number("before", 0) or None
    most = asked.number("limit", _MOST_LINES, least=1, most=_MOST_LINES)
    lines, has_more = site.histories.of(view).page(view, before, most)
    return {"columns": COLUMNS, "rows": lines, "more": has_more, "prefix": snapshot_prefix(view)}


def snapshot(site: Site, asked: Asked) -> dict[str, Any]:
    """Return everything a snapshot says of itself."""
    view = site.open(asked.text("table"), asked.optional("branch"))
    found = view.at(f"{snapshot_prefix(view)}{asked.number('id')}").snapshot
    assert found is not None, "a moment has a snapshot"
    properties = {key: _parsed(value) for key, value in sorted(found.properties.items())}
    return {**found.to_dict(), "properties": properties, "stamp": found.stamp}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def rows(site: Site, asked: Asked) -> dict[str, Any]:
    """Return the first rows at any ref, as text; with a filter those that pass it."""
    view = site.table(asked)
    most = asked.number("limit", 50, least=1, most=_MOST_ROWS)
    with aside():  # they are only looked at
        scan = view.scan(asked.optional("filter"), limit=most + 1)
        first = First(scan.to_batches(), most)
        found = [[cell(value) for value in row] for batch in first for row in tuples_of(batch)]
        names = scan.arrow_schema.names
        types = [str(field.type) for field in scan.arrow_schema]
    return {"columns": names, "types": types, "rows": found, "more": first.is_cut, "moment": _moment(view)}


def _moment(view: Table) -> str | None:
    return None if view.moment is None else str(view.moment)


def partitions(site: Site, asked: Asked) -> dict[str, Any]:
    """Return partitions with their files, those with the most small files first."""
    view = site.table(asked)
    return site.kept_for_good(("partitions", view.name, stamp(view)), lambda: _partitions(view))


def _partitions(view: Table) -> dict[str, Any]:
    target = TARGET_FILE_SIZE.of(view.options)
    files = _system_frame(view, "files", ["partition", "file_size_in_bytes", "record_count", "creation_time"])
    is_small = pl.col("bytes") * 10 < target * _SMALL_TENTHS
    grouped = (
        files.rename({"file_size_in_bytes": "bytes", "record_count": "rows"})
        .group_by("partition")
        .agg(
            files=pl.len(),
            small=is_small.sum(),
            rows=pl.col("rows").sum(),
            bytes=pl.col("bytes").sum(),
            newest=pl.col("creation_time").max().dt.epoch("ms"),
        )
        .sort("partition")
    )
    worst = grouped.sort("small", "files", descending=True).head(_MOST_PARTITIONS).sort("partition")
    buckets = [int(target * share) for share in (1 / 256, 1 / 64, 1 / 16, 1 / 4, _SMALL_TENTHS / 10, 1)]
    sizes = files["file_size_in_bytes"].sort()
    ends = [0, *(int(sizes.search_sorted(edge)) for edge in buckets), sizes.len()]
    return {
        "target": target,
        "count": grouped.height,
        "rows": [list(row) for row in worst.iter_rows()],
        "columns": worst.columns,
        "sizes": {"edges": buckets, "files": [b - a for a, b in pairwise(ends)]},
    }


def statistics(site: Site, asked: Asked) -> dict[str, Any]:
    """Return the least and greatest value and the nulls of each column, by what the files' metadata says."""
    view = site.table(asked)
    return site.kept_for_good(("statistics", view.name, stamp(view)), lambda: column_statistics(view))


def trend(site: Site, asked: Asked) -> list[tuple[int, int, int]]:
    """Return time, snapshot and rows of some snapshots, evenly spread over the history."""
    lines = sampled(site.open(asked.text("table"), asked.optional("branch")))
    return sorted((line.millis, line.id, line.rows) for line in lines if line.rows is not None)


def sizes(site: Site, asked: Asked) -> list[list[int]]:
    """Return time, snapshot and bytes of the live files of some snapshots, evenly spread over the history."""
    view = site.open(asked.text("table"), asked.optional("branch"))
    most = asked.number("points", 12, least=2, most=24)
    found = []
    for line in sampled(view, most):
        try:
            size = site.kept_for_good(("bytes", line.stamp), lambda line=line: _bytes(view, line.id))  # type: ignore[misc]
        except AnabranchError:  # it has expired meanwhile
            continue
        found.append([line.millis, line.id, size])
    return sorted(found)


def _bytes(view: Table, number: int) -> int:
    return view.at(f"{snapshot_prefix(view)}{number}").scan().plan().report.bytes


def _system_frame(view: Table, name: str, columns: list[str]) -> pl.DataFrame:
    found = pl.from_arrow(
        read_system_table(
            View(view.context, view.snapshot, view.schema, pinned=view.moment is not None), name, columns
        )
    )
    assert isinstance(found, pl.DataFrame), "a table becomes a frame"
    return found
