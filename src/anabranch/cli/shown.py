"""Shows the answers of verbs: to people, or as JSON to programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli import output
from anabranch.cli.output import printable, runnable, say, show_json
from anabranch.verbs.answer import (
    Answer,
    Branching,
    Cut,
    Document,
    Grid,
    Line,
    Lines,
    Note,
    Pairs,
    Rich,
    Sample,
    Shown,
    Watched,
)


def show(answer: Answer, *, json: bool) -> None:
    """Print an answer."""
    if answer.moment is not None:
        say(f"({answer.moment})", err=True)
    if json:
        _show_value(answer.value)
    for part in answer.shown:
        if isinstance(part, Watched):
            _watch(part, json=json)
        elif not json or isinstance(part, Note | Cut):
            _show(part)


def _show_value(value: Any) -> None:
    if isinstance(value, Lines):
        for part in value.parts:
            show_json(part)
    elif value is not None:
        show_json(value)


def _show(part: Shown | Iterable[Shown]) -> None:
    match part:
        case str():
            say(part)
        case Grid(on_terminal=Grid() as narrow) if output.console.is_terminal:
            _show(narrow)
        case Grid() if part.style is not None and output.console.is_terminal:
            output.console.print(_drawn(part))
        case Grid():
            output.show_table(part.columns, part.rows, grouped=part.grouped)
        case Pairs():
            output.show_pairs(part.pairs, grouped=part.grouped)
        case Line():
            _show_line(part)
        case Branching():
            output.show_tree(part.top, part.branches)
        case Note():
            say(part.text, err=True)
        case Cut():
            shown = part.shown()
            if shown is not None:
                say(f"(the first {shown:,} rows; --limit all shows all)", err=True)
        case Sample():
            output.console.print(printable(part.name), style="dim", end="", markup=False, highlight=False)
            show_json(part.value)
        case Document():
            output.show_document(part.text)
        case Rich():
            output.console.print(part.drawn)
        case Watched():
            raise AssertionError("what is watched is shown by itself")
        case _:
            for one in part:
                _show(one)


def _show_line(line: Line) -> None:
    text = Text.assemble(line.mark, (printable(runnable(line.text)), line.style))
    output.console.print(text, soft_wrap=not (line.folded and output.console.is_terminal))


def _watch(watched: Watched, *, json: bool) -> None:
    """Show one answer after the other, on a terminal in the place of the one before. Ends with an interrupt."""
    try:
        if json or not output.console.is_terminal:
            for answer in watched.answers:
                show(answer, json=json)
            return
        with Live(console=output.console, auto_refresh=False) as live:
            for answer in watched.answers:
                (grid,) = answer.shown
                assert isinstance(grid, Grid), "what is watched is a table"
                live.update(_drawn(grid), refresh=True)
    except KeyboardInterrupt:
        return


def _drawn(grid: Grid) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(grid.columns):
        drawn.add_column(column, justify="right" if place in grid.right else "left", overflow="fold")
    for row in grid.rows:
        styles = {} if grid.style is None else grid.style(row)
        drawn.add_row(*(Text(_cell(cell), style=styles.get(place, "")) for place, cell in enumerate(row)))
    return drawn


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else printable(str(value))
