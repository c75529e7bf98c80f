"""The verb that changes a table's schema."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Branch, DryRun, TableName
from anabranch.cli.output import say, show_json

Texts = list[str] | None


class InOrder(TyperCommand):
    """A command whose options are done in the order in which they were given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[__name__] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("alter-table", cls=InOrder)(alter_table)


def alter_table(
    ctx: typer.Context,
    table: TableName,
    add: Annotated[
        Texts,
        typer.Option(
            help='"zip STRING AFTER city"; also inside: "address.zip STRING COMMENT \'of the house\'".'
        ),
    ] = None,
    drop: Annotated[Texts, typer.Option(metavar="COLUMN", help="Remove a column.")] = None,
    rename: Annotated[Texts, typer.Option(metavar="OLD=NEW", help="Give a column another name.")] = None,
    widen: Annotated[Texts, typer.Option(metavar="COLUMN=TYPE", help="Such as n=BIGINT for an INT.")] = None,
    nullable: Annotated[Texts, typer.Option(metavar="COLUMN", help="Allow nulls in a column.")] = None,
    move: Annotated[
        Texts,
        typer.Option(
            metavar="COLUMN_PLACE", help='"zip FIRST", "zip LAST", "zip AFTER city" or "zip BEFORE city".'
        ),
    ] = None,
    comment: Annotated[
        Texts, typer.Option(metavar="TEXT", help="Describe the table; empty for no description.")
    ] = None,
    column_comment: Annotated[Texts, typer.Option(metavar="COLUMN=TEXT", help="Describe a column.")] = None,
    default: Annotated[
        Texts,
        typer.Option(
            metavar="COLUMN=VALUE", help="What nulls become when they are written; COLUMN alone for none."
        ),
    ] = None,
    set_: Annotated[
        Texts, typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the table.")
    ] = None,
    unset: Annotated[Texts, typer.Option(metavar="KEY", help="Return an option to its default.")] = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Change columns, comments and options: all that is given, in its order, as one version of the schema.

    Every option may be repeated. Columns inside others are named by their path: address.zip, and
    orders.element.price or counts.value.n inside arrays and maps.
    """  # fmt: skip
    from anabranch.service import alter as service
    from anabranch.service import tables

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
    changes = [
        service.Change(name.strip("_").replace("_", "-"), next(texts[name]))
        for name in ctx.meta[__name__]
        if name in texts
    ]
    info = service.alter(
        tables.open_lake(state.warehouse), tables.View(table, branch), changes, dry_run=dry_run
    )
    if json:
        show_json(info)
        return
    if info.schema_id == info.schema_before:
        say(f"{info.table}: nothing changes, the schema is version {info.schema_id}")
        return
    would = "would become" if dry_run else "is now"
    say(f"{info.table}: the schema {would} version {info.schema_id}")
    for phrase in info.changes:
        say(f"  {phrase}")
