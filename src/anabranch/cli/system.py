"""Verbs about this machine: doctor and demo."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Conf, settings
from anabranch.cli.output import console, printable, runnable, show_json

_MARKS = {
    "ok": "[green]ok[/green]     ",
    "missing": "[yellow]missing[/yellow]",
    "warning": "[yellow]warning[/yellow]",
    "failed": "[red]failed[/red] ",
}


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.command()(doctor)
    app.command()(demo)


def doctor(
    master: Annotated[
        str | None, typer.Option(help="Spark master to try: its executors too. None is started if absent.")
    ] = None,
    conf: Conf = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The warehouse is only to be read: write nothing to try it.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Try what Anabranch needs: Python, Java, Spark and its executors, the warehouse and its store, the place of checkpoints.

    Exit code 1 if something failed; what is missing is optional.
    """
    from anabranch.doctor.machine import Examination, examine

    asked = Examination(state.warehouse, read_only, master, settings(conf))
    found = []
    for check in examine(asked):
        found.append(check)
        if not json:
            console.print(
                f"{_MARKS[check.status]} {check.name}: {escape(printable(check.found))}", soft_wrap=True
            )
            if check.remedy:
                console.print(
                    f"        {escape(printable(runnable(check.remedy)))}", style="dim", soft_wrap=True
                )
    if json:
        show_json(found)
    if any(check.status == "failed" for check in found):
        raise typer.Exit(1)


def demo(
    days: Annotated[int, typer.Option(help="How many days of flights to stream.", min=2, max=365)] = 365,
    keep: Annotated[str | None, typer.Option(help="Folder to keep the demo's warehouse in.")] = None,
    json: AsJson = False,
) -> None:
    """A stream of real flights goes wrong, is corrected on a branch and put in place while it runs; every row is checked."""
    from anabranch.demo.story import run_demo

    facts = run_demo(days=days, folder=keep, quiet=json)
    if json:
        show_json(facts)
    if not facts.correct:
        raise typer.Exit(1)
