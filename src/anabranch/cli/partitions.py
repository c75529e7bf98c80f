"""The verb expire-partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Branch, DryRun, TableName, Yes, confirm
from anabranch.cli.output import say, show_json, show_table


def register(app: typer.Typer) -> None:
    """Add this verb to the command line."""
    app.command("expire-partitions")(expire_partitions)


def expire_partitions(
    table: TableName,
    older_than: Annotated[
        str | None, typer.Option(help="An age such as '90 d', instead of partition.expiration-time.")
    ] = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Take partitions away that are older than partition.expiration-time says; moments before it keep their rows."""
    from anabranch.service.tables import View, open_lake, open_table

    view = open_table(open_lake(state.warehouse), View(table, branch))
    confirm(f"expire old partitions of {table}?", yes=yes or dry_run or json)
    done = view.expire_partitions(older_than, dry_run=dry_run)
    found = [(p.partition, f"{p.time:%Y-%m-%d %H:%M:%S}Z", p.rows, p.files, p.bytes) for p in done.partitions]
    columns = ["partition", "time", "rows", "files", "bytes"]
    if json:
        show_json(
            {
                "table": view.name,
                "partitions": [dict(zip(columns, row, strict=True)) for row in found],
                "snapshot": None if done.snapshot is None else done.snapshot.id,
                "timeless": done.timeless,
                "dry_run": dry_run,
            }
        )
        return
    if found:
        show_table(columns, found)
    say(str(done) + ("" if done.snapshot is None else f" in snapshot {done.snapshot.id}"))
    if done.timeless:
        say(f"{done.timeless:,} partitions stand for no time and never expire", err=True)
