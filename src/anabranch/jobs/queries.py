"""Started jobs, for their supervisor: streaming queries, and batch jobs in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError
from anabranch.jobs.pins import SourcePins, positions_of
from anabranch.jobs.status import Activity, Progress
from anabranch.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.jobs.state.keep import StateKeeper

_LOOK_SECONDS = 0.02
_CANCEL_AGAIN_SECONDS = 0.25
_CANCEL_SECONDS = 20.0
"""How long a batch job that was cancelled is waited for: its function may be at something that is not Spark's."""


class RunningQuery:
    """A streaming query."""

    def __init__(
        self,
        query: StreamingQuery,
        notices: Sequence[str] = (),
        *,
        begun: str | None = None,
        keeper: StateKeeper | None = None,
        pins: SourcePins | None = None,
        patience_seconds: float = 60.0,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Watch a query.

        Args:
            notices: see `anabranch.jobs.supervise.Running`.
            begun: likewise.
            keeper: keeps its state for tags; None if it has none.
            pins: keep what it has not read from expiring.
            patience_seconds: how long a clean end waits for a batch.
        """
        self._query = query
        self._run = str(query.runId)  # asked now: a JVM that is gone does not tell
        self._done_last: Progress | None = None
        self._notices = tuple(notices)
        self._begun = begun
        self._keeper = keeper
        self._pins = pins
        self._patience = patience_seconds
        self._runtime = runtime

    @property
    def run(self) -> str:
        return self._run

    @property
    def notices(self) -> Sequence[str]:
        return self._notices

    @property
    def begun(self) -> str | None:
        return self._begun

    def is_active(self) -> bool:
        active = bool(self._query.isActive)
        if not active:
            self._finish()
        return active

    def _finish(self) -> None:
        """Keep the final state of the query."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.look(now=True)
        pins, self._pins = self._pins, None
        if pins is not None and self._done_last is not None:
            pins.reached(self._done_last.positions, now=True)

    def activity(self) -> Activity:
        status = self._query.status
        if str(status["message"]).startswith("Initializing"):
            return Activity.STARTING
        return Activity.WORKING if status["isTriggerActive"] else Activity.IDLE

    def failure(self) -> BaseException | None:
        return self._query.exception()

    def progress(self) -> Progress | None:
        if self._keeper is not None:
            self._keeper.look()
        last: Any = self._query.lastProgress
        if (
            last is not None and "addBatch" in last["durationMs"]
        ):  # else it only says that there is nothing to do
            batch = int(last["batchId"])
            if self._done_last is None or self._done_last.batch != batch:
                done = batch, int(last["numInputRows"]), last["processedRowsPerSecond"]
                self._done_last = Progress(*done, positions_of(last["sources"]))
        if self._pins is not None and self._done_last is not None:
            self._pins.reached(self._done_last.positions)
        return self._done_last

    def stop(self, *, is_urgent: Callable[[], bool]) -> bool:
        self._wait_for_batch(is_urgent)
        has_ended = not self._query.isActive
        self._query.stop()
        self._finish()
        return has_ended

    def _wait_for_batch(self, is_urgent: Callable[[], bool]) -> None:
        """Wait until the current batch is done, if there is one and it does not become urgent meanwhile."""
        if is_urgent():
            return
        clock = self._runtime.clock
        end = clock.monotonic() + self._patience
        begun = self._done()
        while not is_urgent() and clock.monotonic() < end and self._query.isActive:
            if not self._query.status["isTriggerActive"] or self._done() != begun:
                return
            self._runtime.sleeper.sleep(_LOOK_SECONDS)

    def _done(self) -> int | None:
        found = self.progress()
        return None if found is None else found.batch


class RunningBatch:
    """A batch job, run as one piece of work."""

    def __init__(
        self,
        run: str,
        work: Callable[[], None],
        cancel: Callable[[], None],
        name: str,
        *,
        patience_seconds: float = 60.0,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Start the work.

        Args:
            run: id of the run.
            work: writes the rows.
            cancel: makes what Spark does for the work fail.
            patience_seconds: how long a clean end waits for the work.
        """
        self._run = run
        self._work = work
        self._cancel = cancel
        self._patience = patience_seconds
        self._runtime = runtime
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._do, name=f"job {name}", daemon=True)
        self._thread.start()

    @property
    def run(self) -> str:
        return self._run

    @property
    def notices(self) -> Sequence[str]:
        return ()

    @property
    def begun(self) -> str | None:
        return None

    def is_active(self) -> bool:
        return self._thread.is_alive()

    def activity(self) -> Activity:
        return Activity.WORKING

    def failure(self) -> BaseException | None:
        return None if self._thread.is_alive() else self._error

    def progress(self) -> Progress | None:
        return None

    def stop(self, *, is_urgent: Callable[[], bool]) -> bool:
        clock = self._runtime.clock
        end = clock.monotonic() + self._patience
        while self._thread.is_alive() and not is_urgent() and clock.monotonic() < end:
            self._thread.join(_LOOK_SECONDS)
        given_up = clock.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive():
            if clock.monotonic() >= given_up:
                raise AnabranchError(
                    f"it was cancelled, and its own code has not ended after {_CANCEL_SECONDS:.0f} s",
                    hint="it ends with the process; what it has not committed by then is not written.",
                )
            with suppress(Exception):  # it may have ended by itself
                self._cancel()
            self._thread.join(_CANCEL_AGAIN_SECONDS)  # between two calls of Spark there is nothing to cancel
        return self._error is None

    def _do(self) -> None:
        try:
            self._work()
        except BaseException as error:  # it is raised nowhere: whoever supervises asks for it
            self._error = error
