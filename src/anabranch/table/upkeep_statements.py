"""Statements by which Delta's users look after a table: history and detail are answered, the others name our verb."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SqlError, UnsupportedFeatureError
from anabranch.format.text.names import shown_option
from anabranch.table.table import Table

_PART = r"(?:`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[\w$]+)"
_NAME = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"
_ANSWERED = re.compile(
    rf"\s*DESC(?:RIBE)?\s+(?P<what>HISTORY|DETAIL)\s+(?:TABLE\s+)?{_NAME}(?:\s+LIMIT\s+(?P<limit>\d+))?\s*;?\s*",
    re.IGNORECASE,
)
_POINTED = re.compile(
    rf"\s*(?P<what>OPTIMIZE|VACUUM|RESTORE)\s+(?:TABLE\s+)?{_NAME}(?P<rest>\s.*|;|)",
    re.IGNORECASE | re.DOTALL,
)
_SORTED = re.compile(r"\bZORDER\s+BY\s*\(?(?P<columns>[^();]*)", re.IGNORECASE)
_HISTORY = {
    "version": "snapshot_id",
    "timestamp": "commit_time",
    "operation": "commit_kind",
    "userName": "commit_user",
    "batch": "commit_identifier",
    "rowsAdded": "delta_record_count",
    "rows": "total_record_count",
    "schemaVersion": "schema_id",
    "watermark": "watermark",
}


def answer(statement: str, open_table: Callable[[Sequence[str]], Table]) -> pa.Table | None:
    """Return the rows of ``DESCRIBE HISTORY`` and ``DESCRIBE DETAIL``; None for any other statement.

    Args:
        statement: the statement.
        open_table: opens the table of a name in parts.

    Raises:
        UnsupportedFeatureError: it is ``OPTIMIZE``, ``VACUUM`` or ``RESTORE``; the hint names the verb to use.
    """
    point_to_verb(statement)
    match = _ANSWERED.fullmatch(statement)
    if match is None:
        return None
    table = open_table(_parts(match["name"]))
    if match["what"].upper() == "HISTORY":
        return _history(table, None if match["limit"] is None else int(match["limit"]))
    if match["limit"] is not None:
        raise SqlError("DESCRIBE DETAIL has one row", hint="leave LIMIT out.")
    return _detail(table)


def is_answered(statement: str) -> bool:
    """Whether `answer` returns rows for a statement."""
    return _ANSWERED.fullmatch(statement) is not None


def point_to_verb(statement: str) -> None:
    """Raise `UnsupportedFeatureError`, naming the verb of ours, for ``OPTIMIZE``, ``VACUUM`` and ``RESTORE``."""
    match = _POINTED.fullmatch(statement)
    if match is None:
        return
    what = match["what"].upper()
    name = ".".join(_parts(match["name"])[-2:])
    raise UnsupportedFeatureError(
        f"{what} is not a statement here: {' '.join(statement.split())[:200]}",
        feature="sql-statement",
        hint=_hint(what, name, match["rest"]),
    )


def _hint(what: str, name: str, rest: str) -> str:
    sorted_by = _SORTED.search(rest)
    if what == "OPTIMIZE" and sorted_by is not None:
        columns = ",".join(part.strip(' `"') for part in sorted_by["columns"].split(","))
        listed = ", ".join(f"'{column}'" for column in columns.split(","))
        return (
            f"sorting rewrites a table in the order of columns: lake.table('{name}').sort_compact([{listed}], "
            f"strategy='zorder') in Python, `anabranch sort-compact {name} --order-by {columns} --strategy zorder` in a terminal."
        )
    if what == "OPTIMIZE":
        return (
            f"small files are put together by lake.table('{name}').compact() in Python, "
            f"`anabranch compact {name}` in a terminal."
        )
    if what == "VACUUM":
        return (
            f"old snapshots and what only they reach are removed by lake.table('{name}').expire_snapshots() in Python, "
            f"`anabranch expire-snapshots {name}` in a terminal; files that belong to none by remove_orphan_files."
        )
    return f"go back by lake.table('{name}').rollback('tag') in Python, `anabranch rollback {name} --to TAG` in a terminal."


def _parts(name: str) -> list[str]:
    return [
        part[1:-1].replace(part[0] * 2, part[0]) if part[0] in '`"' else part
        for part in re.findall(_PART, name)
    ]


def _history(table: Table, limit: int | None) -> pa.Table:
    snapshots = table.system("snapshots")
    found = pa.table({ours: snapshots[theirs] for ours, theirs in _HISTORY.items()})
    return found if limit is None else found.slice(0, limit)


def _detail(table: Table) -> pa.Table:
    schema, snapshot, files = table.schema, table.snapshot, table.system("files")
    first = table.context.schemas.get(min(table.context.schemas.ids()))
    modified = schema.time_millis if snapshot is None else snapshot.time_millis
    moment = pa.timestamp("ms", tz="UTC")
    row = {
        "format": pa.array(["paimon"]),
        "id": pa.array([table.table_uuid], pa.string()),
        "name": pa.array([table.name]),
        "description": pa.array([schema.comment], pa.string()),
        "location": pa.array([table.context.storage.url]),
        "createdAt": pa.array([_time(first.time_millis)], moment),
        "lastModified": pa.array([_time(modified)], moment),
        "partitionColumns": pa.array([list(schema.partition_keys)], pa.list_(pa.string())),
        "numFiles": pa.array([files.num_rows], pa.int64()),
        "sizeInBytes": pa.array([pc.sum(files["file_size_in_bytes"]).as_py() or 0], pa.int64()),
        "properties": pa.array(
            [json.dumps({key: shown_option(key, value) for key, value in sorted(schema.options.items())})]
        ),
    }
    return pa.table(row)


def _time(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
