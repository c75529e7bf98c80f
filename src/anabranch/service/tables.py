"""Reading and changing tables, as values for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import InvalidInputError, NotFoundError, StorageError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import watermark_definition
from anabranch.format.text.secrets import shown_option
from anabranch.kernel.refs.moments import to_millis
from anabranch.lake import Lake, connect
from anabranch.options import TABLE_UUID
from anabranch.storage.open import local_folder
from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column, for display."""

    id: int
    name: str
    type: str
    nullable: bool
    partition: bool
    comment: str | None
    default: str | None = None
    """Value written in place of nulls."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot, for display; times in epoch milliseconds."""

    id: int
    kind: str
    time_millis: int
    schema_id: int
    rows: int | None
    rows_added: int | None
    user: str
    identifier: int
    watermark: int | None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Description and content of a table."""

    name: str
    location: str
    uuid: str
    schema_id: int
    columns: tuple[ColumnInfo, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    snapshot: SnapshotInfo | None
    moment: str | None
    """The resolved moment in the past; None for the newest state."""
    files: int
    bytes: int
    tags: tuple[str, ...]
    branches: tuple[str, ...]
    watermark: str | None
    """Its definition as SQL; None if the table has none."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One live data file."""

    path: str
    partition: str
    bucket: int
    format: str
    rows: int
    bytes: int
    schema_id: int


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """What a read would do."""

    text: str
    steps: tuple[Mapping[str, object], ...]
    files: int
    splits: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class View:
    """The view of a table that a command works on."""

    table: str
    branch: str | None = None
    at: str | None = None
    exact: bool = False
    """Refuse to answer `at` if the answer is not certain."""
    published: bool = False
    """Show what readers saw at the time `at`, ignoring later corrections."""
    options: Mapping[str, str] | None = None


def open_lake(warehouse: str) -> Lake:
    """Open the warehouse at a path or URL."""
    return connect(warehouse)


def store_variables(options: Mapping[str, str]) -> dict[str, str]:
    """Return store options as environment variables for this process and its children. Raises `OptionError`."""
    from anabranch.storage.settings import variables_of  # slow to import

    return variables_of(options)


def create_warehouse(warehouse: str) -> None:
    """Create the folder of a warehouse; not needed in object stores. Raises `StorageError`."""
    folder = local_folder(warehouse)
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the warehouse {folder}: {error.strerror}", retryable=False
        ) from error


def open_table(lake: Lake, view: View) -> Table:
    """Open the view of a table. Raises `NotFoundError`, `InvalidNameError`, `InvalidInputError`."""
    table = lake.table(view.table)
    if view.branch is not None:
        table = table.branch(view.branch)
    if view.options:
        table = table.with_options(view.options)
    if view.at is not None:
        if view.published:
            return table.at(timestamp=view.at, exact=view.exact, published=True)
        return _at(table, view.at, view.exact)
    if view.exact or view.published:
        asked = "exact" if view.exact else "published"
        raise InvalidInputError(f"{asked} is about a moment, but none was asked for", hint="say which one.")
    return table


def _at(table: Table, asked: str, exact: bool) -> Table:
    """Resolve a version name; if there is none of that name, a time."""
    try:
        return table.at(asked, exact=exact)
    except NotFoundError:
        try:
            millis = to_millis(asked)
        except InvalidInputError:
            millis = None
        if millis is None:
            raise
    return table.at(timestamp=millis, exact=exact)


def create_table(
    lake: Lake,
    name: str,
    columns: str,
    *,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    if_not_exists: bool = False,
) -> TableInfo:
    """Create a table from DDL text and describe it."""
    table = lake.create_table(
        name,
        columns,
        partition_by=partition_by,
        options=options,
        comment=comment,
        if_not_exists=if_not_exists,
    )
    return describe(table)


def describe(table: Table) -> TableInfo:
    """Return all facts about a table as one value. Reads its manifests."""
    schema = table.schema
    plan = table.scan().plan()
    snapshot = table.snapshot
    definition = watermark_definition(schema)
    return TableInfo(
        name=table.name,
        location=table.context.storage.url,
        uuid=table.table_uuid,
        schema_id=schema.id,
        columns=columns_of(table),
        partition_keys=tuple(schema.partition_keys),
        options={key: value for key, value in sorted(schema.options.items()) if key != TABLE_UUID.key},
        comment=schema.comment,
        snapshot=None if snapshot is None else snapshot_info(snapshot),
        moment=None if table.moment is None else str(table.moment),
        files=plan.files.height,
        bytes=plan.report.bytes,
        tags=tuple(table.tags()),
        branches=tuple(table.branches()),
        watermark=None if definition is None else definition.expression,
    )


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown to others than who asked: without values that look like secrets."""
    return {key: shown_option(key, value) for key, value in options.items()}


def columns_of(table: Table) -> tuple[ColumnInfo, ...]:
    """Return the columns of the view's schema, in order."""
    return columns_of_schema(table.schema)


def columns_of_schema(schema: TableSchema) -> tuple[ColumnInfo, ...]:
    """Return the columns of a schema, in order."""
    return tuple(
        ColumnInfo(
            f.id,
            f.name,
            f.type.spelling,
            f.type.nullable,
            f.name in schema.partition_keys,
            f.description,
            f.default,
        )
        for f in schema.fields
    )


def snapshot_info(snapshot: Snapshot) -> SnapshotInfo:
    return SnapshotInfo(
        snapshot.id,
        str(snapshot.commit_kind),
        snapshot.time_millis,
        snapshot.schema_id,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.commit_user,
        snapshot.commit_identifier,
        snapshot.watermark,
    )


def snapshots(table: Table, *, limit: int | None = None) -> list[SnapshotInfo]:
    """Return retained snapshots, newest first."""
    found: list[SnapshotInfo] = []
    for snapshot in table.snapshots():
        if limit is not None and len(found) >= limit:
            break
        found.append(snapshot_info(snapshot))
    return found


def files(table: Table, filter: str | None = None) -> list[FileInfo]:
    """Return live data files of the view that pass a filter."""
    plan = table.scan(filter).plan()
    infos = []
    for split in plan.splits:
        for file in split.files:
            folder = file.path.rpartition("/bucket-")[0]
            infos.append(
                FileInfo(
                    file.path, folder, split.bucket, file.format, file.row_count, file.size, file.schema_id
                )
            )
    return infos


def explain(table: Table, filter: str | None = None, columns: Sequence[str] | None = None) -> PlanInfo:
    """Explain how a read would find its files."""
    scan = table.scan(filter, columns)
    report = scan.plan().report
    return PlanInfo(
        text=scan.explain(),
        steps=tuple({"step": s.name, "manifests": s.manifests, "files": s.files} for s in report.steps),
        files=scan.plan().files.height,
        splits=report.splits,
        rows=report.rows,
        bytes=report.bytes,
    )
