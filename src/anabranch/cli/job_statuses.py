"""Shows what jobs are doing while `run` supervises them: a table on a terminal, elsewhere a line or an object a change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.cli import state, streams
from anabranch.cli.output import console, say, show_json
from anabranch.runtime import SYSTEM, Runtime
from anabranch.verbs.answer import ago, late

if TYPE_CHECKING:
    from anabranch.jobs.command import JobStatus

_STYLES = {
    "running": "green",
    "pausing": "yellow",
    "held": "yellow",
    "failed": "red",
    "fenced": "red",
    "skipped": "red",
    "lost": "red",
    "stuck": "red",
}
_GIVEN_UP = ("failed", "fenced", "lost")
_REDRAW_SECONDS = 1.0
"""How old the times in a table on a terminal may get."""


class ShownStatuses:
    """Statuses as they change. What is given up is told at once on standard error."""

    def __init__(
        self,
        *,
        json: bool,
        tells_failures: bool = True,
        heartbeat_seconds: float | None = None,
        lag: Callable[[str], Mapping[str, Any]] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Prepare.

        Args:
            json: an object for every change.
            tells_failures: whether jobs that are given up are told on standard error; False if the caller does.
            heartbeat_seconds: in JSON, a job that nothing was written of for so long is written as it is; None for changes only.
            lag: returns by table how far a job is behind; None where nobody looks.
        """
        self.on_closed: Callable[[], None] = lambda: None
        """Called when nobody reads standard output any more, or it cannot be written."""
        self.is_closed = False
        self._json = json
        self._tells_failures = tells_failures
        self._heartbeat = heartbeat_seconds
        self._lag = lag
        self._runtime = runtime
        self._known: dict[str, JobStatus] = {}
        self._written: dict[str, float] = {}
        """By job: when an object of it was written last."""
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal and not json else None

    def __enter__(self) -> ShownStatuses:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, statuses: Sequence[JobStatus]) -> None:
        """Show all jobs as they are now."""
        before, self._known = self._known, {status.job: status for status in statuses}
        changed = [status for status in statuses if _key(before.get(status.job)) != _key(status)]
        quiet = [status for status in statuses if status not in changed and self._is_due(status)]
        if not self.is_closed and (changed or quiet or self._live is not None):
            try:
                self._show(statuses, changed, before)
                for status in quiet:
                    self._show_object("heartbeat", status)
                sys.stdout.flush()
            except OSError as error:
                if not isinstance(error, BrokenPipeError) and error is not streams.lost():
                    raise  # not of the output
                self._close(error)
        for status in changed if self._tells_failures else ():
            was = before.get(status.job)
            if status.state.value in _GIVEN_UP and (was is None or was.state is not status.state):
                _tell(status, json=self._json)

    def _is_due(self, status: JobStatus) -> bool:
        """Whether a program that reads the objects is to hear that a job is still watched."""
        if not self._json or self._heartbeat is None or status.state.is_over:
            return False
        written = self._written.get(status.job)
        return written is not None and self._runtime.clock.monotonic() >= written + self._heartbeat

    def _show_object(self, event: str, status: JobStatus) -> None:
        values: dict[str, Any] = {
            "time_millis": self._runtime.clock.now_millis(),
            "event": event,
            **asdict(status),
        }
        if self._lag is not None:
            values["behind"] = {table: asdict(one) for table, one in self._lag(status.job).items()}
        self._written[status.job] = self._runtime.clock.monotonic()
        show_json(values)

    def _show(
        self, statuses: Sequence[JobStatus], changed: Sequence[JobStatus], before: dict[str, JobStatus]
    ) -> None:
        if self._live is not None:
            now = self._runtime.clock.monotonic()
            is_old = now >= self._drawn_at + _REDRAW_SECONDS
            if is_old or [before.get(status.job) for status in statuses] != list(statuses):
                self._drawn_at = now
                self._live.update(_drawn(statuses, self._lag), refresh=True)
            return
        for status in changed:
            if self._json:
                self._show_object("change", status)
            else:
                say(line_of(status, before.get(status.job)))

    def _close(self, error: OSError) -> None:
        self.is_closed = True
        streams.lead_nowhere(sys.stdout.fileno())
        is_unread = isinstance(error, BrokenPipeError)
        what = "is closed, nobody reads it" if is_unread else f"cannot be written ({error.strerror})"
        say(f"standard output {what}: the jobs are stopped", err=True)
        self.on_closed()

    def trace(self, event: object) -> None:
        """Show where a failure comes from, if that is wanted."""
        error = getattr(event, "error", None)
        if state.debug and error is not None:
            say(f"{getattr(event, 'job', '')}: {error!r}", err=True)


def line_of(status: JobStatus, before: JobStatus | None) -> str:
    """Return what has changed in a job, as one line; an error's hint on a second one."""
    what = doing(status)
    if before is not None and doing(before) == what and status.batch != before.batch:
        return f"{status.job}: batch {status.batch}, {status.rows} rows"
    restarts = f" (start {status.restarts + 1})" if status.restarts and what == "running" else ""
    message = f": {status.message}" if status.message else ""
    hint = f"\n  hint: {status.hint}" if status.message and status.hint else ""
    return f"{status.job}: {what}{restarts}{message}{hint}"


def doing(status: JobStatus) -> str:
    """Return the state of a job in a word: ``stuck`` where it runs, but does not get on."""
    is_stuck = status.activity is not None and status.activity.value == "stuck"
    return "stuck" if is_stuck else status.state.value


def _key(status: JobStatus | None) -> object:
    """What a line is written for: whether a job waits for rows or works on them changes with every batch."""
    if status is None:
        return None
    quiet = replace(status, activity=None, batch_millis=None, rows_per_second=None, last_error_millis=None)
    return quiet, doing(status)


def _tell(status: JobStatus, *, json: bool) -> None:
    from anabranch.cli.main import in_verbs

    if json:
        told = {"error": "JobFailed", "job": status.job, "message": status.message, "hint": status.hint}
        show_json(told, err=True)
        return
    hint = "" if status.hint is None else f"\n  hint: {status.hint}"
    say(in_verbs(f"Error: job '{status.job}': {status.message}{hint}"), err=True)


def _drawn(statuses: Sequence[JobStatus], lag: Callable[[str], Mapping[str, Any]] | None) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    about_lag = () if lag is None else ("behind",)
    for name in ("job", "sink", "state", "batch", "last batch", "rows", "rows/s", *about_lag, "restarts", ""):
        numeric = name in ("batch", "rows", "rows/s", "restarts")
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for status in statuses:
        speed = "" if status.rows_per_second is None else f"{status.rows_per_second:,.0f}"
        what = doing(status)
        at = "" if status.activity is None or what == "stuck" else f" ({status.activity.value})"
        message = status.message or ""
        if status.message and status.hint:
            message += f"\nhint: {status.hint}"
        drawn.add_row(
            *(status.job, status.sink, Text(what + at, style=_STYLES.get(what, ""))),
            "" if status.batch is None else f"{status.batch:,}",
            "" if status.batch_millis is None else f"{ago(status.batch_millis)} ago",
            *("" if status.rows is None else f"{status.rows:,}", speed),
            *(() if lag is None else (late(lag(status.job)),)),
            *(str(status.restarts or ""), Text(message)),
        )
    return drawn
