"""Taking jobs for this process, from others that run them if they are asked for: all of them or none.

A process that ends a job because it was asked for waits until it is taken, and goes on with it where that does not come about. Whose a
job is, is decided by who claims the next number of its record: both who waits for it, and who takes it back, claim that one. Who takes
several claims one after the other, and writes the records anew once it has them all. Where it fails or dies before that, it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from anabranch.errors import AnabranchError, JobTakenError, StorageError
from anabranch.jobs.board import BEAT_SECONDS, SILENCE_SECONDS, Board, JobRecord
from anabranch.jobs.lease import Leases, Wanted
from anabranch.jobs.status import Process

_LOOK_SECONDS = 0.5


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
    left: list[str] = []
    """Jobs that were taken from processes which wait to see that they are."""
    try:
        for one in wanted:
            taking.look(one)
        last = [taking.ended(one) for one in wanted]
        for one, before in zip(wanted, last, strict=True):
            while (mine := _claimed(board, one, before)) is None:
                before = taking.ended(one)  # another process was quicker  # noqa: PLW2901
            leases._held[one.job] = mine  # noqa: SLF001 - made here
            leases._written[one.job] = board.runtime.clock.monotonic()  # noqa: SLF001 - likewise
            if before is not None and before.is_left:
                left.append(one.job)
        leases.begin(left)
    except BaseException:  # also Ctrl-C
        leases.release(given_back=left)
        taking.give_back()
        raise
    return leases


@dataclass
class _Taking:
    """Waits until no process runs the jobs that are to be taken."""

    board: Board
    tell: Callable[[str], None]
    patience: float | None
    """Seconds in which a process that is asked for a job must end it, for each that it is asked for; None if none is asked."""
    asked: list[JobRecord] = field(default_factory=list)
    """Records of the processes that were asked."""
    _asked_last: float = 0.0
    """When, by the clock that only goes forward."""
    _heard: set[tuple[str, int]] = field(default_factory=set)
    """Keys and numbers of those records whose processes have taken in what was asked."""
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
        clock, end, patience = self.board.runtime.clock, None, 0.0
        while True:
            before = self.board.newest(one.key)
            if before is not None and before.process.is_dead() is None and not before.is_over:
                self.tell(f"{one} was run by {before.process}: waiting to see whether it still is")
            if before is None or not self.board.is_alive(before, self._since(before)):
                if one.is_batch and before is not None and before.has_ended and self._was_asked(before):
                    raise _done_error(one, before)
                return before
            if self.patience is None:
                raise _taken_error(one, before)
            # Another one, if the job was taken back, or was taken by somebody else.
            if self._ask(one, before) or end is None:
                # A process ends one job after the other, each within its limit.
                patience = self.patience * sum(other.process == before.process for other in self.asked)
                end = clock.monotonic() + patience
            elif clock.monotonic() >= end:
                raise _unanswered_error(one, before, patience, self.board.silence_millis(before) / 1000)
            self._ask_again()
            self.board.runtime.sleeper.sleep(_LOOK_SECONDS)

    def _since(self, record: JobRecord) -> float | None:
        """Return when a record was read first, if it has not been written since; else None."""
        first, when = self._looked.get(record.key, (None, None))
        return when if first is not None and first.last_write == record.last_write else None

    def _ask(self, one: Wanted, record: JobRecord) -> bool:
        """Ask the process that runs a job to end it; False if it was asked already."""
        if self._was_asked(record):
            return False
        self.tell(f"asking {record.process} to end {one} after the batch it is at")
        self.asked.append(record)
        self.board.ask(record, "yield")
        self._asked_last = self.board.runtime.clock.monotonic()
        return True

    def _was_asked(self, record: JobRecord) -> bool:
        return any((before.key, before.number) == (record.key, record.number) for before in self.asked)

    def _ask_again(self) -> None:
        """Ask again for all that was asked for: who has ended a job waits for as long as it hears of this process.

        Somebody else who asked for the same and gave up may have taken back what was asked.
        """
        now = self.board.runtime.clock.monotonic()
        if now - self._asked_last < BEAT_SECONDS:
            return
        self._asked_last = now
        for record in self.asked:
            with suppress(StorageError):
                if max(self.board.numbers(record.key), default=0) == record.number:
                    if not self.board.is_asked(record, "yield"):
                        self._heard.add((record.key, record.number))
                    self.board.ask(record, "yield")

    def give_back(self) -> None:
        """Have processes go on with the jobs that they were asked to end in vain: nobody else would run them."""
        for record in self.asked:
            with suppress(AnabranchError):
                is_pending = self.board.is_asked(record, "yield")
                if is_pending:
                    self.board.withdraw(record, "yield")
                now = self.board.newest(record.key)
                if (
                    now is not None
                    and now.number == record.number
                    and (now.is_over or not is_pending or (record.key, record.number) in self._heard)
                ):
                    self.board.ask(record, "restart")


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


def _unanswered_error(one: Wanted, record: JobRecord, patience: float, silent: float) -> JobTakenError:
    hangs = f"its record was not written for {silent:.0f} s: the process is paused, or hangs."
    goes_on = "it goes on there. Look with `anabranch jobs`: it may be at a long batch (a longer --stop-limit waits longer)."
    return JobTakenError(
        f"{one} is run by {record.process} since {_since(record)}; asked to end it, it did not within {patience:.0f} s",
        hint=f"{hangs if silent > SILENCE_SECONDS else goes_on} If the process hangs, kill it, and run this again: nothing is lost or "
        "written twice.",
    )


def _done_error(one: Wanted, record: JobRecord) -> JobTakenError:
    return JobTakenError(
        f"{one}, a batch job, came to its end at {record.process}, which was asked for it: its rows are written",
        hint="nothing was started. Run it again to write them once more.",
    )


def _since(record: JobRecord) -> str:
    return datetime.fromtimestamp(record.since_millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _taken_error(one: Wanted, record: JobRecord) -> JobTakenError:
    return JobTakenError(
        f"{one} is run by {record.process} since {_since(record)}",
        hint=f"`anabranch run ... --take-over` ends it there, after the batch it is at, and goes on here; `anabranch stop "
        f"{one.job}` only ends it.",
    )
