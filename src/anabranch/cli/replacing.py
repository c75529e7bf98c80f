"""Verbs that put a branch in the place of main, and take that back."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, DryRun, Reason, TableName, Yes, confirm
from anabranch.cli.output import say, show_json, show_only_on_main


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (replace_main_branch, undo_replace):
        app.command(verb.__name__.replace("_", "-"))(verb)


def replace_main_branch(
    table: TableName,
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the branch that is to be main.")],
    expect_main: Annotated[
        str | None,
        typer.Option(
            help="Main's newest snapshot, its number or, as --dry-run says, with a part of its stamp such as "
            "57@0c1f9a2b; with another one nothing is done."
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="'pointer' makes the branch main; 'commit' gives main its rows in one commit, for tables that other "
            "engines use."
        ),
    ] = "pointer",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the branch has read from its sources what main has.")
    ] = False,
    wait_for: Annotated[str | None, typer.Option(help="Wait no longer than this, such as '10 min'.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on although a check found something.")] = False,
    require_audit: Annotated[
        str | None, typer.Option(help="Name of the checks that the branch must have passed as it is now.")
    ] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Put a branch in the place of main, while everybody reads and writes. Exits with 3 if something stands against it."""
    from anabranch.service import replacing as service

    confirm(f"put branch '{name}' in the place of main of {table}?", yes=yes or dry_run or json)
    result = service.replace_main_branch(
        state.warehouse,
        table,
        name,
        expect_main=expect_main,
        mode=mode,
        wait=wait_for or wait,
        force=force,
        require_audit=require_audit,
        reason=reason,
        dry_run=dry_run,
    )
    if json:
        show_json(result)
    else:
        say(f"{table}: {result}")
        show_only_on_main(result.jobs_only_on_main)
        if result.expect_main is not None:
            say(f"with --expect-main {result.expect_main} that is done to main as it is now, or not at all")


def undo_replace(
    table: TableName,
    number: Annotated[
        int | None,
        typer.Option(help="Number of the replacement, to go back further than the last one."),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="Also if it was made together with those of other tables, which stay."),
    ] = False,
    reason: Reason = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Take back the last replacement of main. What was committed since stays on the branch that was main."""
    from anabranch.service import replacing as service

    confirm(f"take back the last replacement of main of {table}?", yes=yes or json)
    result = service.undo_replace(state.warehouse, table, number=number, alone=alone, reason=reason)
    if json:
        show_json(result)
    else:
        say(f"{table}: {result}")
