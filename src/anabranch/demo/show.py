"""The demo's final output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as TextTable

from anabranch.demo.questions import WINDY, QuestionRows

if TYPE_CHECKING:
    from anabranch.demo.facts import Fact
    from anabranch.demo.story import DemoResult


def show(result: DemoResult, console: Console) -> None:
    """Print answers, facts, and where to look further."""
    console.print("\n[bold]6. Ask, in Spark SQL[/bold]")
    for answer in result.answers:
        # Above a narrow table, not as its title, which would be broken into lines as narrow.
        console.print(f"\n{answer.statement}", style="cyan", markup=False, highlight=False, soft_wrap=True)
        console.print(_answer_table(answer))
    console.print()
    console.print(_fact_table("when the mistake was there", result.wrong, "[yellow]wrong[/yellow]"))
    console.print()
    console.print(_fact_table("checked against the source, in the end", result.facts, "[red]WRONG[/red]"))
    verdict = (
        "[green]corrected under a running stream: every row is right and there exactly once[/green]"
        if result.correct
        else "[red]rows differ[/red]"
    )
    console.print(f"\n{verdict}, in {result.seconds:.0f} s. Look further:", soft_wrap=True)
    for command in (
        "lineage jobs --format tree",
        "branches demo.delays",
        f'explain demo.delays --filter "{WINDY}"',
        'sql "SELECT month, count(*) FROM demo.long_hauls GROUP BY month"',
    ):
        console.print(f"  anabranch -w {result.warehouse} {command}", soft_wrap=True)


def _fact_table(title: str, facts: tuple[Fact, ...], otherwise: str) -> TextTable:
    shown = TextTable(title=title, title_justify="left", box=None)
    for heading in ("fact", "expected", "found", ""):
        shown.add_column(heading, justify="left" if heading in ("fact", "") else "right")
    for fact in facts:
        mark = "[green]equal[/green]" if fact.holds else otherwise
        shown.add_row(fact.what, f"{fact.expected:,.0f}", f"{fact.found:,.0f}", mark)
    return shown


def _answer_table(answer: QuestionRows) -> TextTable:
    shown = TextTable(box=None)
    for name in answer.columns:
        shown.add_column(name)
    for row in answer.rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown
