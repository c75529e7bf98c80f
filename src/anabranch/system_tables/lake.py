"""System tables of a whole warehouse: ``sys.tables``, and those about lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from anabranch.system_tables.definition import arrow_table, by_column
from anabranch.system_tables.lake_lineage import LINEAGE_TABLES

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
