"""Verbs about jobs: running them, looking at what runs on a warehouse, stopping and restarting one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from anabranch.arrow.pipeline import available_cores
from anabranch.runtime import SYSTEM
from anabranch.verbs.answer import Answer, Grid, Lines, Shown, Watched, ago, late
from anabranch.verbs.caller import Caller
from anabranch.verbs.parameters import (
    AcceptEmptyState,
    Checkpoint,
    Checkpoints,
    Conf,
    DryRun,
    settings,
)
from anabranch.verbs.verb import Called, Group, argument, option, verb

if TYPE_CHECKING:
    from anabranch.jobs.preview import PlannedJob
    from anabranch.jobs.records import SeenJob

JOBS: Group = "Jobs and corrections"
_FAILED, _STUCK, _LATE, _NONE = 1, 6, 7, 8
_NOBODY_READS = 141
"""Exit code if nobody reads standard output any more; as shells say it of a program that SIGPIPE ended."""
_EXIT_CODES = {"lost": 5, "failed": 1, "skipped": 1, "taken": 4, "fenced": 3}
"""By the state in which a job ended; of several the first counts. 0 if all ended or were stopped."""
_SEEN = ("job", "sink", "process", "state", "batch", "last batch", "behind", "rows/s", "restarts", "")
_STYLES = {"running": "green", "idle": "green", "starting": "yellow", "pausing": "yellow", "held": "yellow"}
_BAD = ("failed", "lost", "gone", "silent", "fenced", "skipped", "stuck")
_STATE = (
    "job STRING, sink STRING, host STRING, pid BIGINT, state STRING, batch BIGINT, batch_millis BIGINT, "
    "rows_per_second DOUBLE, restarts BIGINT, late_seconds DOUBLE, message STRING, hint STRING, last_error STRING"
)


@verb(JOBS, "Lake.job", shows_itself=True)
def run(
    files: Annotated[list[str], argument("Python files that declare jobs.", "FILE...")],
    job: Annotated[list[str] | None, option("Only this job; may be repeated.", "--job")] = None,
    branch: Annotated[str | None, option("Branch of the sinks to write to; main if absent.")] = None,
    from_tag: Annotated[
        str | None, option("Tag of the sink: begin at the source positions that it holds.")
    ] = None,
    create_branch: Annotated[
        bool, option("Create the branch from that tag if it is not there.", "--create-branch")
    ] = False,
    checkpoint: Checkpoint = None,
    checkpoints: Checkpoints = None,
    accept_empty_state: AcceptEmptyState = None,
    start_anew: Annotated[
        list[str] | None,
        option(
            "A job without checkpoint that reads its sources as they are declared, though the table has rows of it: "
            "these come a second time. Without this it goes on after its last commit.",
            metavar="JOB",
        ),
    ] = None,
    renew: Annotated[
        list[str] | None,
        option(
            "A job whose checkpoint does not fit its code any more: it goes on after its last commit with a new one, its "
            "state made anew from its sources. May be repeated.",
            metavar="JOB",
        ),
    ] = None,
    available_now: Annotated[
        bool, option("Take what is there, in as many batches as it needs, and end.", "--available-now")
    ] = False,
    once: Annotated[bool, option("Take what is there in one batch, and end.", "--once")] = False,
    max_restarts: Annotated[
        int,
        option(
            "Starts after failures that may be the job's own, without a batch in between, before it is given up.",
            min=0,
        ),
    ] = 10,
    stop_limit: Annotated[
        float, option("Seconds that a stop waits for batches under way, then ends them.", min=0)
    ] = 60.0,
    stuck_after: Annotated[
        float, option("Seconds at one batch after which a job is said to be stuck.", min=1)
    ] = 900.0,
    fail_fast: Annotated[bool, option("Stop the other jobs when one is given up.", "--fail-fast")] = False,
    heartbeat: Annotated[
        float,
        option(
            "With --json, a job of which nothing was written for so long is written as it is; 0 for changes only.",
            metavar="SECONDS",
            min=0,
        ),
    ] = 10.0,
    metrics: Annotated[
        int | None,
        option(
            "Serve figures for Prometheus on this port of 127.0.0.1; 0 for any.",
            metavar="PORT",
            min=0,
            max=65_535,
        ),
    ] = None,
    otel: Annotated[
        bool,
        option(
            "Push the same figures to a collector of OpenTelemetry, which its own variables name (OTEL_EXPORTER_OTLP_ENDPOINT).",
            "--otel",
        ),
    ] = False,
    hook: Annotated[
        str | None,
        option(
            "Run this when a job fails, is given up, is stuck or has recovered; what happened is in ANABRANCH_EVENT.",
            metavar="COMMAND",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        option("End the jobs in another process that runs them, after its batch, and go on.", "--take-over"),
    ] = False,
    maintain: Annotated[
        bool,
        option(
            "Keep the tables of the jobs within bounds meanwhile: compact, expire, remove orphan files and dead checkpoints.",
            "--maintain",
        ),
    ] = False,
    maintain_every: Annotated[float, option("Seconds between two rounds of --maintain.", min=1)] = 900.0,
    master: Annotated[str | None, option("Spark master; this machine if absent.")] = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    *,
    caller: Called,
) -> Answer:
    """Run the jobs of a file until they end, or Ctrl-C: then batches under way are finished first.

    The same file runs on a branch, and from exactly the source positions that a tag of its sink holds. With --json one
    object for every change of a job.

    Exit codes: 0 all jobs ended or were stopped; 1 one was given up; 2 wrong declarations or options; 3 one is fenced, for
    another branch took the place of main; 4 another process runs or took one; 5 Spark's JVM is gone; 74 standard output cannot be
    written; 141 nobody reads it.
    """
    from anabranch.jobs import command
    from anabranch.jobs.maintenance import keeping_of
    from anabranch.jobs.records import lags_of

    spark = command.Spark(master, settings(conf), loud=caller.is_loud)
    jobs = command.declared(files, job or (), warehouse=caller.warehouse, spark=spark)
    how = command.Run(
        branch,
        from_tag,
        create_branch,
        checkpoint,
        checkpoints,
        accept_empty_state=accept_empty_state or (),
        start_anew=start_anew or (),
        renew=renew or (),
    )
    if dry_run:
        return _planned(command.planned(caller.warehouse, jobs, how, spark))
    policy = command.Policy(
        most=max_restarts, fail_fast=fail_fast, stuck_after=stuck_after, at_once=available_cores()
    )
    schedule = command.Schedule(policy=policy, patience_seconds=stop_limit)
    schedule = command.with_trigger(schedule, available_now=available_now, once=once)
    lags = lags_of(caller.warehouse)
    shown = caller.statuses(heartbeat_seconds=heartbeat or None, lag=lags.of)
    with lags.looking(), shown, _told_too(caller, metrics, hook, otel=otel) as others, ExitStack() as stack:
        if maintain:
            keeping = keeping_of(caller.warehouse, jobs, branch, caller.tell)
            stack.enter_context(keeping.kept(maintain_every))

        def on_status(statuses: Sequence[command.JobStatus]) -> None:
            for one in (lags.note, shown.update, *others):
                one(statuses)

        def on_stop(stop: command.Stop) -> None:
            shown.on_closed = stop.ask

        statuses = command.run(
            *(caller.warehouse, jobs, how, schedule, spark),
            on_status=on_status,
            on_event=shown.trace,
            on_stop=on_stop,
            take_over=take_over,
            tell=caller.tell,
        )
    states = {status.state.value for status in statuses}
    code = next((code for name, code in _EXIT_CODES.items() if name in states), 0)
    return Answer(None, code=code or (_NOBODY_READS if shown.is_closed else 0))


@contextmanager
def _told_too(
    caller: Caller, port: int | None, command: str | None, *, otel: bool
) -> Iterator[list[Callable[[Sequence[Any]], None]]]:
    """What is told of statuses beside the terminal: metrics, and a command of the user."""
    from anabranch.jobs.hooks import Hook
    from anabranch.jobs.metrics import exporting, metrics_of

    others: list[Callable[[Sequence[Any]], None]] = []
    with ExitStack() as stack:
        if command is not None:
            hook = Hook.of(command)
            stack.callback(hook.wait)
            others.append(hook.note)
        if port is not None or otel:
            metrics = metrics_of(caller.warehouse)
            others.append(metrics.note)
        if port is not None:
            address = stack.enter_context(metrics.served(port))
            caller.tell(f"metrics are at {address}")
        if otel:
            stack.enter_context(exporting(metrics))
        yield others


def _planned(found: Sequence[PlannedJob]) -> Answer:
    columns = ("job", "sink", "sources", "after", "trigger", "place")
    rows = [[getattr(one, column) for column in columns] for one in found]
    shown: list[Shown] = [
        Grid(columns, [[", ".join(v) if isinstance(v, tuple) else v for v in row] for row in rows])
    ]
    for one in found:
        shown += [f"{one.job}: {change}" for change in one.changes]
        if one.hint is not None:
            shown.append(f"{one.job}: its checkpoint does not fit\n  hint: {one.hint}")
    return Answer(found, *shown, code=0 if all(one.fits for one in found) else 1)


@verb(JOBS, "anabranch.jobs.records.jobs_of_warehouse", columns=_STATE, procedure="jobs")
def jobs(
    job: Annotated[list[str] | None, option("Only this job; may be repeated.", "--job")] = None,
    watch: Annotated[bool, option("Look again and again, until Ctrl-C.", "--watch", sql=None)] = False,
    interval: Annotated[float, option("Seconds between two looks.", min=0.1, sql=None)] = 5.0,
    late_after: Annotated[
        float | None, option("Seconds behind a source after which a job is late.", min=0, sql=None)
    ] = None,
    *,
    caller: Called,
) -> Answer:
    """List the jobs of a warehouse, wherever they run: who runs them, what they are doing, and how far they are behind.

    Exit codes, for monitoring: 0 all is well; 1 a job failed, or its process is gone; 6 one is stuck; 7 one is late, with
    --late-after; 8 there are none.
    """
    from anabranch.jobs.records import jobs_of_warehouse

    def look() -> list[SeenJob]:
        return [one for one in jobs_of_warehouse(caller.place) if not job or one.job in job]

    if not watch:
        found = look()
        return _seen(found, code=_code(found, late_after))
    return Answer(None, Watched(_looks(look, interval)))


def _looks(look: Callable[[], list[SeenJob]], interval: float) -> Iterator[Answer]:
    while True:
        yield _seen(look())
        SYSTEM.sleeper.sleep(interval)


def _code(found: Sequence[SeenJob], late_after: float | None) -> int:
    if not found:
        return _NONE
    if any(one.is_bad for one in found):
        return _FAILED
    if any(one.state == "stuck" for one in found):
        return _STUCK
    return _LATE if late_after is not None and any(one.late_seconds > late_after for one in found) else 0


def _seen(found: Sequence[SeenJob], code: int = 0) -> Answer:
    def style(row: Sequence[Any]) -> dict[int, str]:
        return {3: _STYLES.get(row[3], "red" if row[3] in _BAD else "")}

    grid = Grid(_SEEN, [_row(one) for one in found], style=style, right=(4, 7, 8))
    rows = [
        (
            *(one.job, one.sink, one.host, one.pid, one.state, one.batch, one.batch_millis),
            *(one.rows_per_second, one.restarts, one.late_seconds, one.message, one.hint, one.last_error),
        )
        for one in found
    ]
    return Answer(
        Lines([{**asdict(one), "late_seconds": one.late_seconds} for one in found]),
        grid,
        rows=rows,
        code=code,
    )


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


def _error(one: SeenJob) -> str:
    """Return the failure that a job has not recovered from, or else the newest one with its time."""
    if one.message:
        return one.message + (f" (hint: {one.hint})" if one.hint else "")
    if one.last_error is None or one.last_error_millis is None:
        return ""
    return f"recovered; {ago(one.last_error_millis)} ago: {one.last_error}"


_Job = Annotated[str, argument("A job; job@branch for its run on a branch.")]


@verb(JOBS, "anabranch.jobs.records.ask", columns=_STATE, procedure="stop_job", changes=True)
def stop(
    job: _Job,
    limit: Annotated[float, option("Seconds to wait until it has ended.", min=0)] = 120.0,
    *,
    caller: Called,
) -> Answer:
    """Stop one job wherever it runs, after the batch it is at. The others of its process go on."""
    return _ask(caller, job, "stop", limit)


@verb(JOBS, "anabranch.jobs.records.ask", columns=_STATE, procedure="restart_job", changes=True)
def restart(
    job: _Job,
    limit: Annotated[float, option("Seconds to wait until it has begun.", min=0)] = 120.0,
    *,
    caller: Called,
) -> Answer:
    """Start one job anew in the process that runs it, also one that was given up there. The code stays the one it has loaded."""
    return _ask(caller, job, "restart", limit)


def _ask(caller: Caller, job: str, what: Literal["stop", "restart"], limit: float) -> Answer:
    from anabranch.jobs.records import ask

    seen = _seen(found := [*ask(caller.place, job, what, patience_seconds=limit)])
    lines = (f"{one.job}: {one.state}, process {one.pid} on {one.host}" for one in found)
    return Answer(seen.value, lines, rows=seen.rows)
