"""How far running jobs are behind, kept up by a thread: what shows or reports it never waits for the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from anabranch.errors import AnabranchError
from anabranch.jobs.records import Behind, behind
from anabranch.jobs.status import JobStatus
from anabranch.lake import connect
from anabranch.runtime import SYSTEM, Runtime

_SECONDS = 5.0


@dataclass
class JobLags:
    """How far jobs are behind the tables that they read, a few seconds old. Thread-safe."""

    ask: Callable[[JobStatus], Mapping[str, Behind]]
    _statuses: tuple[JobStatus, ...] = ()
    _found: dict[str, Mapping[str, Behind]] = field(default_factory=dict)

    def note(self, statuses: Sequence[JobStatus]) -> None:
        """Take in what the jobs are doing."""
        self._statuses = tuple(statuses)

    def of(self, job: str) -> Mapping[str, Behind]:
        """Return how far a job was behind at the last look, by table; empty if that is not known."""
        return self._found.get(job, {})

    def look(self) -> None:
        """Ask the tables. A job whose tables do not answer keeps what was found last."""
        for status in self._statuses:
            try:
                self._found[status.job] = {} if status.state.is_over else self.ask(status)
            except AnabranchError:
                continue

    @contextmanager
    def looking(self, seconds: float = _SECONDS) -> Iterator[JobLags]:
        """Look again and again from a thread while the block runs."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(seconds):
                self.look()

        # A store that hangs must not keep the program from its end.
        threading.Thread(target=work, name="lag of jobs", daemon=True).start()
        try:
            yield self
        finally:
            ended.set()


def lags_of(warehouse: str, runtime: Runtime = SYSTEM) -> JobLags:
    """Return what tells how far jobs are behind the tables of a warehouse."""
    lake = connect(warehouse)
    return JobLags(lambda status: behind(status.read or {}, lake, runtime.clock.now_millis()))
