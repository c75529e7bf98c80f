"""The verb run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AcceptEmptyState, AsJson, Conf, DryRun, settings
from anabranch.cli.job_statuses import ShownStatuses
from anabranch.cli.output import NOBODY_READS, say, show_json, show_table

if TYPE_CHECKING:
    from anabranch.jobs.preview import Planned

_EXIT_CODES = {"lost": 5, "failed": 1, "skipped": 1, "taken": 4, "fenced": 3}
"""By the state in which a job ended; of several the first counts. 0 if all ended or were stopped."""


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
    renew: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            help="A job whose checkpoint does not fit its code any more: it goes on after its last commit with a new one, its "
            "state made anew from its sources. May be repeated.",
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
            help="Starts after failures that may be the job's own, without a batch in between, before it is given up.",
            min=0,
        ),
    ] = 10,
    stop_limit: Annotated[
        float, typer.Option(help="Seconds that a stop waits for batches under way, then ends them.", min=0)
    ] = 60.0,
    stuck_after: Annotated[
        float, typer.Option(help="Seconds at one batch after which a job is said to be stuck.", min=1)
    ] = 900.0,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop the other jobs when one is given up.")
    ] = False,
    heartbeat: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="With --json, a job of which nothing was written for so long is written as it is; 0 for changes only.",
            min=0,
        ),
    ] = 10.0,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve figures for Prometheus on this port of 127.0.0.1; 0 for any.",
            min=0,
            max=65_535,
        ),
    ] = None,
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Push the same figures to a collector of OpenTelemetry, which its own variables name (OTEL_EXPORTER_OTLP_ENDPOINT).",
        ),
    ] = False,
    hook: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this when a job fails, is given up, is stuck or has recovered; what happened is in ANABRANCH_EVENT.",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="End the jobs in another process that runs them, after its batch, and go on."
        ),
    ] = False,
    maintain: Annotated[
        bool,
        typer.Option(
            "--maintain",
            help="Keep the tables of the jobs within bounds meanwhile: compact, expire, remove orphan files and dead checkpoints.",
        ),
    ] = False,
    maintain_every: Annotated[
        float, typer.Option(help="Seconds between two rounds of --maintain.", min=1)
    ] = 900.0,
    master: Annotated[str | None, typer.Option(help="Spark master; this machine if absent.")] = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Run the jobs of a file until they end, or Ctrl-C: then batches under way are finished first.

    The same file runs on a branch, and from exactly the source positions that a tag of its sink holds. With --json one
    object for every change of a job.

    Exit codes: 0 all jobs ended or were stopped; 1 one was given up; 2 wrong declarations or options; 3 one is fenced, for
    another branch took the place of main; 4 another process runs or took one; 5 Spark's JVM is gone; 141 nobody reads standard output.
    """
    from anabranch.jobs import command as service
    from anabranch.jobs.keeping import keeping_of
    from anabranch.jobs.lag import lags_of

    spark = service.Spark(master, settings(conf), loud=state.debug)
    jobs = service.declared(files, job or (), warehouse=state.warehouse, spark=spark)
    how = service.Run(
        branch,
        from_tag,
        create_branch,
        checkpoint,
        accept_empty_state=accept_empty_state or (),
        start_anew=start_anew or (),
        renew=renew or (),
    )
    if dry_run:
        plan = service.planned(state.warehouse, jobs, how, spark)
        _show_plan(plan, json=json)
        if not all(one.fits for one in plan):
            raise typer.Exit(1)
        return
    policy = service.Policy(
        most=max_restarts,
        fail_fast=fail_fast,
        stuck_after=stuck_after,
        at_once=max(1, (os.cpu_count() or 2) // 2),
    )
    schedule = service.Schedule(policy=policy, patience_seconds=stop_limit)
    schedule = service.with_trigger(schedule, available_now=available_now, once=once)
    lags = lags_of(state.warehouse)
    shown = ShownStatuses(json=json, heartbeat_seconds=heartbeat or None, lag=lags.of)
    with ExitStack() as stack:
        stack.enter_context(lags.looking())
        stack.enter_context(shown)
        others = stack.enter_context(_told_too(metrics, hook, otel=otel))
        if maintain:
            keeping = keeping_of(state.warehouse, jobs, branch, lambda line: say(line, err=True))
            stack.enter_context(keeping.kept(maintain_every))

        def on_status(statuses: Sequence[service.JobStatus]) -> None:
            lags.note(statuses)
            shown.update(statuses)
            for other in others:
                other(statuses)

        def on_stop(stop: service.Stop) -> None:
            shown.on_closed = stop.ask

        statuses = service.run(
            *(state.warehouse, jobs, how, schedule, spark),
            on_status=on_status,
            on_event=shown.trace,
            on_stop=on_stop,
            take_over=take_over,
            tell=lambda line: say(line, err=True),
        )
    states = {status.state.value for status in statuses}
    code = next((code for name, code in _EXIT_CODES.items() if name in states), 0)
    if code or shown.is_closed:
        raise typer.Exit(code or NOBODY_READS)


@contextmanager
def _told_too(
    port: int | None, command: str | None, *, otel: bool
) -> Iterator[list[Callable[[Sequence[Any]], None]]]:
    """What is told of statuses beside the terminal: metrics, and a command of the user."""
    from anabranch.jobs.hooks import Hook
    from anabranch.jobs.metrics import metrics_of
    from anabranch.jobs.telemetry import exporting

    others: list[Callable[[Sequence[Any]], None]] = []
    with ExitStack() as stack:
        if command is not None:
            hook = Hook.of(command)
            stack.callback(hook.wait)
            others.append(hook.note)
        if port is not None or otel:
            metrics = metrics_of(state.warehouse)
            others.append(metrics.note)
        if port is not None:
            address = stack.enter_context(metrics.served(port))
            say(f"metrics are at {address}", err=True)
        if otel:
            stack.enter_context(exporting(metrics))
        yield others


def _show_plan(found: Sequence[Planned], *, json: bool) -> None:
    if json:
        show_json(found)
        return
    columns = ("job", "sink", "sources", "after", "trigger", "place")
    rows = [[getattr(one, column) for column in columns] for one in found]
    show_table(columns, [[", ".join(v) if isinstance(v, tuple) else v for v in row] for row in rows])
    for one in found:
        for change in one.changes:
            say(f"{one.job}: {change}")
        if one.hint is not None:
            say(f"{one.job}: its checkpoint does not fit\n  hint: {one.hint}")
