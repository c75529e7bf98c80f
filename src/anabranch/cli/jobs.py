"""The verb run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli import state
from anabranch.cli.arguments import AcceptEmptyState, AsJson, Conf, DryRun, settings
from anabranch.cli.output import console, say, show_json, show_table

if TYPE_CHECKING:
    from anabranch.service.jobs import JobStatus

_FAILED, _CONFLICT = 1, 3
_STYLES = {
    "running": "green",
    "pausing": "yellow",
    "held": "yellow",
    "failed": "red",
    "fenced": "red",
    "skipped": "red",
}


def register(app: typer.Typer) -> None:
    """Add this verb to the command line."""
    app.command()(run)


def run(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Python files that declare jobs.")],
    job: Annotated[list[str] | None, typer.Option("--job", help="Only this job; may be repeated.")] = None,
    branch: Annotated[
        str | None, typer.Option(help="Branch of the sinks to write to; main if absent.")
    ] = None,
    from_tag: Annotated[
        str | None, typer.Option(help="Tag of the sink: begin at the source positions that it holds.")
    ] = None,
    create_branch: Annotated[
        bool, typer.Option("--create-branch", help="Create the branch from that tag if it is not there.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder of the checkpoint; below the warehouse if absent.")
    ] = None,
    accept_empty_state: AcceptEmptyState = None,
    start_anew: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            help="A job without checkpoint that reads its sources as they are declared, though the table has rows of it: "
            "these come a second time. Without this it goes on after its last commit.",
        ),
    ] = None,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Take what is there, in as many batches as it needs, and end."),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Take what is there in one batch, and end.")] = False,
    max_restarts: Annotated[
        int,
        typer.Option(
            help="Starts after failures, without a batch in between, before a job is given up.", min=0
        ),
    ] = 10,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop the other jobs when one is given up.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master; this machine if absent.")] = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Run the jobs of a file until they end, or Ctrl-C: then batches under way are finished first.

    The same file runs on a branch, and from exactly the source positions that a tag of its sink holds. With --json one
    object for every change of a job.
    """
    from anabranch.service import jobs as service

    spark = service.Spark(master, settings(conf), loud=state.debug)
    jobs = service.declared(files, job or (), warehouse=state.warehouse, spark=spark)
    if dry_run:
        _show_plan(service.planned(jobs), json=json)
        return
    how = service.Run(
        branch,
        from_tag,
        create_branch,
        checkpoint,
        accept_empty_state=accept_empty_state or (),
        start_anew=start_anew or (),
    )
    schedule = service.Schedule(policy=service.Policy(most=max_restarts, fail_fast=fail_fast))
    schedule = service.with_trigger(schedule, available_now=available_now, once=once)
    with ShownStatuses(json=json) as shown:
        statuses = service.run(
            state.warehouse, jobs, how, schedule, spark, on_status=shown.update, on_event=shown.trace
        )
    if not json:
        _tell_failures(statuses)
    states = {status.state.value for status in statuses}
    if states & {"failed", "skipped"}:
        raise typer.Exit(_FAILED)
    if "fenced" in states:
        raise typer.Exit(_CONFLICT)


class ShownStatuses:
    """Statuses as they change: a table on a terminal, elsewhere a line for each change."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._known: dict[str, JobStatus] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal and not json else None

    def __enter__(self) -> ShownStatuses:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, statuses: Sequence[JobStatus]) -> None:
        changed = [status for status in statuses if self._known.get(status.job) != status]
        if not changed:
            return
        if self._live is not None:
            self._live.update(_drawn(statuses), refresh=True)
        for status in changed if self._live is None else ():
            before = self._known.get(status.job)
            if self._json:
                show_json(status)
            else:
                say(_line(status, before))
        self._known = {status.job: status for status in statuses}

    def trace(self, event: object) -> None:
        """Show where a failure comes from, if that is wanted."""
        error = getattr(event, "error", None)
        if state.debug and error is not None:
            say(f"{getattr(event, 'job', '')}: {error!r}", err=True)


def _line(status: JobStatus, before: JobStatus | None) -> str:
    if before is not None and before.state is status.state and status.batch != before.batch:
        return f"{status.job}: batch {status.batch}, {status.rows} rows"
    restarts = (
        f" (start {status.restarts + 1})" if status.restarts and status.state.value == "running" else ""
    )
    message = f": {status.message}" if status.message else ""
    if status.state.value == "held" and status.hint:
        message += f"\n  hint: {status.hint}"
    return f"{status.job}: {status.state.value}{restarts}{message}"


def _drawn(statuses: Sequence[JobStatus]) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("job", "sink", "state", "batch", "rows", "rows/s", "restarts", ""):
        numeric = name in ("batch", "rows", "rows/s", "restarts")
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for status in statuses:
        speed = "" if status.rows_per_second is None else f"{status.rows_per_second:,.0f}"
        drawn.add_row(
            *(status.job, status.sink, Text(status.state.value, style=_STYLES.get(status.state.value, ""))),
            *("" if value is None else f"{value:,}" for value in (status.batch, status.rows)),
            *(speed, str(status.restarts or ""), Text(status.message or "")),
        )
    return drawn


def _tell_failures(statuses: Sequence[JobStatus]) -> None:
    from anabranch.cli.main import in_verbs

    for status in statuses:
        if status.state.value not in ("failed", "fenced"):
            continue
        hint = "" if status.hint is None else f"\n  hint: {status.hint}"
        say(in_verbs(f"Error: job '{status.job}': {status.message}{hint}"), err=True)


def _show_plan(found: Sequence[object], *, json: bool) -> None:
    if json:
        show_json(found)
        return
    columns = ("job", "sink", "sources", "after", "trigger", "place")
    rows = [[getattr(one, column) for column in columns] for one in found]
    show_table(columns, [[", ".join(v) if isinstance(v, tuple) else v for v in row] for row in rows])
