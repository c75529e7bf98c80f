"""Verbs that show what a table knows of itself, and going back to an earlier moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from anabranch.cli import state
from anabranch.cli.arguments import (
    AsJson,
    At,
    Branch,
    Columns,
    DryRun,
    Exact,
    Filter,
    TableName,
    Yes,
    confirm,
    names,
)
from anabranch.cli.output import moment, say, say_cut, show_json, show_moment, show_rows

_VERBS = {
    "schemas": "List the versions of a table's schema.",
    "options": "List the options that are set in a table.",
    "manifests": "List the manifests of a table.",
    "partitions": "List the partitions of a table with their rows, files and bytes.",
    "buckets": "List the buckets of a table with their rows, files and bytes.",
}


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for name, help_text in _VERBS.items():
        app.command(name, help=help_text)(_verb(name))
    app.command()(rollback)
    app.command("reset-watermark")(reset_watermark)


def show_system_table(
    table: str,
    *,
    filter: str | None = None,
    columns: list[str] | None = None,
    limit: int | None = None,
    branch: str | None = None,
    at: str | None = None,
    exact: bool = False,
    published: bool = False,
    json: bool = False,
) -> None:
    """Print a system table, with `json` one object a line."""
    from anabranch.service import system_tables as service
    from anabranch.service.tables import View, open_lake
    from anabranch.service.values import rows_of

    lake = open_lake(state.warehouse)
    view = View(table, branch, at, exact, published)
    wanted = None if limit is None else limit + 1
    rows, found = service.read(lake, view, filter=filter, columns=columns, limit=wanted)
    is_cut = limit is not None and rows.num_rows > limit
    rows = rows if limit is None else rows.slice(0, limit)
    show_moment(found)
    if json:
        for row in rows_of(rows):
            show_json(row)
    else:
        show_rows(rows.schema.names, (tuple(row.values()) for row in rows_of(rows)))
    if is_cut:
        say_cut(rows.num_rows)


def _verb(name: str) -> Callable[..., None]:
    def show(
        table: TableName,
        branch: Branch = None,
        at: At = None,
        exact: Exact = False,
        filter: Filter = None,
        columns: Columns = None,
        json: AsJson = False,
    ) -> None:
        show_system_table(
            f"{table}${name}",
            filter=filter,
            columns=names(columns),
            branch=branch,
            at=at,
            exact=exact,
            json=json,
        )

    return show


def rollback(
    table: TableName,
    to: Annotated[
        str, typer.Option("--to", help="Moment to go back to: a tag, snapshot id, snapshot.N or savepoint.N.")
    ],
    branch: Branch = None,
    destructive: Annotated[
        bool,
        typer.Option("--destructive", help="Remove the snapshots after it for good, instead of a new one."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --destructive: also remove what refers to these snapshots.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Go back to an earlier moment: as one new snapshot, or by removing what came after it."""
    from anabranch.service import rollback as service
    from anabranch.service import tables

    view = tables.open_table(tables.open_lake(state.warehouse), tables.View(table, branch))
    info, planned = service.preview(view, to, destructive=destructive)
    if dry_run:
        show_json(info) if json else say(_text(info, "would go"))
        return
    refused = bool(info.removed_references) and not force
    if info.removed_snapshots and not refused and not json:
        say(_text(info, "goes"))
        confirm("remove these for good?", yes=yes)
    done = service.carry_out(view, to, planned, force=force)
    show_json(done) if json else say(_text(done, "went"))


def reset_watermark(
    table: TableName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="A time; the highest in the history that is not ahead of the clock if absent."
        ),
    ] = None,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Set the watermark anew, because a row from a wrong clock has moved it too far."""
    from anabranch.service import rollback as service
    from anabranch.service import tables

    view = tables.open_table(tables.open_lake(state.warehouse), tables.View(table, branch))
    info = service.reset_watermark(view, to)
    if json:
        show_json(info)
    else:
        now = "none" if info.watermark is None else moment(info.watermark)
        was = "none" if info.before is None else moment(info.before)
        say(f"the watermark of {info.table} is {now}" + (f", and was {was}" if was != now else ""))


def _text(info: Any, verb: str) -> str:
    lines = [f"{info.table} {verb} back to '{info.to}' (snapshot {info.target_snapshot})"]
    lines.append(f"  rows removed   {info.rows_removed:,} in {info.files_removed:,} files")
    lines.append(f"  rows restored  {info.rows_restored:,} in {info.files_restored:,} files")
    if info.removed_snapshots:
        first, last = info.removed_snapshots[-1], info.removed_snapshots[0]
        lines.append(f"  removed for good: snapshots {first} to {last}")
    lines += [
        f"  removed for good: {r.kind} '{r.name}' (snapshot {r.snapshot})" for r in info.removed_references
    ]
    if info.done:
        lines.append(f"  the newest snapshot is {info.snapshot}")
    return "\n".join(lines)
