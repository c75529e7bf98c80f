"""A command of the user that is run when something happens: a job fails, is stuck, or has recovered; a correction is published."""

from __future__ import annotations

import json
import logging
import os
import queue
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from anabranch.errors import OptionError
from anabranch.jobs.status import Activity, JobStatus, State
from anabranch.runtime import SYSTEM, Runtime

_LOG = logging.getLogger(__name__)
_SECONDS = 60.0
"""After which a command is ended; and how long the end of the program waits for all of those that are left."""
_MOST_WAITING = 100
"""Calls that wait for the one before; of a command that is too slow for what happens the others are left out."""

Event = Literal["failing", "failed", "stuck", "recovered", "published", "undone"]
"""``failing``: it will be tried again; ``failed``: a job was given up, fenced, or lost its JVM, or a correction is not published."""
_Call = tuple[Mapping[str, str], str]
"""Variables of the environment, and what comes on standard input."""
_GIVEN_UP = (State.FAILED, State.FENCED, State.LOST)


@dataclass
class Hook:
    """Runs a command beside the jobs, one call after the other. Its troubles are logged and harm no job."""

    words: Sequence[str]
    runtime: Runtime = SYSTEM
    _known: dict[str, JobStatus] = field(default_factory=dict)
    _calls: queue.Queue[_Call | None] = field(default_factory=lambda: queue.Queue(_MOST_WAITING))
    """None for the end."""
    _worker: threading.Thread | None = None

    @classmethod
    def of(cls, command: str) -> Hook:
        """Parse a command as a shell has it, but without one. Raises `OptionError`."""
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise OptionError(
                f"the hook {command!r} cannot be read: {error}", hint="close its quotes."
            ) from None
        if not words:
            raise OptionError("the hook is empty", hint="name a command, such as --hook ./alert.sh.")
        return cls(words)

    def note(self, statuses: Sequence[JobStatus]) -> None:
        """Take in what the jobs are doing, and run the command where something happened."""
        for status in statuses:
            before = self._known.get(status.job)
            self._known[status.job] = status
            event = event_of(before, status)
            if event is not None:
                error = event != "recovered"
                message = status.message if error and status.message else status.last_error
                hint = status.hint if error and status.message else status.last_hint
                self.run(event, status.job, message, hint, asdict(status))

    def run(
        self,
        event: Event,
        what: str,
        message: str | None,
        hint: str | None,
        values: Mapping[str, Any],
        *,
        kind: Literal["job", "table"] = "job",
    ) -> None:
        """Run the command beside the caller, after the calls before it.

        Args:
            what: to which job, or from which table on.
            message: what is to be said of it.
            hint: what to do next.
            values: all that is known, for standard input.
            kind: of what `what` names.
        """
        said = {
            "ANABRANCH_EVENT": event,
            f"ANABRANCH_{kind.upper()}": what,
            "ANABRANCH_MESSAGE": message or "",
            "ANABRANCH_HINT": hint or "",
        }
        text = json.dumps({"event": event, **values}, default=str)
        try:
            self._calls.put_nowait((said, text))
        except queue.Full:
            _LOG.warning("the hook %s is too slow, and is not told of '%s': %s", self.words[0], what, event)
            return
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="hook", daemon=True)
            self._worker.start()

    def wait(self) -> None:
        """Wait until all calls have ended, but no longer than one may take; the others are left out."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        clock = self.runtime.clock
        end = clock.monotonic() + _SECONDS
        with suppress(queue.Full):
            self._calls.put(None, timeout=_SECONDS)
            worker.join(max(0.0, end - clock.monotonic()))
        if worker.is_alive():
            left = self._calls.qsize()
            _LOG.warning(
                "the hook %s is not waited for any longer; %d calls are left out", self.words[0], left
            )

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._run(*call)

    def _run(self, said: Mapping[str, str], text: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self.words,
                input=text.encode(),
                env={**os.environ, **{key: value.replace("\0", "") for key, value in said.items()}},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            _LOG.warning("the hook %s did not run: %s", self.words[0], error)
            return
        if done.returncode:
            told = done.stderr.decode(errors="replace").strip()[-500:]
            _LOG.warning("the hook %s ended with %d: %s", self.words[0], done.returncode, told)


def event_of(before: JobStatus | None, now: JobStatus) -> Event | None:
    """Return what has happened to a job that somebody may want to know at once; None if nothing has."""
    was_state = None if before is None else before.state
    if now.state in _GIVEN_UP and was_state is not now.state:
        return "failed"
    is_new_failure = now.last_error_millis is not None and (
        before is None or before.last_error_millis != now.last_error_millis
    )
    if now.state is State.PAUSING and is_new_failure:
        return "failing"
    if before is None:
        return None
    was_stuck, is_stuck = before.activity is Activity.STUCK, now.activity is Activity.STUCK
    if is_stuck and not was_stuck:
        return "stuck"
    has_failed = before.last_error is not None and before.message == before.last_error
    is_well = now.state is State.RUNNING and now.message is None and not is_stuck
    return "recovered" if is_well and (has_failed or was_stuck) else None
