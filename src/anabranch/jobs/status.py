"""The state of a job under supervision, what happens to its runs, and which process they are of."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from anabranch.errors import AnabranchError
from anabranch.format.text.record import JsonRecord, Stored
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


MOMENT: Final = Stored(minimum=0, maximum=253_402_300_799_999)
"""How epoch milliseconds are stored: up to the end of the year 9999, or they could not be shown."""


@dataclass(frozen=True, slots=True)
class JobStatus(JsonRecord):
    """Current status of a job."""

    SNAKE: ClassVar = True

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
    last_error_millis: Annotated[int | None, MOMENT] = None
    """When that was, epoch milliseconds."""
    batch_millis: Annotated[int | None, MOMENT] = None
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


@dataclass(frozen=True, slots=True)
class Process(JsonRecord):
    """A process, as others can find out whether it is alive."""

    host: str
    pid: int
    born: str | None
    """Which of the processes that have had this number; None where that cannot be told."""
    space: str | None
    """Where the number counts: the machine since its last start, and the container. None if unknown."""

    @classmethod
    def own(cls) -> Self:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), _born(os.getpid()), _space())

    def is_dead(self) -> bool | None:
        """Whether it is gone; None if that cannot be told from here."""
        if self.space is None or self.space != _space():
            return None
        return self.born is None or _born(self.pid) != self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "an unknown process"


UNKNOWN: Final = Process("?", 0, None, None)
"""The process of a record that cannot be read."""


def _born(pid: int) -> str | None:
    """Return when a process was started, as the kernel counts; None if it is gone, or the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return None if words[0] == "Z" else words[19]


def _space() -> str | None:
    """Return the machine's last start and the container: where the number of a process means the same one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None
