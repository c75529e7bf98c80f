"""Small tables for people: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

_WIDTH = 120
"""Characters of a line, beyond which cells are folded."""


def as_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows under a header, numbers to the right, whatever markup or signs for terminals the values hold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [[*row] for row in rows]
    table = Table(header_style=None, box=None, pad_edge=False)
    for place, column in enumerate(columns):
        numeric = all(_is_number(row[place]) for row in shown)
        table.add_column(Text(column), justify="right" if numeric and shown else "left", overflow="fold")
    for row in shown:
        table.add_row(*(Text(_cell(value)) for value in row))
    text = StringIO()
    Console(file=text, width=_WIDTH, no_color=True, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def as_html(title: str, about: Iterable[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A title, lines below it, and a table."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    lines = "<br>".join(map(html.escape, about))
    return f"<b>{html.escape(title)}</b><br>{lines}<table><tr>{head}</tr>{body}</table>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(value))
