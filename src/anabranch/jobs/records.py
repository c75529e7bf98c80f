"""What runs on a warehouse, seen from any process: its jobs, who runs them, how far they are, and asking them to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import AnabranchError, NotFoundError, StorageError
from anabranch.jobs.board import SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.status import Activity, JobStatus, State
from anabranch.jobs.supervise import RESTARTED
from anabranch.jobs.task import Ask
from anabranch.lake import Lake, connect
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

_BAD: Final = frozenset({"failed", "lost", "gone", "silent", "fenced", "skipped"})
_DOUBT: Final = 3.0
"""Clocks of machines differ: only after so many times the silence is a process of another one called silent."""


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a job is behind a table that it reads."""

    snapshots: int
    seconds: float
    """Since the first snapshot that it has not read was made."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job as its record shows it."""

    job: str
    sink: str
    host: str
    pid: int
    since_millis: int
    state: str
    """``running``, ``idle``, ``starting``, ``stuck``, ``pausing``, ``held``, ``waiting``; ``gone`` if its process was killed, or left it to one
    that has not come; ``silent`` if it has not written its record for long; or how it ended."""
    batch: int | None = None
    """The last finished one."""
    batch_millis: int | None = None
    rows_per_second: float | None = None
    restarts: int = 0
    behind: Mapping[str, Behind] = field(default_factory=dict)
    """By table."""
    message: str | None = None
    hint: str | None = None
    last_error: str | None = None
    last_hint: str | None = None
    last_error_millis: int | None = None

    @property
    def is_bad(self) -> bool:
        """Whether somebody has to look at it."""
        return self.state in _BAD

    @property
    def late_seconds(self) -> float:
        """How long it is behind the table that it is furthest behind."""
        return max((one.seconds for one in self.behind.values()), default=0.0)


def board_of(warehouse: str, runtime: Runtime = SYSTEM) -> tuple[Lake, Board]:
    """Open the records of a warehouse."""
    lake = connect(warehouse)
    return lake, _board(lake, runtime)


def _board(lake: Lake, runtime: Runtime) -> Board:
    return Board(open_storage(lake.url, lake.storage_options), runtime)


def jobs_of_warehouse(warehouse: str, runtime: Runtime = SYSTEM) -> list[SeenJob]:
    """Return the jobs of a warehouse by name: those that run, and those that were over in the last week."""
    return jobs_of_lake(connect(warehouse), runtime)


def jobs_of_lake(lake: Lake, runtime: Runtime = SYSTEM) -> list[SeenJob]:
    """Return the jobs of an open lake, as `jobs_of_warehouse` does."""
    return [_seen(record, lake, runtime) for record in _board(lake, runtime).all()]


def _seen(record: JobRecord, lake: Lake, runtime: Runtime) -> SeenJob:
    status, now = record.status, runtime.clock.now_millis()
    state = _state(record, now)
    about = record.job, record.sink, record.process.host, record.process.pid, record.since_millis, state
    if status is None:
        return SeenJob(*about)
    return SeenJob(
        *about,
        status.batch,
        status.batch_millis,
        status.rows_per_second if status.activity is Activity.WORKING else None,
        status.restarts,
        {} if record.is_over else behind(status.read or {}, lake, now),
        status.message,
        status.hint,
        status.last_error,
        status.last_hint,
        status.last_error_millis,
    )


def is_long(silence_millis: int) -> bool:
    """Whether nobody has written a record for so long that its process is taken for dead, if it is not known to be."""
    return silence_millis > _DOUBT * SILENCE_SECONDS * 1000


def _state(record: JobRecord, now: int) -> str:
    status = record.status
    if status is not None and record.is_over:
        is_nobodys = status.state is State.TAKEN and is_long(now - record.written_millis)
        return "gone" if is_nobodys else status.state.value
    is_dead = record.process.is_dead()
    if is_dead:
        return "gone"
    if is_long(now - record.written_millis):
        return "silent"  # another machine is away; or it lives, but hangs, is paused, or cannot write
    if status is None:
        return Activity.STARTING.value
    if status.state is not State.RUNNING or status.activity is None:
        return status.state.value
    return "running" if status.activity is Activity.WORKING else status.activity.value


def behind(read: Mapping[str, int], lake: Lake, now: int) -> dict[str, Behind]:
    """Return how far somebody is behind tables of which snapshots up to those given have been read."""
    found = {}
    for name, reached in read.items():
        try:
            table = lake.table(name)
            head = table.snapshot
            first = None if head is None or head.id <= reached else table.context.snapshots.find(reached + 1)
        except AnabranchError:  # it is gone, or being replaced: the job itself says so
            continue
        if head is not None:
            seconds = 0.0 if first is None else max(0, now - first.time_millis) / 1000
            found[name] = Behind(max(0, head.id - reached), seconds)
    return found


def ask(
    warehouse: str, job: str, what: Ask, *, patience_seconds: float, runtime: Runtime = SYSTEM
) -> Sequence[SeenJob]:
    """Ask the processes that run a job to stop or restart it, and wait until they have; return how it is then.

    Args:
        warehouse: path or URL.
        job: its name, or with ``@`` and a branch the run on that branch.

    Raises:
        NotFoundError: nobody runs the job.
        StorageError: it has not happened within that time; it may still.
    """
    lake, board = board_of(warehouse, runtime)
    known = [one for one in board.all() if job in (one.job, one.key)]
    alive = [one for one in known if _can_be_asked(one, what)]
    if not alive:
        runs = sorted(
            {one.job for one in board.all() if not one.is_over and one.process.is_dead() is not True}
        )
        raise NotFoundError(
            f"job '{job}' cannot be asked to {what}: {_why_not(known)}",
            hint=" ".join(
                [
                    *(["nobody runs it now: start it again with `anabranch run`."] if known else []),
                    f"there run: {', '.join(runs)}."
                    if runs
                    else "`anabranch jobs` lists what there is on this warehouse.",
                ]
            ),
        )
    for one in alive:
        board.ask(one, what)
    clock, end = runtime.clock, runtime.clock.monotonic() + patience_seconds
    while not all(_is_done(board, one, what) for one in alive):
        if clock.monotonic() >= end:
            raise StorageError(
                f"job '{job}' was asked to {what} and has not within {patience_seconds:.0f} s",
                hint=f"it is still asked, and may be at a long batch: look with `anabranch jobs`. {alive[0].process} runs it.",
                retryable=True,
            )
        runtime.sleeper.sleep(0.5)
    return [_seen(now, lake, runtime) for one in alive if (now := board.newest(one.key)) is not None]


def _can_be_asked(record: JobRecord, what: Ask) -> bool:
    if record.process.is_dead() is True:
        return False
    if record.status is None or not record.is_over:
        return True
    return what == "restart" and record.status.state in RESTARTED


def _why_not(known: Sequence[JobRecord]) -> str:
    if not known:
        return "nobody runs it"
    first = known[0]
    if first.status is not None and first.is_over:
        return f"it is over ({first.status.state.value}), {first.process} ran it"
    return f"its {first.process} has ended"


def _is_done(board: Board, before: JobRecord, what: Ask) -> bool:
    now = board.newest(before.key)
    if now is None or now.process.is_dead() or now.process != before.process:
        return True
    return now.is_over if what == "stop" else _is_restarted(before, now)


def _is_restarted(before: JobRecord, now: JobRecord) -> bool:
    """Whether a job has begun anew, or was given up at that, since a record was written."""
    old, new = before.status, now.status
    if new is None:
        return False
    if new.state.is_over:
        return old is None or not old.state.is_over or old.last_error_millis != new.last_error_millis
    return new.state is State.RUNNING and (
        old is None or old.state is not State.RUNNING or new.restarts > old.restarts
    )


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
