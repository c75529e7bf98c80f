"""Verbs about tables as such: list, create, drop, describe."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import (
    AsJson,
    At,
    Branch,
    Exact,
    Limit,
    TableName,
    Yes,
    confirm,
    limit_option,
    names,
    settings,
)
from anabranch.cli.output import has_terminal, moment, say, show_json, show_moment, show_pairs, show_table

if TYPE_CHECKING:
    from anabranch.service.tables import TableInfo

_COLUMNS_HELP = (
    'Such as "id BIGINT NOT NULL, v STRING"; also "..., ts TIMESTAMP(3), '
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND\"."
)


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (databases, tables, create_table, drop_table, describe, schema, snapshots, files):
        app.command(verb.__name__.replace("_", "-"))(verb)


def databases(json: AsJson = False) -> None:
    """List the databases of the warehouse."""
    from anabranch.service.listing import names_in

    names = names_in(state.warehouse)
    found = names.databases()
    names.check_there(found)
    show_json(found) if json else show_table(["database"], [[name] for name in found])


def tables(
    database: Annotated[str | None, typer.Argument(help="Only of this database.")] = None,
    json: AsJson = False,
) -> None:
    """List tables."""
    from anabranch.service.listing import names_in

    names = names_in(state.warehouse)
    databases = [database] if database else names.databases()
    names.check_there(databases)
    found = [f"{name}.{table}" for name in databases for table in names.tables(name)]
    show_json(found) if json else show_table(["table"], [[name] for name in found])


def create_table(
    table: TableName,
    columns: Annotated[str, typer.Argument(metavar="COLUMNS", help=_COLUMNS_HELP)],
    partition_by: Annotated[str | None, typer.Option(help="Comma-separated partition columns.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="key=value; may be repeated.")
    ] = None,
    comment: Annotated[str | None, typer.Option(help="Text for people.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Keep an existing table.")] = False,
    json: AsJson = False,
) -> None:
    """Create a table, and its database if needed."""
    from anabranch.service import tables as service

    info = service.create_table(
        service.open_lake(state.warehouse),
        table,
        columns,
        partition_by=names(partition_by) or (),
        options=settings(option),
        comment=comment,
        if_not_exists=if_not_exists,
    )
    show_json(info) if json else say(f"created {info.name} at {info.location}")


def drop_table(
    table: TableName,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if there is none.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Remove a table with all its branches and data."""
    from anabranch.errors import NotFoundError
    from anabranch.service import tables as service

    lake = service.open_lake(state.warehouse)
    try:
        info = service.describe(lake.table(table))
    except NotFoundError:
        if not if_exists:
            raise
        show_json({"table": table, "dropped": False}) if json else say(f"there is no {table}")
        return
    rows = info.snapshot.rows if info.snapshot else 0
    counted = "rows that nobody counted" if rows is None else f"{rows:,} rows"
    what = f"{info.name}: {counted}, {info.files:,} live files, {info.bytes:,} bytes"
    confirm(f"remove {what}?", yes=yes or dry_run or json)
    if not dry_run:
        lake.drop_table(table)
    if json:
        show_json(
            {"table": table, "dropped": not dry_run, "rows": rows, "files": info.files, "bytes": info.bytes}
        )
    else:
        say(f"{'would remove' if dry_run else 'removed'} {what}")


def describe(
    table: TableName, branch: Branch = None, at: At = None, exact: Exact = False, json: AsJson = False
) -> None:
    """Show what a table is and holds."""
    from anabranch.service import tables as service

    info = service.describe(
        service.open_table(service.open_lake(state.warehouse), service.View(table, branch, at, exact))
    )
    if json:
        show_json(info)
        return
    snapshot = info.snapshot
    show_pairs(
        [
            ("table", info.name),
            ("location", info.location),
            ("uuid", info.uuid),
            ("comment", info.comment),
            (
                "snapshot",
                f"{snapshot.id} ({snapshot.kind}, {moment(snapshot.time_millis)})" if snapshot else "none",
            ),
            *([("moment", info.moment)] if info.moment else []),
            ("rows", snapshot.rows if snapshot else 0),
            ("files", info.files),
            ("bytes", info.bytes),
            ("schema", info.schema_id),
            ("partitioned by", ", ".join(info.partition_keys) or "nothing"),
            *_watermark(info),
            ("tags", ", ".join(info.tags) or "none"),
            ("branches", ", ".join(("main", *info.branches))),
            *((f"option {key}", value) for key, value in info.options.items()),
        ]
    )
    say("")
    _show_columns(info.columns)


def schema(
    table: TableName, branch: Branch = None, at: At = None, exact: Exact = False, json: AsJson = False
) -> None:
    """Show the columns of a table."""
    from anabranch.service import tables as service

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch, at, exact))
    show_moment(view.moment)
    found = service.columns_of(view)
    show_json(found) if json else _show_columns(found)


def snapshots(
    table: TableName,
    branch: Branch = None,
    limit: Annotated[Limit | None, limit_option("All")] = None,
    json: AsJson = False,
) -> None:
    """List the retained snapshots of a table, newest first."""
    from anabranch.service import tables as service

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch))
    found = service.snapshots(view, limit=None if limit is None else limit.rows)
    if json:
        show_json(found)
        return
    if has_terminal():  # of 80 columns; a pipe and JSON have all in full
        show_table(
            ["snapshot", "kind", "time (UTC)", "rows", "added", "schema", "by"],
            [
                (str(s.id), s.kind, moment(s.time_millis)[:19], s.rows, s.rows_added, str(s.schema_id), _by(s.user, s.identifier))
                for s in found
            ],
        )  # fmt: skip
        return
    show_table(
        ["snapshot", "kind", "time", "rows", "added", "schema", "user", "identifier"],
        [
            (str(s.id), s.kind, moment(s.time_millis), s.rows, s.rows_added, str(s.schema_id), s.user, _batch(s.identifier))
            for s in found
        ],
    )  # fmt: skip


def files(
    table: TableName,
    branch: Branch = None,
    at: At = None,
    exact: Exact = False,
    filter: Annotated[str | None, typer.Option("--filter", "-f", help="Only files that may match.")] = None,
    json: AsJson = False,
) -> None:
    """List the live data files of a table."""
    from anabranch.service import tables as service

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch, at, exact))
    show_moment(view.moment)
    found = service.files(view, filter)
    if json:
        show_json(found)
        return
    show_table(
        ["file", "bucket", "rows", "bytes", "schema"],
        [(f.path, f.bucket, f.rows, f.bytes, f.schema_id) for f in found],
    )


def _show_columns(columns: object) -> None:
    from anabranch.service.tables import ColumnInfo

    assert isinstance(columns, tuple)
    rows: list[ColumnInfo] = [*columns]
    header = ["id", "column", "type", "nullable", "partition", "comment"]
    shown = [(c.id, c.name, c.type, c.nullable, c.partition, c.comment) for c in rows]
    if any(c.default is not None for c in rows):
        show_table([*header, "default"], [(*row, c.default) for row, c in zip(shown, rows, strict=True)])
    else:
        show_table(header, shown)


def _watermark(info: TableInfo) -> list[tuple[str, str]]:
    """How it follows from the rows, and how far it has come; nothing if there is none."""
    reached = None if info.snapshot is None else info.snapshot.watermark
    parts = [info.watermark, None if reached is None else f"now {moment(reached)}"]
    text = "; ".join(part for part in parts if part is not None)
    return [("watermark", text)] if text else []


def _by(user: str, identifier: int) -> str:
    """Who committed: the beginning of a random name, and the number of a stream's batch."""
    name = user[:8] if re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", user) else user
    return name if _batch(identifier) == "batch" else f"{name} {identifier}"


def _batch(identifier: int) -> str:
    return "batch" if identifier == (1 << 63) - 1 else str(identifier)
