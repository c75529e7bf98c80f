"""The jobs that this process runs, held against others: one process at a time runs a job.

`anabranch.jobs.taking` takes jobs, or tells who has them. While they run, `Leases.beat` writes what they are doing, at most once in ten
seconds for each, and finds what others ask: to stop or restart a job, or to leave it to them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from anabranch.errors import AnabranchError, JobTakenError, StorageError
from anabranch.jobs.board import BEAT_SECONDS, SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.task import Ask

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
"""Between two looks whether a job that was left to another process has been taken."""
_HEARD_SECONDS = 2 * SILENCE_SECONDS
"""Who waits for a job that was left to it may wait for the silence of another process meanwhile."""


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

    is_batch: bool = False
    """Whether it has no stream among its sources: doing it twice writes its rows twice."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.job}'"


@dataclass
class Leases:
    """The jobs of this process. Thread-safe."""

    board: Board
    _held: dict[str, JobRecord] = field(default_factory=dict)
    """By job."""
    _asks: dict[str, tuple[Ask, str]] = field(default_factory=dict)
    _left: dict[str, tuple[Process, float]] = field(default_factory=dict)
    """By job that others asked for, as long as they have not taken it: who did, and when last."""
    _looked: float = 0.0
    """When it was looked last whether those have taken it. Both by the clock that only goes forward."""
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
        """Whether who asked for a job lives, as far as can be told: nobody else would run what is left to a dead one.

        Who waits asks again and again: one that has not for `_HEARD_SECONDS` is dead, or hangs. If it wakes up it finds the job taken back.
        """
        with self._lock:
            return self._is_wanted(job)

    def _is_wanted(self, job: str) -> bool:
        if job not in self._left:
            return True
        who, when = self._left[job]
        return who.is_dead() is not True and self.board.runtime.clock.monotonic() - when < _HEARD_SECONDS

    def are_awaited(self) -> bool:
        """Whether a job was left to a process that has not taken it yet: it may have to go on here. Asks the store once a second."""
        clock = self.board.runtime.clock
        left = self._left_over()
        if left and clock.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = clock.monotonic()
            for job in left:
                with suppress(AnabranchError):
                    self._beat(job)
            left = self._left_over()
        return bool(left)

    def _left_over(self) -> list[str]:
        """Jobs that are over here, and that others have asked for and not taken, or want to go on."""
        with self._lock:
            over = [job for job, record in self._held.items() if record.is_over]
            return [job for job in over if job in self._left or self._asks.get(job, ("",))[0] == "restart"]

    def take_back(self, job: str) -> bool:
        """Take a job that is over for this process again; False if another one has it.

        By the next number: who has seen it end may be taking it at this moment, and one of the two gets the number.
        """
        with self._lock:
            record = self._held.get(job)
        if record is None or not record.is_over:
            return record is not None
        now, runtime = self.board.runtime.clock.now_millis(), self.board.runtime
        status = None if record.status is None else replace(record.status, state=State.PAUSING, message=None)
        again = replace(record, since_millis=now, beat=0, written_millis=now, status=status)
        try:
            there = self.board.newest(record.key) or record
            again = replace(again, number=max(record.number, there.number) + 1)
            if there.token == record.token and there.number > record.number:
                again, is_mine = there, True  # the store did not say so, the time before
            elif there.number > record.number and not there.may_go_back:
                is_mine = False
            else:
                is_mine = self.board.claim(again) or self._is_own(again)
        except AnabranchError as error:
            _LOG.warning("job '%s' is not taken back now, and will be: %s", job, error)
            with self._lock:
                self._asks.setdefault(job, ("restart", "this process"))
            return False
        with self._lock:
            self._left.pop(job, None)
            if is_mine:
                self._held[job] = again
                self._written[job] = runtime.clock.monotonic()
        return is_mine

    def _is_own(self, record: JobRecord) -> bool:
        """Whether it was stored although the store did not say so."""
        there = self.board.newest(record.key)
        return there is not None and (there.number, there.token) == (record.number, record.token)

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
        """Beat for a job, from either of two threads: each may find that the other has let go of it."""
        with self._lock:
            record = self._held.get(job)
        if record is None:
            return
        if max(self.board.numbers(record.key), default=0) > record.number:
            taken = self.board.newest(record.key)
            if taken is not None and taken.token == record.token:
                return  # it is being taken back
            if taken is not None and record.is_left and taken.may_go_back:
                self._wait_for(job, taken)
                return
            with self._lock:
                self._left.pop(job, None)
                now = self._held.get(job)
                if now is not None and now.number == record.number:  # not one that was taken back meanwhile
                    self._asks[job] = ("yield", "another process" if taken is None else str(taken.process))
                    del self._held[job]
            return
        asked = self.board.asked(record)
        with self._lock:
            record = self._held.get(job)
            if record is None:
                return
            for what, who in asked.items():
                self._asks[job] = (what, str(who))
                self._left.pop(job, None)
                if what == "yield" and (record.is_left or not record.is_over):
                    self._left[job] = who, self.board.runtime.clock.monotonic()
            if record.is_left and not self._is_wanted(job):
                who, _ = self._left.pop(job)
                gone = "which died" if who.is_dead() else "which was not heard of any more"
                self._asks[job] = ("restart", f"{who}, {gone} before it took it over")
        if not record.is_over:
            self._write(job)

    def _wait_for(self, job: str, taken: JobRecord) -> None:
        """See whether who has taken a job that was left to it gets the others that it wants: else it goes on here."""
        with self._lock:
            self._left.setdefault(job, (taken.process, self.board.runtime.clock.monotonic()))
            if taken.is_left or not self._is_wanted(job):
                self._left.pop(job)
                gone = "gave it back" if taken.is_left else "died, or is not heard of, before it began it"
                self._asks[job] = ("restart", f"{taken.process}, which {gone}")

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

    def begin(self, jobs: Sequence[str]) -> None:
        """Write the records of jobs, now that this process has all that it wanted; what fails is left to the next beat."""
        for job in jobs:
            with suppress(AnabranchError):
                self._write(job)

    def release(self, given_back: Sequence[str] = ()) -> None:
        """Let go of jobs that never came to a status; those that are given back go on where they were."""
        left = []
        with self._lock:
            for job, record in self._held.items():
                if not record.is_over:
                    state = State.TAKEN if job in given_back else State.STOPPED
                    over = record.status or JobStatus(job, record.sink, state)
                    self._held[job] = replace(record, status=replace(over, state=state, activity=None))
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
