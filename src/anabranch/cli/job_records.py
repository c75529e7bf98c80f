"""The verbs jobs, stop and restart: what runs on a warehouse, from any terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli import state
from anabranch.cli.arguments import AsJson
from anabranch.cli.output import ago, console, late, say, show_json, show_table
from anabranch.runtime import SYSTEM

if TYPE_CHECKING:
    from anabranch.jobs.records import SeenJob

_FAILED, _STUCK, _LATE, _NONE = 1, 6, 7, 8
_COLUMNS = ("job", "sink", "process", "state", "batch", "last batch", "behind", "rows/s", "restarts", "")
_STYLES = {"running": "green", "idle": "green", "starting": "yellow", "pausing": "yellow", "held": "yellow"}


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.command()(jobs)
    app.command()(stop)
    app.command()(restart)


def jobs(
    job: Annotated[list[str] | None, typer.Option("--job", help="Only this job; may be repeated.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    late_after: Annotated[
        float | None, typer.Option(help="Seconds behind a source after which a job is late.", min=0)
    ] = None,
    json: AsJson = False,
) -> None:
    """List the jobs of a warehouse, wherever they run: who runs them, what they are doing, and how far they are behind.

    Exit codes, for monitoring: 0 all is well; 1 a job failed, or its process is gone; 6 one is stuck; 7 one is late, with
    --late-after; 8 there are none.
    """
    from anabranch.jobs import records as service

    if not watch:
        found = _chosen(service.jobs_of_warehouse(state.warehouse), job)
        _show(found, json=json)
        code = _code(found, late_after)
        if code:
            raise typer.Exit(code)
        return
    try:
        _watch(interval, job, json=json)
    except KeyboardInterrupt:
        return


def _chosen(found: Sequence[SeenJob], names: Sequence[str] | None) -> list[SeenJob]:
    return [one for one in found if not names or one.job in names]


def _watch(interval: float, names: Sequence[str] | None, *, json: bool) -> None:
    from anabranch.jobs import records as service

    live = Live(console=console, auto_refresh=False) if console.is_terminal and not json else None
    if live is None:
        while True:
            _show(_chosen(service.jobs_of_warehouse(state.warehouse), names), json=json)
            SYSTEM.sleeper.sleep(interval)
    with live:
        while True:
            live.update(_drawn(_chosen(service.jobs_of_warehouse(state.warehouse), names)), refresh=True)
            SYSTEM.sleeper.sleep(interval)


def stop(
    job: Annotated[str, typer.Argument(help="A job; job@branch for its run on a branch.")],
    limit: Annotated[float, typer.Option(help="Seconds to wait until it has ended.", min=0)] = 120.0,
    json: AsJson = False,
) -> None:
    """Stop one job wherever it runs, after the batch it is at. The others of its process go on."""
    _ask(job, "stop", limit, json=json)


def restart(
    job: Annotated[str, typer.Argument(help="A job; job@branch for its run on a branch.")],
    limit: Annotated[float, typer.Option(help="Seconds to wait until it has begun.", min=0)] = 120.0,
    json: AsJson = False,
) -> None:
    """Start one job anew in the process that runs it, also one that was given up there. The code stays the one it has loaded."""
    _ask(job, "restart", limit, json=json)


def _ask(job: str, what: Any, limit: float, *, json: bool) -> None:
    from anabranch.jobs import records as service

    found = service.ask(state.warehouse, job, what, patience_seconds=limit)
    for one in found:
        if json:
            show_json(_plain(one))
        else:
            say(f"{one.job}: {one.state}, process {one.pid} on {one.host}")


def _code(found: Sequence[SeenJob], late_after: float | None) -> int:
    if not found:
        return _NONE
    if any(one.is_bad for one in found):
        return _FAILED
    if any(one.state == "stuck" for one in found):
        return _STUCK
    return _LATE if late_after is not None and any(one.late_seconds > late_after for one in found) else 0


def _plain(one: SeenJob) -> dict[str, object]:
    return {**asdict(one), "late_seconds": one.late_seconds}


def _show(found: Sequence[SeenJob], *, json: bool) -> None:
    if json:
        for one in found:
            show_json(_plain(one))
    elif console.is_terminal:
        console.print(_drawn(found))
    else:
        show_table(_COLUMNS, [_row(one) for one in found])


def _row(one: SeenJob) -> list[str]:
    return [
        *(one.job, one.sink, f"{one.host}:{one.pid}", one.state),
        "" if one.batch is None else str(one.batch),
        "" if one.batch_millis is None else f"{ago(one.batch_millis)} ago",
        late(one.behind),
        "" if one.rows_per_second is None else f"{one.rows_per_second:,.0f}",
        str(one.restarts or ""),
        _error(one),
    ]


def _drawn(found: Sequence[SeenJob]) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for name in _COLUMNS:
        numeric = name in ("batch", "rows/s", "restarts")
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for one in found:
        cells = [Text(cell) for cell in _row(one)]
        cells[3].stylize(_STYLES.get(one.state, "red" if one.is_bad or one.state == "stuck" else ""))
        drawn.add_row(*cells)
    return drawn


def _error(one: SeenJob) -> str:
    """Return the failure that a job has not recovered from, or else the newest one with its time."""
    if one.message:
        return one.message + (f" (hint: {one.hint})" if one.hint else "")
    if one.last_error is None or one.last_error_millis is None:
        return ""
    return f"recovered; {ago(one.last_error_millis)} ago: {one.last_error}"
