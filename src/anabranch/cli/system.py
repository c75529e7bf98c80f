"""Verbs about this machine: doctor and demo."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from anabranch.cli import state
from anabranch.cli.arguments import AsJson
from anabranch.cli.output import console, printable, show_json


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.command()(doctor)
    app.command()(demo)


def doctor(json: AsJson = False) -> None:
    """Check what Anabranch needs: Python, Java, Spark, Arrow, and the warehouse."""
    from anabranch.service.doctor import examine

    checks = examine(state.warehouse)
    if json:
        show_json(checks)
    else:
        marks = {
            "ok": "[green]ok[/green]     ",
            "missing": "[yellow]missing[/yellow]",
            "failed": "[red]failed[/red] ",
        }
        for check in checks:
            console.print(f"{marks[check.status]} {check.name}: {escape(printable(check.found))}")
            if check.remedy:
                console.print(f"        {escape(printable(check.remedy))}", style="dim")
    if any(check.status == "failed" for check in checks):
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
