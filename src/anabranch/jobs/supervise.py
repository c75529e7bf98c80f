"""Keeps jobs running: in the order in which they feed each other, restarted when they fail, stopped cleanly.

A job that fails starts again after a pause that grows with every failure in a row; one that got a batch done since its
last start begins to count anew. What may pass (the store, the network, the machine) is tried for as long as the process
lives, slower and slower, and counts for nothing; what may be the job itself is tried a limited number of times. Who is
fenced (another branch took the place of main), who has ended, and who failed for a reason that the next start met as well, is
left alone. If the engine is gone, all end: only a new process has another one.

Jobs start a few at a time: the next one when one of those that are starting has come to its first batch, or waits for rows.

A job that reads a table whose main was replaced is held until its own table is corrected as well, by a cascade, or until
the replacement is taken back; then it goes on. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.jobs.failure import as_ours, hint_of, verdict
from anabranch.jobs.status import Activity, EventKind, JobStatus, RunEvent, State
from anabranch.jobs.task import Correcting, Nobody, Others, Policy, RunningTask, Stop, Supervised, Task
from anabranch.runtime import SYSTEM, Runtime

_LOST = "Spark's JVM, which ran the job, is gone"
_LOST_HINT = (
    "look for 'out of memory' or 'killed' in the system's log and give Spark more memory (--conf spark.driver.memory=4g) if "
    "that was it; then run the jobs again: they go on where they stood."
)

RESTARTED = (State.FAILED, State.STOPPED, State.TAKEN)
"""How a job that is over may have ended for it to be restarted."""


class Supervisor:
    """Runs tasks until all are over, or until it is stopped."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        policy: Policy | None = None,
        stop: Stop | None = None,
        on_status: Callable[[Sequence[JobStatus]], None] = lambda _: None,
        on_event: Callable[[RunEvent], None] = lambda _: None,
        has_engine: Callable[[], bool] = lambda: True,
        is_away: Callable[[], bool] = lambda: False,
        others: Others | None = None,
        poll_seconds: float = 0.25,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            tasks: in the order in which they start.
            policy: when they are started again.
            stop: asks for the end.
            on_status: told after every look at the jobs, with all of them, in order.
            others: other processes, which ask for the jobs.
            has_engine: whether what runs the jobs is still there; asked after failures.
            is_away: whether their warehouse is not there just now; asked after failures that would be final.
            poll_seconds: between looks.
            runtime: clock, chance and waiting.
        """
        self._all = [Supervised(task, JobStatus(task.job, task.sink, State.WAITING)) for task in tasks]
        self._policy = policy or Policy()
        self._stop = stop or Stop()
        self._on_status = on_status
        self._on_event = on_event
        self._has_engine = has_engine
        self._is_away = is_away
        self._others = others or Nobody()
        self._is_lost = False
        self._poll_seconds = poll_seconds
        self._runtime = runtime

    def run(self) -> tuple[JobStatus, ...]:
        """Supervise to the end; return how each job ended, in order. Failures of jobs are not raised."""
        try:
            while not self._stop.is_asked() and not self._are_over() and not self._is_lost:
                self._do_as_asked()
                for one in self._all:
                    if self._stop.is_asked() or self._is_lost:
                        break
                    self._look(one)
                self._tell()
                if self._policy.fail_fast and any(s.state is State.FAILED for s in self.statuses):
                    break
                if not self._are_over() and not self._stop.is_asked() and not self._is_lost:
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
        """Whether nothing is left to do here: what was left to others and not taken yet may have to go on."""
        return all(status.state.is_over for status in self.statuses) and not self._others.are_awaited()

    def _look(self, one: Supervised) -> None:
        match one.status.state:
            case State.WAITING:
                self._start_when_fed(one)
            case State.PAUSING:
                if self._runtime.clock.monotonic() >= one.due and self._may_start():
                    self._start(one)
            case State.HELD:
                self._look_at_held(one)
            case State.RUNNING:
                self._watch(one)

    def _start_when_fed(self, one: Supervised) -> None:
        states = {status.job: status.state for status in self.statuses}
        feeding = [states[job] for job in one.task.after]
        if all(state is State.ENDED for state in feeding):
            if self._may_start():
                self._start(one)
        elif any(state.is_over and state is not State.ENDED for state in feeding):
            waited = [job for job in one.task.after if states[job].is_over and states[job] is not State.ENDED]
            self._become(one, State.SKIPPED, message=f"{waited[0]}, which feeds it, did not get to its end")

    def _may_start(self) -> bool:
        """Whether few enough jobs are starting: many at once take each other the time in which workers must answer."""
        now, longest = self._runtime.clock.monotonic(), self._policy.longest_start
        return sum(one.is_starting(now, longest) for one in self._all) < self._policy.at_once

    def _look_at_held(self, one: Supervised) -> None:
        now = self._runtime.clock.monotonic()
        if now < one.due:
            return
        one.due = now + self._policy.look_pause
        if now >= one.held_since + self._policy.longest_hold or self._is_corrected(one):
            self._start(one)

    @staticmethod
    def _is_corrected(one: Supervised) -> bool:
        assert one.task.correcting is not None, "it is held"
        try:
            return one.task.correcting.is_corrected()
        except (
            AnabranchError
        ):  # the store is not there just now, or a table is not any more: the next start tells
            return False

    def _start(self, one: Supervised) -> None:
        one.start_began = self._runtime.clock.monotonic()
        try:
            running = one.task.start()
        except Exception as error:  # whatever a declaration may raise
            self._failed(one, error)
            return
        one.running, one.started = running, one.started + 1
        one.batch_at_start = one.status.batch
        one.at, one.at_since, one.has_come_up = None, one.start_began, False
        message, hint = "; ".join(running.notices) or None, None
        if one.has_failed:  # until a batch is done nobody knows whether it has recovered
            failed, hint = one.status.last_error, one.status.last_hint
            message = "; ".join(text for text in (message, failed) if text) or None
        one.status = replace(one.status, begun=running.begun, activity=Activity.STARTING)
        self._become(one, State.RUNNING, restarts=one.started - 1, message=message, hint=hint)
        self._event("start", one)

    def _watch(self, one: Supervised) -> None:
        assert one.running is not None, "it was started"
        try:
            is_active = one.running.is_active()
            self._note_progress(one)
            if is_active:
                self._note_activity(one, one.running.activity())
            error = one.running.failure()
        except Exception as lost:  # who runs it is gone, or what it left cannot be read
            is_active, error = False, lost
            with suppress(Exception):  # it may go on, and its next start must not be beside it
                one.running.stop(is_urgent=lambda: True)
        if is_active:
            return
        if error is None:
            self._event("complete", one)
            self._become(one, State.ENDED, message=None, hint=None)
        else:
            self._event("fail", one, as_ours(error))
            self._failed(one, error)

    def _note_progress(self, one: Supervised) -> None:
        assert one.running is not None, "it was started"
        found = one.running.progress()
        if found is None:
            return
        if found.batch != one.batch_at_start:
            one.failures = one.own_failures = 0
            one.has_come_up = True
            one.is_doubted = False
            if one.has_failed:
                one.has_failed = False
                one.status = replace(one.status, message=None, hint=None)
        millis = one.status.batch_millis
        if found.batch != one.status.batch:
            millis = self._runtime.clock.now_millis()
        one.status = replace(
            one.status,
            batch=found.batch,
            rows=found.rows,
            rows_per_second=found.rows_per_second,
            batch_millis=millis,
            read={one.name: one.position.snapshot for one in found.positions} or one.status.read,
        )

    def _note_activity(self, one: Supervised, found: Activity) -> None:
        now, at = self._runtime.clock.monotonic(), (found, one.status.batch)
        if one.at != at:
            one.at, one.at_since = at, now
        is_busy = found is not Activity.IDLE
        if not is_busy and now - one.at_since >= self._policy.settled_after:
            one.is_doubted = False
        one.has_come_up |= not is_busy
        if is_busy and now - one.at_since >= self._policy.stuck_after:
            found = Activity.STUCK
        if found is not one.status.activity:
            one.status = replace(one.status, activity=found)

    def _is_given_up(self, one: Supervised) -> bool:
        counted = one.failures if one.task.ends else one.own_failures
        return not one.task.restarts or counted > self._policy.most

    def _failed(self, one: Supervised, error: BaseException) -> None:
        ours = as_ours(error)
        hint = hint_of(ours, one.task.job, one.task.sink)
        what = verdict(error, has_run=one.started > 0)
        in_doubt = False
        if what != "final":  # something else came in between
            one.is_doubted = False
        elif self._is_away():
            what = "passing"
        elif self._is_in_doubt(one):
            what, in_doubt = "passing", True
        one.failures += 1
        one.own_failures += what == "again" or in_doubt  # that there is doubt again and again ends as well
        one.has_failed = True
        now_millis = self._runtime.clock.now_millis()
        one.status = replace(
            one.status, last_error=ours.message, last_hint=hint, last_error_millis=now_millis
        )
        correcting = one.task.correcting
        if not self._has_engine():
            self._is_lost = True
            self._become(one, State.LOST, message=_LOST, hint=_LOST_HINT)
        elif what == "replaced" and correcting is not None:
            one.failures = one.own_failures = 0
            one.held_since = self._runtime.clock.monotonic()
            one.due = one.held_since
            self._become(one, State.HELD, message=ours.message, hint=hint)
        elif what == "fenced" and correcting is not None and self._hands_over(correcting):
            one.due = self._runtime.clock.monotonic()
            self._become(one, State.PAUSING, message=ours.message, hint=None)
        elif what == "fenced":
            self._become(one, State.FENCED, message=ours.message, hint=hint)
        elif what in ("final", "replaced") or self._is_given_up(one):
            self._become(one, State.FAILED, message=ours.message, hint=hint)
        else:
            jitter = self._runtime.ids.jitter()
            pause = self._policy.pause(one.failures, jitter, passing=what == "passing")
            one.due = self._runtime.clock.monotonic() + pause
            self._become(one, State.PAUSING, message=ours.message, hint=hint)

    @staticmethod
    def _is_in_doubt(one: Supervised) -> bool:
        """Whether a failure that would be final was met once only, by a job that had been started before.

        Where a warehouse goes away under it, what it was about to read is missing and counts as damage or as a mistake, and by
        the time its end is noticed all may be back: nothing tells it from damage then but a start that meets it again.
        """
        is_first = one.started > 0 and not one.is_doubted
        one.is_doubted = True
        return is_first

    @staticmethod
    def _hands_over(correcting: Correcting) -> bool:
        try:
            return correcting.hands_over()
        except AnabranchError:
            return False

    def _do_as_asked(self) -> None:
        """Stop or restart single jobs, or leave them to other processes."""
        asked = self._others.asks()
        for one in self._all:
            what, who = asked.get(one.task.job, (None, ""))
            if what is None:
                continue
            if one.status.state.is_over:
                if (
                    what == "restart"
                    and one.status.state in RESTARTED
                    and self._others.take_back(one.task.job)
                ):
                    self._restart(one, who)
                    self._tell()
                continue
            if one.status.state is State.RUNNING and one.running is not None:
                self._end(one, one.running)
            else:
                self._become(one, State.STOPPED)
            if one.status.state is not State.STOPPED:
                continue  # it had come to its end, or failed
            if what == "restart":
                self._restart(one, who)
            elif what == "yield" and not self._others.is_wanted(one.task.job):
                self._restart(one, f"the death of {who}, which had asked for it")
            elif what == "yield":
                self._become(one, State.TAKEN, message=f"{who} took it over")
            else:
                self._become(one, State.STOPPED, message=f"stopped by {who}")
            # Now: the next one may be at a long batch, and who looks would take one that starts again for one that is over.
            self._tell()

    def _restart(self, one: Supervised, who: str) -> None:
        one.failures = one.own_failures = 0
        one.is_doubted = False
        one.due = self._runtime.clock.monotonic()
        self._become(one, State.PAUSING, message=f"restarted by {who}")

    def _end_all(self) -> None:
        """Stop the running tasks, consumers before their producers."""
        for one in reversed(self._all):
            if one.status.state.is_over:
                continue
            if self._is_lost:
                self._become(one, State.LOST, message=_LOST, hint=_LOST_HINT)
                continue
            if one.status.state is State.RUNNING and one.running is not None:
                self._end(one, one.running)
            else:
                self._become(one, State.STOPPED)

    def _end(self, one: Supervised, running: RunningTask) -> None:
        message = one.status.message
        try:
            if not running.is_active():
                self._watch(one)
                if one.status.state.is_over:
                    return
                message = one.status.message
            if running.stop(is_urgent=self._stop.is_urgent):
                self._watch(one)
                if one.status.state.is_over:
                    return
                message = one.status.message
            self._note_progress(one)
        except Exception as error:  # a failure to end one must not prevent the others
            message = as_ours(error).message
        if one.status.state is State.RUNNING:
            self._event("abort", one)
        self._become(one, State.STOPPED, message=message)

    def _become(
        self,
        one: Supervised,
        state: State,
        *,
        restarts: int | None = None,
        message: str | None = None,
        hint: str | None = None,
    ) -> None:
        again = one.status.restarts if restarts is None else restarts
        activity = one.status.activity if state is State.RUNNING else None
        one.status = replace(
            one.status, state=state, restarts=again, message=message, hint=hint, activity=activity
        )

    def _event(self, kind: EventKind, one: Supervised, error: AnabranchError | None = None) -> None:
        assert one.running is not None, "it was started"
        now = self._runtime.clock.now_millis()
        self._on_event(RunEvent(kind, one.task.job, one.task.sink, one.running.run, now, error))

    def _tell(self) -> None:
        self._on_status(self.statuses)
