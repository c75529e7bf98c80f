"""Small tables and summaries for people: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any, Final

_WIDTH = 120
"""Characters of a line, beyond which cells are folded."""
_MOST_LINES: Final = 24
"""Lines of a screen."""
_MOST_ROWS: Final = 12
_MOST_CELL: Final = 60
"""Most characters of a value in a summary."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format rows under a header, numbers right-aligned; markup and control characters in values stay literal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [[*row] for row in rows]
    table = Table(header_style=None, box=None, pad_edge=False)
    for place, column in enumerate(columns):
        numeric = all(is_number(row[place]) for row in shown)
        table.add_column(Text(column), justify="right" if numeric and shown else "left", overflow="fold")
    for row in shown:
        table.add_row(*(Text(_cell(value)) for value in row))
    text = StringIO()
    Console(file=text, width=_WIDTH, no_color=True, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def as_html(title: str, about: Iterable[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Format a title, lines below it, and a table."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    lines = "<br>".join(map(html.escape, about))
    return f"<b>{html.escape(title)}</b><br>{lines}<table><tr>{head}</tr>{body}</table>"


def is_number(value: Any) -> bool:
    """Whether a value counts for a column of numbers: a number, or none."""
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


@dataclass(frozen=True, slots=True)
class Glance:
    """A summary that fits on one screen."""

    title: str
    facts: Sequence[str] = ()
    """One line each."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()

    def text(self) -> str:
        """Return at most one screen: 24 lines of 120 characters, whatever the values hold."""
        facts = [f"  {_line(fact)}" for fact in self.facts]
        most = _MOST_LINES - 4 - min(len(self.rows), _MOST_ROWS)
        lines = [_line(self.title), *_first(facts, most, "  … {} more lines")]
        if self.rows:
            rows = [tuple(_short(value) for value in row) for row in self.rows[:_MOST_ROWS]]
            lines += as_text(self.columns, rows).splitlines()[: _MOST_ROWS + 1]
            if len(self.rows) > _MOST_ROWS:
                lines.append(f"… {len(self.rows) - _MOST_ROWS:,} more")
        return "\n".join(line[:_WIDTH] for line in lines)

    def html(self) -> str:
        """Return the same as HTML, with values escaped."""
        rows = [tuple(_short(value) for value in row) for row in self.rows[:_MOST_ROWS]]
        facts = _first([_line(fact) for fact in self.facts], _MOST_LINES, "… {} more")
        if len(self.rows) > _MOST_ROWS:
            facts.append(f"the first {_MOST_ROWS} of {len(self.rows):,} rows")
        return as_html(_line(self.title), facts, self.columns, rows)


class Shown:
    """Base of objects that users see: at most a screen of text, and HTML in a notebook. Never fails or reads."""

    __slots__ = ()

    def _glance(self) -> Glance:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._glance().text()

    def _repr_html_(self) -> str:
        return self._glance().html()


def one_screen(text: str) -> str:
    """Return the beginning of a text, as much as fits on a screen."""
    return "\n".join(map(_line, _first(text.splitlines(), _MOST_LINES, "… {} more lines")))


def time_text(millis: int | None) -> str:
    """Return a time in UTC, to seconds; epoch milliseconds outside the years of the calendar."""
    if millis is None:
        return ""
    try:
        return f"{_EPOCH + timedelta(milliseconds=millis):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return f"{millis:,} ms"


def size_text(size: int) -> str:
    """Return bytes with a unit, such as ``1.5 GB``; units are powers of 1024."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KB", "MB", "GB", "TB"):  # noqa: B007
        if value < 1024:
            break
        value /= 1024
    return f"{size:,} bytes" if unit == "bytes" else f"{value:,.1f} {unit}"


def _first(lines: Sequence[str], most: int, rest: str) -> list[str]:
    if len(lines) <= most:
        return [*lines]
    return [*lines[: most - 1], rest.format(f"{len(lines) - most + 1:,}")]


def _line(text: str) -> str:
    """Return text on one line, without control characters."""
    shown = _cell(text).replace("\n", "\\n")
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 1]}…"


def _short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = _cell(value).replace("\n", "\\n")
    return shown if len(shown) <= _MOST_CELL else f"{shown[: _MOST_CELL - 1]}…"
