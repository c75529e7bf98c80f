"""Verbs about tables as such: list, create, change, drop, describe, and what they know of themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.errors import NotFoundError
from anabranch.verbs.answer import Answer, Grid, Pairs, moment
from anabranch.verbs.caller import View, names_in
from anabranch.verbs.legible import Unread, legible_snapshots
from anabranch.verbs.parameters import Columns, DryRun, Filter, Limit, limit, names, settings
from anabranch.verbs.rows import read_rows
from anabranch.verbs.subject import TABLE_NAME, AnyView, AtMoment, InLake, OnBranch
from anabranch.verbs.verb import Called, Confirm, Group, Order, argument, option, verb

if TYPE_CHECKING:
    from anabranch.format.records.snapshot import Snapshot
    from anabranch.format.schema.table_schema import TableSchema
    from anabranch.kernel.log.parallel import OnUnread
    from anabranch.table import Table

TABLES: Group = "Tables and rows"
_COLUMNS_HELP = (
    'Such as "id BIGINT NOT NULL, v STRING"; also "..., ts TIMESTAMP(3), '
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND\"."
)


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

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotInfo:
        """Convert a snapshot."""
        return cls(
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


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Description and content of a table."""

    name: str
    location: str
    uuid: str
    schema_id: int | None
    """This, columns, keys, options and comment are without content where the schema cannot be read."""
    columns: tuple[ColumnInfo, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    snapshot: SnapshotInfo | None
    moment: str | None
    """The resolved moment in the past; None for the newest state."""
    files: int | None
    bytes: int | None
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


def columns_of(schema: TableSchema) -> tuple[ColumnInfo, ...]:
    """Return the columns of a schema, in order."""
    keys = schema.partition_keys
    return tuple(
        ColumnInfo(
            *(f.id, f.name, f.type.spelling, f.type.nullable, f.name in keys, f.description, f.default)
        )
        for f in schema.fields
    )


def describe_table(table: Table, unread: OnUnread | None = None) -> TableInfo:
    """Return all facts about a table as one value. Reads its manifests.

    Args:
        unread: told of what is damaged; the facts that depend on it are None. Without it that raises.
    """
    from anabranch.format.schema.watermark import watermark_definition
    from anabranch.kernel.log.parallel import tried
    from anabranch.options import TABLE_UUID

    schema = tried("the newest schema", lambda: table.schema, unread)
    snapshot = tried("the newest snapshot", lambda: table.snapshot, unread)
    plan = tried("the list of files", lambda: table.scan().plan(), unread)
    definition = None if schema is None else watermark_definition(schema)
    options = {} if schema is None else schema.options
    return TableInfo(
        name=table.name,
        location=table.context.storage.url,
        uuid=table.table_uuid,
        schema_id=None if schema is None else schema.id,
        columns=() if schema is None else columns_of(schema),
        partition_keys=() if schema is None else tuple(schema.partition_keys),
        options={key: value for key, value in sorted(options.items()) if key != TABLE_UUID.key},
        comment=None if schema is None else schema.comment,
        snapshot=None if snapshot is None else SnapshotInfo.of(snapshot),
        moment=None if table.moment is None else str(table.moment),
        files=None if plan is None else plan.files.height,
        bytes=None if plan is None else plan.report.bytes,
        tags=tuple(tried("the tags", table.tags, unread) or ()),
        branches=tuple(table.branches()),
        watermark=None if definition is None else definition.expression,
    )


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown to others than who asked: without values that look like secrets."""
    from anabranch.format.text.names import shown_option

    return {key: shown_option(key, value) for key, value in options.items()}


def phrases(old: TableSchema, new: TableSchema) -> list[str]:
    """Return what a version of a schema changed in another, one phrase a change, such as ``added 'v'``."""
    from anabranch.format.schema.diff import changes_between

    return changes_between(old, new)


@verb(TABLES, "Lake.databases", sql="SHOW DATABASES")
def databases(*, caller: Called) -> Answer:
    """List the databases of the warehouse."""
    listing = names_in(caller.warehouse)
    found = listing.databases()
    listing.check_there(found)
    return Answer(found, Grid(("database",), [[name] for name in found]))


@verb(TABLES, "Lake.tables", sql="SHOW TABLES IN db")
def tables(
    database: Annotated[str | None, argument("Only of this database.")] = None, *, caller: Called
) -> Answer:
    """List tables."""
    listing = names_in(caller.warehouse)
    databases = [database] if database else listing.databases()
    listing.check_there(databases)
    found = [f"{name}.{table}" for name in databases for table in listing.tables(name)]
    return Answer(found, Grid(("table",), [[name] for name in found]))


@verb(TABLES, "Lake.create_table", sql="CREATE TABLE db.t (id BIGINT)", changes=True)
def create_table(
    lake: InLake,
    table: Annotated[str, TABLE_NAME],
    columns: Annotated[str, argument(_COLUMNS_HELP, "COLUMNS")],
    partition_by: Annotated[str | None, option("Comma-separated partition columns.")] = None,
    option: Annotated[list[str] | None, option("key=value; may be repeated.", "--option", "-o")] = None,
    comment: Annotated[str | None, option("Text for people.")] = None,
    if_not_exists: Annotated[bool, option("Keep an existing table.", "--if-not-exists")] = False,
) -> Answer:
    """Create a table, and its database if needed."""
    info = describe_table(
        lake.create_table(
            table,
            columns,
            partition_by=names(partition_by) or (),
            options=settings(option),
            comment=comment,
            if_not_exists=if_not_exists,
        )
    )
    return Answer(info, f"created {info.name} at {info.location}")


@verb(TABLES, "Lake.drop_table", sql="DROP TABLE db.t", changes=True)
def drop_table(
    lake: InLake,
    table: Annotated[str, TABLE_NAME],
    if_exists: Annotated[bool, option("Do nothing if there is none.", "--if-exists")] = False,
    dry_run: Annotated[bool, option("Only say what would be removed.", "--dry-run")] = False,
    *,
    ask: Confirm,
) -> Answer:
    """Remove a table with all its branches and data."""
    try:
        info = describe_table(lake.table(table))
    except NotFoundError:
        if not if_exists:
            raise
        return Answer({"table": table, "dropped": False}, f"there is no {table}")
    rows = info.snapshot.rows if info.snapshot else 0
    counted = "rows that nobody counted" if rows is None else f"{rows:,} rows"
    what = f"{info.name}: {counted}, {info.files:,} live files, {info.bytes:,} bytes"
    ask(f"remove {what}?")
    if not dry_run:
        lake.drop_table(table)
    value = {"table": table, "dropped": not dry_run, "rows": rows, "files": info.files, "bytes": info.bytes}
    return Answer(value, f"{'would remove' if dry_run else 'removed'} {what}")


@verb(TABLES, "Table.schema", sql="DESCRIBE TABLE EXTENDED db.t")
def describe(table: AtMoment) -> Answer:
    """Show what a table is and holds."""
    info = describe_table(table)
    return Answer(info, Pairs(_described(info)), "", _column_grid(info.columns))


def _described(info: TableInfo) -> Iterator[tuple[str, Any]]:
    snapshot = info.snapshot
    at = f"{snapshot.id} ({snapshot.kind}, {moment(snapshot.time_millis)})" if snapshot else "none"
    yield from (("table", info.name), ("location", info.location), ("uuid", info.uuid))
    yield from (("comment", info.comment), ("snapshot", at))
    if info.moment:
        yield ("moment", info.moment)
    yield from (("rows", snapshot.rows if snapshot else 0), ("files", info.files), ("bytes", info.bytes))
    yield ("schema", info.schema_id)
    yield ("partitioned by", ", ".join(info.partition_keys) or "nothing")
    # How the watermark follows from the rows, and how far it has come.
    reached = None if snapshot is None or snapshot.watermark is None else f"now {moment(snapshot.watermark)}"
    watermark = "; ".join(part for part in (info.watermark, reached) if part is not None)
    if watermark:
        yield ("watermark", watermark)
    yield ("tags", ", ".join(info.tags) or "none")
    yield ("branches", ", ".join(("main", *info.branches)))
    yield from ((f"option {key}", value) for key, value in info.options.items())


def _column_grid(columns: Sequence[ColumnInfo]) -> Grid:
    header = ["id", "column", "type", "nullable", "partition", "comment"]
    shown = [(c.id, c.name, c.type, c.nullable, c.partition, c.comment) for c in columns]
    if all(c.default is None for c in columns):
        return Grid(header, shown)
    return Grid([*header, "default"], [(*row, c.default) for row, c in zip(shown, columns, strict=True)])


@verb(TABLES, "Table.schema", sql="DESCRIBE TABLE db.t")
def schema(table: AtMoment) -> Answer:
    """Show the columns of a table."""
    found = columns_of(table.schema)
    return Answer(found, _column_grid(found), moment=table.moment)


_Texts = list[str] | None


@dataclass(frozen=True, slots=True)
class AlterInfo:
    """What changes made of a schema, or would make."""

    table: str
    schema_before: int
    schema_id: int
    """The version that holds the changes; that of before if they change nothing."""
    changes: tuple[str, ...]
    """One phrase a difference between the two, such as ``dropped 'v'``."""
    columns: tuple[ColumnInfo, ...]
    applied: bool


@verb(TABLES, "Table.alter", sql="ALTER TABLE db.t ADD COLUMN v STRING", changes=True)
def alter_table(
    table: OnBranch,
    add: Annotated[
        _Texts,
        option('"zip STRING AFTER city"; also inside: "address.zip STRING COMMENT \'of the house\'".'),
    ] = None,
    drop: Annotated[_Texts, option("Remove a column.", metavar="COLUMN")] = None,
    rename: Annotated[_Texts, option("Give a column another name.", metavar="OLD=NEW")] = None,
    widen: Annotated[_Texts, option("Such as n=BIGINT for an INT.", metavar="COLUMN=TYPE")] = None,
    nullable: Annotated[_Texts, option("Allow nulls in a column.", metavar="COLUMN")] = None,
    move: Annotated[
        _Texts,
        option('"zip FIRST", "zip LAST", "zip AFTER city" or "zip BEFORE city".', metavar="COLUMN_PLACE"),
    ] = None,
    comment: Annotated[
        _Texts, option("Describe the table; empty for no description.", metavar="TEXT")
    ] = None,
    column_comment: Annotated[_Texts, option("Describe a column.", metavar="COLUMN=TEXT")] = None,
    default: Annotated[
        _Texts,
        option("What nulls become when they are written; COLUMN alone for none.", metavar="COLUMN=VALUE"),
    ] = None,
    set_: Annotated[_Texts, option("Set an option of the table.", "--set", metavar="KEY=VALUE")] = None,
    unset: Annotated[_Texts, option("Return an option to its default.", metavar="KEY")] = None,
    dry_run: DryRun = False,
    *,
    order: Order,
) -> Answer:
    """Change columns, comments and options: all that is given, in its order, as one version of the schema.

    Every option may be repeated. Columns inside others are named by their path: address.zip, and
    orders.element.price or counts.value.n inside arrays and maps.
    """  # fmt: skip
    from anabranch.format.schema.change_text import parse_change

    given = {
        "add": add,
        "drop": drop,
        "rename": rename,
        "widen": widen,
        "nullable": nullable,
        "move": move,
        "comment": comment,
        "column_comment": column_comment,
        "default": default,
        "set_": set_,
        "unset": unset,
    }
    texts = {name: iter(found or ()) for name, found in given.items()}
    before, wanted = table.schema, table.alter()
    for name in order:
        if name in texts:
            kind = name.strip("_").replace("_", "-")
            wanted = wanted.with_change(parse_change(kind, next(texts[name])))
    after = wanted.preview() if dry_run else wanted.apply()
    changes, applied = tuple(phrases(before, after)), not dry_run and after.id != before.id
    info = AlterInfo(table.name, before.id, after.id, changes, columns_of(after), applied)
    if after.id == before.id:
        return Answer(info, f"{table.name}: nothing changes, the schema is version {after.id}")
    would = "would become" if dry_run else "is now"
    text = f"{table.name}: the schema {would} version {after.id}"
    return Answer(info, text, *(f"  {phrase}" for phrase in changes))


# What a table knows of itself


@verb("Moments", "Table.snapshots", sql="SELECT * FROM db.t$snapshots")
def snapshots(table: OnBranch, limit: Annotated[Limit | None, limit("All")] = None) -> Answer:
    """List the retained snapshots of a table, newest first."""
    most = None if limit is None else limit.rows
    unread = Unread(table.name)
    found = [SnapshotInfo.of(snapshot) for snapshot in legible_snapshots(table, unread, most)]
    counts = [(s.rows, s.rows_added, str(s.schema_id)) for s in found]
    columns = ("snapshot", "kind", "time", "rows", "added", "schema", "user", "identifier")
    rows = [
        (str(s.id), s.kind, moment(s.time_millis), *count, s.user, _batch(s.identifier))
        for s, count in zip(found, counts, strict=True)
    ]
    narrow = [
        (str(s.id), s.kind, moment(s.time_millis)[:19], *count, _by(s.user, s.identifier))
        for s, count in zip(found, counts, strict=True)
    ]
    short = Grid(("snapshot", "kind", "time (UTC)", "rows", "added", "schema", "by"), narrow)
    return Answer(found, Grid(columns, rows, on_terminal=short), *unread.notes, code=unread.code)


def _by(user: str, identifier: int) -> str:
    """Return who committed: the beginning of a random name, and the number of a stream's batch."""
    name = user[:8] if re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", user) else user
    return name if _batch(identifier) == "batch" else f"{name} {identifier}"


def _batch(identifier: int) -> str:
    return "batch" if identifier == (1 << 63) - 1 else str(identifier)


@verb(TABLES, "Table.scan", sql="SELECT * FROM db.t$files")
def files(
    table: AtMoment,
    filter: Annotated[str | None, option("Only files that may match.", "--filter", "-f")] = None,
) -> Answer:
    """List the live data files of a table."""
    found = [
        FileInfo(
            file.path,
            file.path.rpartition("/bucket-")[0],
            split.bucket,
            file.format,
            file.row_count,
            file.size,
            file.schema_id,
        )
        for split in table.scan(filter).plan().splits
        for file in split.files
    ]
    rows = [(f.path, f.bucket, f.rows, f.bytes, f.schema_id) for f in found]
    grid = Grid(("file", "bucket", "rows", "bytes", "schema"), rows)
    return Answer(found, grid, moment=table.moment)


def _system_verb(name: str, help: str) -> Callable[..., Answer]:
    """Declare the verb that shows a system table."""

    def shown(view: AnyView, filter: Filter = None, columns: Columns = None, *, caller: Called) -> Answer:
        asked = View(f"{view.table}${name}", view.branch, view.at, view.exact)
        return read_rows(caller, asked, filter, names(columns), None)

    shown.__name__, shown.__doc__ = name, help
    said = f"SELECT * FROM db.t${name}"  # noqa: S608 - for people
    return verb(TABLES, "Table.system", sql=said)(shown)


schemas = _system_verb("schemas", "List the versions of a table's schema.")
options = _system_verb("options", "List the options that are set in a table.")
manifests = _system_verb("manifests", "List the manifests of a table.")
partitions = _system_verb("partitions", "List the partitions of a table with their rows, files and bytes.")
buckets = _system_verb("buckets", "List the buckets of a table with their rows, files and bytes.")
