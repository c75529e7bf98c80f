"""The jobs that this process runs, held against others: one process at a time runs a job.

`take` claims jobs, or tells who has them. While they run, `Leases.beat` writes what they are doing, at most once in ten
seconds for each, and finds what others ask: to stop or restart a job, or to leave it to them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from anabranch.errors import AnabranchError, JobTakenError, StorageError
from anabranch.jobs.board import BEAT_SECONDS, SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.task import Ask

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that this process is to run."""

    key: str
    """See `anabranch.jobs.board.JobRecord`."""
    job: str
    sink: str
    kind: str = "job"
    """What it is, for people."""
    also: tuple[str, ...] = ()
    """Other keys under which a process may run it: of main and of a branch, once that branch is main."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.job}'"


@dataclass
class Leases:
    """The jobs of this process. Thread-safe."""

    board: Board
    _held: dict[str, JobRecord] = field(default_factory=dict)
    """By job."""
    _asks: dict[str, tuple[Ask, str]] = field(default_factory=dict)
    _left: dict[str, Process] = field(default_factory=dict)
    """By job that others asked for: who did, as long as they have not taken it."""
    _written: dict[str, float] = field(default_factory=dict)
    """When the record of a job was written last, by the clock that only goes forward."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Never held while the store is asked: who supervises the jobs takes it at every look."""
    _writing: threading.Lock = field(default_factory=threading.Lock)
    """Held while a record is written, so that what was so earlier never covers what is so now."""

    def note(self, statuses: Sequence[JobStatus]) -> None:
        """Take in what the jobs are doing; it is written by the next beat, and at once if a job is over, or is not any more."""
        with self._lock:
            changed = []
            for status in statuses:
                record = self._held.get(status.job)
                if record is None:
                    continue
                was_over = record.is_over
                self._held[status.job] = replace(record, status=status)
                if status.state.is_over != was_over:
                    changed.append(status.job)
                    if status.state is not State.TAKEN:
                        self._left.pop(status.job, None)
        for job in changed:
            with suppress(AnabranchError):
                self._write(job)

    def asks(self) -> Mapping[str, tuple[Ask, str]]:
        """Return, by job, what was asked since the last call, and by whom."""
        with self._lock:
            found, self._asks = self._asks, {}
            return found

    def is_wanted(self, job: str) -> bool:
        """Whether who asked for a job lives, as far as can be told: nobody else would run what is left to a dead one."""
        with self._lock:
            return self._is_wanted(job)

    def _is_wanted(self, job: str) -> bool:
        who = self._left.get(job)
        return who is None or who.is_dead() is not True

    def beat(self) -> None:
        """Write all records anew, and look for what others ask. Troubles of the store are left to the next beat."""
        with self._lock:
            jobs = [*self._held]  # also those that are over: they may be asked to start again
        for job in jobs:
            try:
                self._beat(job)
            except AnabranchError as error:
                _LOG.debug("the record of job '%s' is not written now: %s", job, error)

    def _beat(self, job: str) -> None:
        with self._lock:
            record = self._held[job]
        if max(self.board.numbers(record.key), default=0) > record.number:
            taken = self.board.newest(record.key)
            with self._lock:
                self._asks[job] = ("yield", "another process" if taken is None else str(taken.process))
                del self._held[job]
                self._left.pop(job, None)
            return
        asked = self.board.asked(record)
        with self._lock:
            for what, who in asked.items():
                self._asks[job] = (what, str(who))
                self._left.pop(job, None)
                if what == "yield":
                    self._left[job] = who
            status, is_over = self._held[job].status, self._held[job].is_over
            if status is not None and status.state is State.TAKEN and not self._is_wanted(job):
                self._asks[job] = ("restart", f"{self._left.pop(job)}, which died before it took it over")
        if not is_over:
            self._write(job)

    def _write(self, job: str) -> None:
        now = self.board.runtime.clock.now_millis()
        with self._writing:
            with self._lock:
                record = self._held.get(job)
                if record is None:  # another process has taken the job
                    return
                record = self._held[job] = replace(record, beat=record.beat + 1, written_millis=now)
            began = self.board.runtime.clock.monotonic()
            self.board.write(record)
            self._written[job] = began

    def check(self, one: Wanted) -> None:
        """Look now whether this process still has a job.

        Raises `JobTakenError`: another one has taken it; or the store has not answered for so long that another one may have.
        """
        with self._lock:
            mine = self._held.get(one.job)
        try:
            numbers = self.board.numbers(one.key)
            if mine is not None and max(numbers, default=0) <= mine.number:
                return
            taken = self.board.newest(one.key)
        except StorageError as error:
            silent = self.board.runtime.clock.monotonic() - self._written.get(one.job, 0.0)
            if mine is not None and silent < SILENCE_SECONDS:
                return
            raise JobTakenError(
                f"it cannot be told whether {one} was taken over: its record was not written for {silent:.0f} s",
                hint="what is done stays. Look whether the store can be written to, and run it again.",
            ) from error
        who = "another process" if taken is None else str(taken.process)
        raise JobTakenError(
            f"{one} was taken over by {who}, while this one was silent",
            hint="it goes on there; nothing more is done here.",
        )

    def release(self) -> None:
        """Let go of jobs that never came to a status."""
        left = []
        with self._lock:
            for job, record in self._held.items():
                if not record.is_over:
                    over = record.status or JobStatus(job, record.sink, State.STOPPED)
                    status = replace(over, state=State.STOPPED, activity=None)
                    self._held[job] = replace(record, status=status)
                    left.append(job)
        for job in left:
            with suppress(AnabranchError):
                self._write(job)

    @contextmanager
    def beating(self, seconds: float = BEAT_SECONDS) -> Iterator[None]:
        """Beat from a thread of its own while the block runs: a job may take minutes to start. Then let go of all."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(seconds):
                self.beat()

        thread = threading.Thread(target=work, name="records of jobs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release()


def take(
    board: Board,
    wanted: Sequence[Wanted],
    *,
    take_over: bool = False,
    patience_seconds: float = 120.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Leases:
    """Take jobs for this process: all of them or none.

    Args:
        wanted: the jobs.
        take_over: ask other processes that run them to end them, all at once, after the batch they are at.

    Raises `JobTakenError` if another process runs one of them.
    """
    leases, taking = Leases(board), _Taking(board, tell, patience_seconds if take_over else None)
    # In one order for all, so that of two processes neither waits for what the other has while it has what that waits for.
    wanted = sorted(wanted, key=lambda one: one.key)
    try:
        for one in wanted:
            taking.look(one)
        last = [taking.ended(one) for one in wanted]
        for one, before in zip(wanted, last, strict=True):
            while (mine := _claimed(board, one, before)) is None:
                before = taking.ended(one)  # another process was quicker  # noqa: PLW2901
            leases._held[one.job] = mine  # noqa: SLF001 - made here
            leases._written[one.job] = board.runtime.clock.monotonic()  # noqa: SLF001 - likewise
    except BaseException:  # also Ctrl-C
        leases.release()
        for record in taking.asked:
            with suppress(AnabranchError):
                _give_back(board, record)
        raise
    return leases


@dataclass
class _Taking:
    """Waits until no process runs the jobs that are to be taken."""

    board: Board
    tell: Callable[[str], None]
    patience: float | None
    """Seconds in which a process that is asked for a job must end it; None if none is asked."""
    asked: list[JobRecord] = field(default_factory=list)
    """Records of the processes that were asked."""
    _looked: dict[str, tuple[JobRecord, float]] = field(default_factory=dict)
    """Records that were read first, by key, and when."""

    def look(self, wanted: Wanted) -> None:
        """Look who runs a job, and ask for it; for all of them before any is waited for."""
        for one in _under_each_key(wanted):
            before = self.board.newest(one.key)
            if before is None or before.is_over or before.process.is_dead():
                continue
            self._looked[one.key] = before, self.board.runtime.clock.monotonic()
            if self.patience is not None:
                self._ask(one, before)

    def ended(self, wanted: Wanted) -> JobRecord | None:
        """Wait until no process runs a job, and return the record of the last one that did. Raises `JobTakenError`."""
        last: JobRecord | None = None
        for one in _under_each_key(wanted):
            last = self._ended(one)
        return last

    def _ended(self, one: Wanted) -> JobRecord | None:
        clock, end = self.board.runtime.clock, None
        while True:
            before = self.board.newest(one.key)
            if before is not None and before.process.is_dead() is None and not before.is_over:
                self.tell(f"{one} was run by {before.process}: waiting to see whether it still is")
            if before is None or not self.board.is_alive(before, self._since(before)):
                return before
            if self.patience is None:
                raise _taken_error(one, before)
            if end is None:
                end = clock.monotonic() + self.patience
                self._ask(one, before)
            elif clock.monotonic() >= end:
                raise _unanswered_error(one, before, self.patience)
            self.board.runtime.sleeper.sleep(_LOOK_SECONDS)

    def _since(self, record: JobRecord) -> float | None:
        """Return when a record was read first, if it has not been written since; else None."""
        first, when = self._looked.get(record.key, (None, None))
        return when if first is not None and first.last_write == record.last_write else None

    def _ask(self, one: Wanted, record: JobRecord) -> None:
        """Ask the process that runs a job to end it, once."""
        if any((before.key, before.number) == (record.key, record.number) for before in self.asked):
            return
        self.tell(f"asking {record.process} to end {one} after the batch it is at")
        self.asked.append(record)
        self.board.ask(record, "yield")


def _under_each_key(wanted: Wanted) -> Iterator[Wanted]:
    """Yield a job under each key by which a process may run it; its own comes last."""
    for key in (*wanted.also, wanted.key):
        yield replace(wanted, key=key)


def _claimed(board: Board, one: Wanted, before: JobRecord | None) -> JobRecord | None:
    """Take a job after the process that ran it last; None if another one was quicker."""
    now, number = board.runtime.clock.now_millis(), 1 if before is None else before.number + 1
    mine = JobRecord(
        *(one.key, number, Process.own(), board.runtime.ids.uuid(), now, one.job, one.sink),
        written_millis=now,
    )
    return mine if board.claim(mine) else None


def _give_back(board: Board, record: JobRecord) -> None:
    """Have a process go on with a job that it was asked to end in vain: nobody else would run it."""
    if board.is_asked(record, "yield"):
        board.withdraw(record, "yield")
    elif max(board.numbers(record.key), default=0) == record.number:
        board.ask(record, "restart")


def _unanswered_error(one: Wanted, record: JobRecord, patience: float) -> JobTakenError:
    return JobTakenError(
        f"{one} is run by {record.process} since {_since(record)}; asked to end it, it did not within {patience:.0f} s",
        hint="it goes on there. Look with `anabranch jobs`: it may be at a long batch (a longer --stop-limit waits longer). If the "
        "process hangs, kill it, and run this again: nothing is lost or written twice.",
    )


def _since(record: JobRecord) -> str:
    return datetime.fromtimestamp(record.since_millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _taken_error(one: Wanted, record: JobRecord) -> JobTakenError:
    return JobTakenError(
        f"{one} is run by {record.process} since {_since(record)}",
        hint=f"`anabranch run ... --take-over` ends it there, after the batch it is at, and goes on here; `anabranch stop "
        f"{one.job}` only ends it.",
    )
