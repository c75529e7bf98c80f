"""What a supervisor of jobs is given: the jobs, how patient it is, and how the end is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch.jobs.status import Activity, JobStatus, Progress, State

Ask = Literal["stop", "restart", "yield"]
"""``yield``: end the job cleanly, because another process takes it over."""
_MOST_DOUBLINGS = 60


class Correcting(Protocol):
    """Tells a job whose tables are corrected when it may go on."""

    def is_corrected(self) -> bool:
        """Whether it may be started: since it was asked first, or since the job was started, a main has changed."""
        ...

    def hands_over(self) -> bool:
        """Whether the job's own table was corrected by a run of the same job that has ended, so that this one goes on."""
        ...


class RunningTask(Protocol):
    """A job that was started."""

    @property
    def run(self) -> str:
        """Id of this run."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Notes for people on how it was started."""
        ...

    @property
    def begun(self) -> str | None:
        """How it got the state for the point where it began, for people; None if there was none to get."""
        ...

    def is_active(self) -> bool:
        """Whether it goes on."""
        ...

    def activity(self) -> Activity:
        """What it is at; never `Activity.STUCK`."""
        ...

    def failure(self) -> BaseException | None:
        """Return the error that ended it; None if it goes on, has ended by itself or was stopped."""
        ...

    def progress(self) -> Progress | None:
        """The last batch that is done, if there is one."""
        ...

    def stop(self, *, is_urgent: Callable[[], bool]) -> bool:
        """End it after the batch it is at, or at once as soon as `is_urgent` says so; return whether it came to its own end.

        May raise: it ends nevertheless.
        """
        ...


class Others(Protocol):
    """Other processes, which ask for the jobs of this one."""

    def asks(self) -> Mapping[str, tuple[Ask, str]]:
        """Return, by job, what was asked since the last call, and by whom."""
        ...

    def is_wanted(self, job: str) -> bool:
        """Whether who asked for a job lives, as far as can be told: nobody else would run what is left to a dead one."""
        ...

    def are_awaited(self) -> bool:
        """Whether a job was left to a process that has not taken it yet, and may not come to that."""
        ...

    def take_back(self, job: str) -> bool:
        """Take a job that is over for this process again; False if another one has it."""
        ...


class Nobody:
    """No other process knows of the jobs."""

    def asks(self) -> Mapping[str, tuple[Ask, str]]:
        return {}

    def is_wanted(self, job: str) -> bool:
        return True

    def are_awaited(self) -> bool:
        return False

    def take_back(self, job: str) -> bool:
        return True


@dataclass(frozen=True)
class Task:
    """A job to supervise."""

    job: str
    sink: str
    start: Callable[[], RunningTask]
    after: frozenset[str] = frozenset()
    """Jobs that must have ended before it starts."""
    restarts: bool = True
    """Whether it may be started again after a failure."""
    ends: bool = False
    """Whether it is to come to an end: somebody waits for it, so it is given up after failures that may pass as well."""
    correcting: Correcting | None = None
    """None for a job that is to come to an end: it does not wait for a correction."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When jobs are restarted."""

    most: int = 10
    """Starts after failures that may be the job's own, without a batch in between, before it is given up."""
    first_pause: float = 1.0
    """Seconds."""
    longest_pause: float = 60.0
    longest_passing_pause: float = 300.0
    """Of a job that waits for the store, the network or the machine: it is never given up."""
    at_once: int = 2
    """Jobs that are starting at a time."""
    longest_start: float = 20.0
    """Seconds after which a job that is starting does not keep others from it."""
    stuck_after: float = 900.0
    """Seconds at one batch, or at the start, after which a job is said to be stuck."""
    settled_after: float = 10.0
    """Seconds of waiting for rows after which a start has not met again what the one before failed of."""
    fail_fast: bool = False
    """Whether the others are stopped when one is given up."""
    look_pause: float = 2.0
    """Seconds between two looks whether what a job is held for has been done."""
    longest_hold: float = 600.0
    """Seconds after which a job that is held is started in any case, in case the look missed something."""

    def pause(self, failures: int, jitter: float, *, passing: bool = False) -> float:
        """Seconds before the next start.

        Args:
            failures: in a row, from 1.
            jitter: in [0, 1), so that jobs that fail together do not start together.
            passing: whether it was one that may pass.
        """
        longest = self.longest_passing_pause if passing else self.longest_pause
        full = min(longest, self.first_pause * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return full * (0.5 + jitter / 2)


class Stop:
    """Requests the end: once to let batches finish, twice to end at once."""

    def __init__(self) -> None:
        self._times = 0

    def ask(self) -> None:
        self._times += 1

    def is_asked(self) -> bool:
        """Whether the end was requested."""
        return self._times > 0

    def is_urgent(self) -> bool:
        """Whether it was requested again."""
        return self._times > 1


@dataclass
class Supervised:
    """A task and its current state."""

    task: Task
    status: JobStatus
    running: RunningTask | None = None
    failures: int = 0
    """In a row."""
    own_failures: int = 0
    """Those of them that may be the job's own."""
    due: float = 0.0
    held_since: float = 0.0
    started: int = 0
    batch_at_start: int | None = None
    start_began: float = 0.0
    at_since: float = 0.0
    """Since when it has been at what it is at."""
    at: tuple[Activity, int | None] | None = None
    """What it was found at last, and its last finished batch then."""
    is_doubted: bool = False
    """Whether its last start failed in a way that is final if the next one meets it again."""
    has_failed: bool = False
    """Whether its message is a failure that it has not recovered from."""

    has_come_up: bool = False
    """Whether since its start it has done a batch, or waited for rows."""

    def is_starting(self, now: float, longest: float) -> bool:
        """Whether it is at its start, so that others wait for theirs."""
        is_at_start = self.status.state is State.RUNNING and not self.has_come_up
        return is_at_start and now < self.start_began + longest
