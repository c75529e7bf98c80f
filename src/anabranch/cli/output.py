"""How results are shown: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(soft_wrap=False)
problems = Console(stderr=True)


def show_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json.dumps(_plain(value), default=_encode, ensure_ascii=False))  # noqa: T201


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Rows under a header; numbers to the right."""
    shown = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = all(
            isinstance(row[i], int | float | None) and not isinstance(row[i], bool) for row in shown
        )
        table.add_column(column, justify="right" if numeric and shown else "left", overflow="fold")
    for row in shown:
        table.add_row(*(_text(value) for value in row))
    console.print(table)


def show_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, _text(value))
    console.print(table)


def moment(millis: int | None) -> str:
    """Epoch milliseconds as UTC text; empty for None."""
    if millis is None:
        return ""
    moment_utc = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
    return moment_utc.strftime("%Y-%m-%d %H:%M:%S.") + f"{millis % 1000:03d}Z"


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case str():
            return value.replace("[", "\\[")
        case bytes():
            return value.hex()
        case _:
            return str(value).replace("[", "\\[")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _encode(value: Any) -> Any:
    match value:
        case decimal.Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)
