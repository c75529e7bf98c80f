"""Keeping jobs running: in the order in which they feed each other, started again when they fail, stopped cleanly.

A job that fails starts again after a pause that grows with every failure in a row; one that got a batch done since its
last start begins to count anew. Who is fenced (another branch took the place of main), who has ended, and who failed for
a reason that the next start would meet as well, is left alone.

A job that reads a table whose main was replaced is held until its own table is corrected as well, by a cascade, or until
the replacement is taken back; then it goes on. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Protocol

from anabranch.errors import AnabranchError
from anabranch.jobs.failure import as_ours, verdict
from anabranch.runtime import SYSTEM, Runtime

_MOST_DOUBLINGS = 60


class State(StrEnum):
    """What a job is doing."""

    WAITING = "waiting"
    """For jobs that feed it, to end."""
    RUNNING = "running"
    PAUSING = "pausing"
    """After a failure; it will be started again."""
    HELD = "held"
    """Main of a table that it reads was replaced; it goes on when its own table has been corrected as well."""
    ENDED = "ended"
    STOPPED = "stopped"
    """Because that was asked for."""
    FENCED = "fenced"
    """What it wrote to is not main any more, and another job does its work."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Because a job that feeds it did not get to its end."""

    @property
    def is_over(self) -> bool:
        return self not in (State.WAITING, State.RUNNING, State.PAUSING, State.HELD)


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that a query has done."""

    batch: int
    rows: int
    """It took in."""
    rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, now."""

    job: str
    sink: str
    state: State
    batch: int | None = None
    """The last one that it has done."""
    rows: int | None = None
    """Taken in by that batch."""
    rows_per_second: float | None = None
    restarts: int = 0
    message: str | None = None
    """The last failure, or what a person should know."""
    hint: str | None = None
    begun: str | None = None
    """How it got the state that belongs to where it began; None if it keeps none, or began with nothing."""


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


class Correcting(Protocol):
    """Tells a job whose tables are corrected when it may go on."""

    def is_corrected(self) -> bool:
        """Whether it may be started: since it was asked first, or since the job was started, a main has changed."""
        ...

    def hands_over(self) -> bool:
        """Whether the job's own table was corrected by a run of the same job that has ended, so that this one goes on."""
        ...


class Running(Protocol):
    """A job that was started."""

    @property
    def run(self) -> str:
        """Id of this run."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """What a person should know of how it was started."""
        ...

    @property
    def begun(self) -> str | None:
        """How it got the state that belongs to where it began, for people; None if there was none to get."""
        ...

    def is_active(self) -> bool:
        """Whether it goes on."""
        ...

    def failure(self) -> BaseException | None:
        """What ended it; None if it goes on, has ended by itself or was stopped."""
        ...

    def progress(self) -> Progress | None:
        """The last batch that is done, if there is one."""
        ...

    def stop(self, *, finish: bool) -> None:
        """End it, after the batch it is at if `finish`. Returns when it has ended. May raise: it ends nevertheless."""
        ...


@dataclass(frozen=True)
class Task:
    """A job to supervise."""

    job: str
    sink: str
    start: Callable[[], Running]
    after: frozenset[str] = frozenset()
    """Jobs that must have ended before it starts."""
    restarts: bool = True
    """Whether it may be started again after a failure."""
    correcting: Correcting | None = None
    """None for a job that is to come to an end: it does not wait for a correction."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When jobs are started again."""

    most: int = 10
    """Starts after a failure, without a batch in between, before a job is given up."""
    first_pause: float = 1.0
    """Seconds."""
    longest_pause: float = 60.0
    fail_fast: bool = False
    """Whether the others are stopped when one is given up."""
    look_pause: float = 2.0
    """Seconds between two looks whether what a job is held for has been done."""
    longest_hold: float = 600.0
    """Seconds after which a job that is held is started in any case, in case the look missed something."""

    def pause(self, failures: int, jitter: float) -> float:
        """Seconds before the next start.

        Args:
            failures: in a row, from 1.
            jitter: in [0, 1), so that jobs that fail together do not start together.
        """
        full = min(self.longest_pause, self.first_pause * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return full * (0.5 + jitter / 2)


class Stop:
    """How others ask for the end: once to let batches finish, twice to end at once."""

    def __init__(self) -> None:
        self._times = 0

    def ask(self) -> None:
        self._times += 1

    def is_asked(self) -> bool:
        """Whether the end was asked for."""
        return self._times > 0

    def is_urgent(self) -> bool:
        """Whether it was asked for again."""
        return self._times > 1


@dataclass
class _Supervised:
    """A task with what has become of it."""

    task: Task
    status: JobStatus
    running: Running | None = None
    failures: int = 0
    due: float = 0.0
    held_since: float = 0.0
    started: int = 0
    batch_at_start: int | None = None


class Supervisor:
    """Runs tasks until all are over, or until it is asked to stop."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        policy: Policy | None = None,
        stop: Stop | None = None,
        on_status: Callable[[Sequence[JobStatus]], None] = lambda _: None,
        on_event: Callable[[RunEvent], None] = lambda _: None,
        poll_seconds: float = 0.25,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Nothing is started yet.

        Args:
            tasks: in the order in which they start.
            policy: when they are started again.
            stop: asks for the end.
            on_status: told after every look at the jobs, with all of them, in order.
            on_event: told of starts and ends.
            poll_seconds: between looks.
            runtime: clock, chance and waiting.
        """
        self._all = [_Supervised(task, JobStatus(task.job, task.sink, State.WAITING)) for task in tasks]
        self._policy = policy or Policy()
        self._stop = stop or Stop()
        self._on_status = on_status
        self._on_event = on_event
        self._poll_seconds = poll_seconds
        self._runtime = runtime

    def run(self) -> tuple[JobStatus, ...]:
        """Supervise to the end; how each job ended, in order. Only what is no failure of a job is raised."""
        try:
            while not self._stop.is_asked() and not self._are_over():
                for one in self._all:
                    if self._stop.is_asked():
                        break
                    self._look(one)
                self._tell()
                if self._policy.fail_fast and any(s.state is State.FAILED for s in self.statuses):
                    break
                if not self._are_over() and not self._stop.is_asked():
                    self._runtime.sleeper.sleep(self._poll_seconds)
        finally:
            self._end_all()
            self._tell()
        return self.statuses

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """All jobs, in order."""
        return tuple(one.status for one in self._all)

    def _are_over(self) -> bool:
        return all(status.state.is_over for status in self.statuses)

    def _look(self, one: _Supervised) -> None:
        match one.status.state:
            case State.WAITING:
                self._start_when_fed(one)
            case State.PAUSING:
                if self._runtime.clock.monotonic() >= one.due:
                    self._start(one)
            case State.HELD:
                self._look_at_held(one)
            case State.RUNNING:
                self._watch(one)

    def _start_when_fed(self, one: _Supervised) -> None:
        states = {status.job: status.state for status in self.statuses}
        feeding = [states[job] for job in one.task.after]
        if all(state is State.ENDED for state in feeding):
            self._start(one)
        elif any(state.is_over and state is not State.ENDED for state in feeding):
            waited = [job for job in one.task.after if states[job].is_over and states[job] is not State.ENDED]
            self._become(one, State.SKIPPED, message=f"{waited[0]}, which feeds it, did not get to its end")

    def _look_at_held(self, one: _Supervised) -> None:
        now = self._runtime.clock.monotonic()
        if now < one.due:
            return
        one.due = now + self._policy.look_pause
        if now >= one.held_since + self._policy.longest_hold or self._is_corrected(one):
            self._start(one)

    @staticmethod
    def _is_corrected(one: _Supervised) -> bool:
        assert one.task.correcting is not None, "it is held"
        try:
            return one.task.correcting.is_corrected()
        except (
            AnabranchError
        ):  # the store is not there just now, or a table is not any more: the next start tells
            return False

    def _start(self, one: _Supervised) -> None:
        try:
            running = one.task.start()
        except Exception as error:  # whatever a declaration may raise
            self._failed(one, error)
            return
        one.running, one.started = running, one.started + 1
        one.batch_at_start = one.status.batch
        notice = "; ".join(running.notices) or None
        one.status = replace(one.status, begun=running.begun)
        self._become(one, State.RUNNING, restarts=one.started - 1, message=notice or one.status.message)
        self._event("start", one)

    def _watch(self, one: _Supervised) -> None:
        assert one.running is not None, "it was started"
        try:
            is_active = one.running.is_active()
            self._note_progress(one)
            error = one.running.failure()
        except Exception as lost:  # who runs it is gone
            is_active, error = False, lost
        if is_active:
            return
        if error is None:
            self._event("complete", one)
            self._become(one, State.ENDED, message=None, hint=None)
        else:
            self._event("fail", one, as_ours(error))
            self._failed(one, error)

    def _note_progress(self, one: _Supervised) -> None:
        assert one.running is not None, "it was started"
        found = one.running.progress()
        if found is None:
            return
        if found.batch != one.batch_at_start:
            one.failures = 0
        one.status = replace(
            one.status, batch=found.batch, rows=found.rows, rows_per_second=found.rows_per_second
        )

    def _failed(self, one: _Supervised, error: BaseException) -> None:
        ours = as_ours(error)
        what = verdict(error, has_run=one.started > 0)
        one.failures += 1
        correcting = one.task.correcting
        if what == "replaced" and correcting is not None:
            one.failures, one.held_since = 0, self._runtime.clock.monotonic()
            one.due = one.held_since
            self._become(one, State.HELD, message=ours.message, hint=ours.hint)
        elif what == "fenced" and correcting is not None and self._hands_over(correcting):
            one.due = self._runtime.clock.monotonic()
            self._become(one, State.PAUSING, message=ours.message, hint=None)
        elif what == "fenced":
            self._become(one, State.FENCED, message=ours.message, hint=ours.hint)
        elif what in ("final", "replaced") or not one.task.restarts or one.failures > self._policy.most:
            self._become(one, State.FAILED, message=ours.message, hint=ours.hint)
        else:
            pause = self._policy.pause(one.failures, self._runtime.ids.jitter())
            one.due = self._runtime.clock.monotonic() + pause
            self._become(one, State.PAUSING, message=ours.message, hint=ours.hint)

    @staticmethod
    def _hands_over(correcting: Correcting) -> bool:
        try:
            return correcting.hands_over()
        except AnabranchError:
            return False

    def _end_all(self) -> None:
        """Stop what runs, those first that are fed."""
        for one in reversed(self._all):
            if one.status.state.is_over:
                continue
            if one.status.state is State.RUNNING and one.running is not None:
                self._end(one, one.running)
            else:
                self._become(one, State.STOPPED)

    def _end(self, one: _Supervised, running: Running) -> None:
        message = one.status.message
        try:
            if not running.is_active():
                self._watch(one)
                if one.status.state.is_over:
                    return
                message = one.status.message
            running.stop(finish=not self._stop.is_urgent())
            self._note_progress(one)
        except Exception as error:  # the end of one must not keep the others from theirs
            message = as_ours(error).message
        if one.status.state is State.RUNNING:
            self._event("abort", one)
        self._become(one, State.STOPPED, message=message)

    def _become(
        self,
        one: _Supervised,
        state: State,
        *,
        restarts: int | None = None,
        message: str | None = None,
        hint: str | None = None,
    ) -> None:
        again = one.status.restarts if restarts is None else restarts
        one.status = replace(one.status, state=state, restarts=again, message=message, hint=hint)

    def _event(self, kind: EventKind, one: _Supervised, error: AnabranchError | None = None) -> None:
        assert one.running is not None, "it was started"
        now = self._runtime.clock.now_millis()
        self._on_event(RunEvent(kind, one.task.job, one.task.sink, one.running.run, now, error))

    def _tell(self) -> None:
        self._on_status(self.statuses)
