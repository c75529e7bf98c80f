"""What goes on while one looks: how far branches are behind main."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli.output import console, show_json, show_table

if TYPE_CHECKING:
    from anabranch.service.branches import BranchLag
    from anabranch.table import Table as LakeTable

_COLUMNS = ("branch", "source", "main is at", "branch is at", "behind", "")
_UNITS = {"table": "snapshots", "kafka": "offsets", "files": "log entries"}


def watch_lags(table: LakeTable, interval: float, times: int | None, *, json: bool) -> None:
    """Show how far branches are behind main, again and again; with `json` a line for each branch and look."""
    from anabranch.service import branches as service

    looks = service.repeatedly(lambda: service.lags(table), interval, times)
    try:
        if json:
            for lags in looks:
                for lag in lags:
                    show_json({**_plain(lag), "behind": lag.behind, "caught_up": lag.has_caught_up})
        elif console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                for lags in looks:
                    live.update(_drawn(lags), refresh=True)
        else:
            for lags in looks:
                show_table(_COLUMNS, _rows(lags))
    except KeyboardInterrupt:
        return


def _plain(lag: BranchLag) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(lag)


def _rows(lags: Sequence[BranchLag]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for lag in lags:
        for source in lag.sources:
            name = f"{source.name} ({source.parts} partitions)" if source.parts > 1 else source.name
            unit = "not known" if source.behind is None else _UNITS.get(source.kind, "")
            rows.append(
                (lag.branch, f"{source.kind} {name}", source.main, source.branch, source.behind, unit)
            )
        if not lag.sources:
            rows.append((lag.branch, "main has read nothing that is known", None, None, None, ""))
        rows += [(lag.branch, problem, None, None, None, "") for problem in lag.problems]
    return rows


def _drawn(lags: Sequence[BranchLag]) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(_COLUMNS):
        drawn.add_column(column, justify="right" if 2 <= number <= 4 else "left")
    for *words, behind, unit in _rows(lags):
        style = "" if behind is None else "green" if behind == 0 else "yellow"
        cells = [f"{word:,}" if isinstance(word, int) else str(word or "") for word in (*words, behind)]
        if behind == 0:
            cells[-1] = "0"
        drawn.add_row(
            *(Text(cell, style=style if place == 4 else "") for place, cell in enumerate(cells)), str(unit)
        )
    return drawn
