"""Marks partitions as done: a `_SUCCESS` file in a partition's folder tells schedulers that its rows are complete.

The file is that of Paimon's ``partition.mark-done-action = success-file``: JSON with two times in epoch milliseconds. It says
nothing to readers of the table, and rows may come later all the same; marking again then moves `modificationTime`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from anabranch.errors import InvalidInputError, NotFoundError, UnreadableFileError
from anabranch.expr.nodes import Predicate
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_label, partition_path
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.compaction.selection import Partitions, live_files, select_partitions
from anabranch.kernel.log.branch_log import newest_schema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.parallel import each
from anabranch.options import PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME
from anabranch.storage.protocol import Storage

SUCCESS_FILE = "_SUCCESS"
_LONGEST = 4096
"""Bytes. Any program may write such a file, and two times take about 70."""


@dataclass(frozen=True, slots=True)
class DonePartition:
    """A partition that is marked as done."""

    partition: str
    """Such as ``dt=2026-01-01/hour=5``."""
    path: str
    """The marking file, relative to the table."""
    first_marked: datetime
    marked: datetime


def mark_partition_done(context: TableContext, partitions: Partitions) -> tuple[DonePartition, ...]:
    """Store a `_SUCCESS` file in the folder of each partition that is chosen and has rows. See `Table.mark_partition_done`.

    The folders of partitions are those of all branches, so `context` must be main.
    """
    schema = newest_schema(context)
    if not _is_main(context):
        raise InvalidInputError(
            f"'{context.title}' is a branch, and its partitions lie in the folders of main's",
            hint="mark partitions of the table itself, once they are complete there.",
        )
    if not schema.partition_keys:
        raise InvalidInputError(
            f"'{context.title}' has no partitions that could be marked as done",
            hint="tables with partition columns have.",
        )
    rows = _chosen(context, partitions, schema)
    now = context.runtime.clock.now_millis()
    storage = context.storage

    def mark(row: bytes) -> DonePartition:
        label, path = _named(row, schema)
        first = _first_marked(storage, path) or now
        storage.put(path, json.dumps({"creationTime": first, "modificationTime": now}).encode())
        return DonePartition(label, path, _moment(first), _moment(now))

    return tuple(sorted(each(mark, rows, at=storage), key=lambda done: done.partition))


def unmark(context: TableContext, schema: TableSchema, rows: Iterable[bytes]) -> dict[str, bytes | None]:
    """Remove the marks of partitions that are about to leave main, so that rows which come later are not taken for complete.

    Returns their paths, each with the content of the mark there was, for `mark_again` or `unmark_again`; none on a branch.
    """
    if not _is_main(context):
        return {}
    storage, paths = context.storage, [_named(row, schema)[1] for row in rows]
    marks = dict(zip(paths, each(lambda path: _content(storage, path), paths, at=storage), strict=True))
    storage.delete_many(paths)
    return marks


def mark_again(context: TableContext, marks: Mapping[str, bytes | None]) -> None:
    """Put marks back where the partitions did not leave main after all.

    Another process may take them away at the same time. Whoever of the two is later sees what the other one did: this
    looks for their rows once more afterwards, and the other calls `unmark_again` after its commit.
    """
    storage, was = context.storage, {path: data for path, data in marks.items() if data is not None}
    if not was:
        return
    back = _paths_of_live(context) & was.keys()
    each(lambda path: storage.put_if_absent(path, was[path]), sorted(back), at=storage)
    storage.delete_many(sorted(back - _paths_of_live(context)))


def unmark_again(context: TableContext, paths: Collection[str], gone_with: Snapshot) -> None:
    """Remove the marks that others put for partitions while the commit `gone_with` took these away."""
    if not paths:
        return
    head, gone = context.snapshots.head(gone_with), {*paths}
    if head is not None and head.stamp != gone_with.stamp:  # they may have new rows, and be complete again
        gone -= _paths_of_live(context)
    context.storage.delete_many(sorted(gone))


def _chosen(context: TableContext, partitions: Partitions, schema: TableSchema) -> list[bytes]:
    """Return the partitions, each once. Raises `InvalidInputError` if none is named, or one of several has no rows."""
    given = [partitions] if isinstance(partitions, str | Predicate | Mapping) else partitions
    if not given:
        raise InvalidInputError(
            "no partition is named",
            hint="name some, as dt=2026-01-01, or give a condition such as dt < '2026-01-01'.",
        )
    live = live_files(context, context.snapshots.head())
    found: dict[bytes, None] = {}
    for one in given:
        rows = select_partitions(live, one, schema).df["partition"].unique(maintain_order=True).to_list()
        if not rows:
            raise InvalidInputError(
                f"no partition of '{context.title}' that has rows is {one}",
                hint="the system table $partitions lists those that have. None was marked.",
            )
        found.update(dict.fromkeys(rows))
    return [*found]


def _paths_of_live(context: TableContext) -> set[str]:
    """Return where the marks of the partitions lie that main has rows of."""
    main = main_of(context)
    schema = newest_schema(main)
    rows = live_files(main, main.snapshots.head()).df["partition"].unique().to_list()
    return {_named(row, schema)[1] for row in rows}


def _is_main(context: TableContext) -> bool:
    """Whether marks speak of the rows of this branch: a former main may lie in the table's own folder, and main in a branch's."""
    return context.main_generation is not None or main_of(context).branch_uuid == context.branch_uuid


def _named(row: bytes, schema: TableSchema) -> tuple[str, str]:
    """Return the label of a partition, and the path of its mark."""
    fields = schema.partition_fields
    values = decode_row([f.type for f in fields], row, where="a partition")
    folder = partition_path(
        fields,
        values,
        legacy_names=PARTITION_LEGACY_NAME.of(schema.options),
        default_name=PARTITION_DEFAULT_NAME.of(schema.options),
    )
    return partition_label(fields, values), f"{folder}/{SUCCESS_FILE}"


def _first_marked(storage: Storage, path: str) -> int | None:
    """Return when a partition was marked for the first time; None if it was not, or its mark cannot be read."""
    try:
        found = json.loads(_content(storage, path) or b"")
    except (ValueError, RecursionError):
        return None
    first = found.get("creationTime") if isinstance(found, dict) else None
    return first if type(first) is int and 0 <= first < 1 << 47 else None


def _content(storage: Storage, path: str) -> bytes | None:
    """Return the bytes of a mark; None if there is none, if it cannot be opened, or if it is too long for one."""
    try:
        data = storage.get_range(path, 0, _LONGEST + 1)
    except (NotFoundError, UnreadableFileError):
        return None
    return data if len(data) <= _LONGEST else None


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
