"""The state of a job under supervision, and what happens to its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from anabranch.errors import AnabranchError
from anabranch.streaming.offsets import Offset


class State(StrEnum):
    """What a job is doing."""

    WAITING = "waiting"
    """Waiting for jobs that feed it to end."""
    RUNNING = "running"
    PAUSING = "pausing"
    """After a failure; it will be restarted."""
    HELD = "held"
    """Main of a table that it reads was replaced; it goes on when its own table has been corrected as well."""
    ENDED = "ended"
    STOPPED = "stopped"
    """Because it was stopped on request."""
    FENCED = "fenced"
    """Its branch is not main any more, and another job does its work."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Because a job that feeds it did not finish."""
    TAKEN = "taken"
    """Because another process took it over."""
    LOST = "lost"
    """The engine that ran it is gone; a new process is needed."""

    @property
    def is_over(self) -> bool:
        return self not in (State.WAITING, State.RUNNING, State.PAUSING, State.HELD)


class Activity(StrEnum):
    """What a running job is at."""

    STARTING = "starting"
    """It has been started, and no batch has begun."""
    IDLE = "idle"
    """It waits for rows, or for its trigger."""
    WORKING = "working"
    STUCK = "stuck"
    """It has been at one batch, or at its start, for longer than `Policy.stuck_after`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last finished batch of a query."""

    batch: int
    rows: int
    """Rows it read."""
    rows_per_second: float | None = None
    positions: tuple[Offset, ...] = ()
    """How far it came in tables of ours."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Current status of a job."""

    job: str
    sink: str
    state: State
    batch: int | None = None
    """The last finished batch."""
    rows: int | None = None
    """Rows read by that batch."""
    rows_per_second: float | None = None
    restarts: int = 0
    message: str | None = None
    """The failure that it has not recovered from yet, or a note for people."""
    hint: str | None = None
    begun: str | None = None
    """How it got the state that belongs to where it began; None if it keeps none, or began with nothing."""
    activity: Activity | None = None
    """While it runs."""
    last_error: str | None = None
    """The newest failure, also after it has recovered."""
    last_hint: str | None = None
    """What to do about it."""
    last_error_millis: int | None = None
    """When that was, epoch milliseconds."""
    batch_millis: int | None = None
    """When the last batch was found done, epoch milliseconds."""
    read: Mapping[str, int] | None = None
    """By table that it reads: the snapshot up to which it has come."""


EventKind = Literal["start", "complete", "fail", "abort"]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened to a run of a job; a run ends with ``complete``, ``fail`` or ``abort``."""

    kind: EventKind
    job: str
    sink: str
    run: str
    """Id of the run; every start of the job is another one."""
    time_millis: int
    error: AnabranchError | None = None
