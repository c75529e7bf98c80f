"""Started jobs as their supervisor sees them: streaming queries, and batch jobs in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.jobs.supervise import Progress
from anabranch.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.jobs.state.keep import StateKeeper

_LOOK_SECONDS = 0.02


class RunningQuery:
    """A streaming query."""

    def __init__(
        self,
        query: StreamingQuery,
        notices: Sequence[str] = (),
        *,
        begun: str | None = None,
        keeper: StateKeeper | None = None,
        patience_seconds: float = 60.0,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Watch a query.

        Args:
            query: it was started.
            notices: see `anabranch.jobs.supervise.Running`.
            begun: likewise.
            keeper: keeps its state for tags; None if it has none.
            patience_seconds: how long the end waits for a batch.
            runtime: clock and waiting.
        """
        self._query = query
        self._notices = tuple(notices)
        self._begun = begun
        self._keeper = keeper
        self._patience = patience_seconds
        self._runtime = runtime

    @property
    def run(self) -> str:
        return str(self._query.runId)

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
        """Keep the state that the query ends with."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.look(now=True)

    def failure(self) -> BaseException | None:
        return self._query.exception()

    def progress(self) -> Progress | None:
        if self._keeper is not None:
            self._keeper.look()
        last: Any = self._query.lastProgress
        if last is None:
            return None
        return Progress(int(last["batchId"]), int(last["numInputRows"]), last["processedRowsPerSecond"])

    def stop(self, *, finish: bool) -> None:
        if finish:
            self._wait_for_batch()
        self._query.stop()
        self._finish()

    def _wait_for_batch(self) -> None:
        """Return when the batch is done that is under way, if there is one."""
        clock = self._runtime.clock
        end = clock.monotonic() + self._patience
        begun = self._done()
        while clock.monotonic() < end and self._query.isActive:
            if not self._query.status["isTriggerActive"] or self._done() != begun:
                return
            self._runtime.sleeper.sleep(_LOOK_SECONDS)

    def _done(self) -> int | None:
        found = self.progress()
        return None if found is None else found.batch


class RunningBatch:
    """A batch job, which is one piece of work."""

    def __init__(self, run: str, work: Callable[[], None], cancel: Callable[[], None], name: str) -> None:
        """Begin the work.

        Args:
            run: id of the run.
            work: writes the rows.
            cancel: lets the work fail.
            name: of the job.
        """
        self._run = run
        self._work = work
        self._cancel = cancel
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

    def failure(self) -> BaseException | None:
        return None if self._thread.is_alive() else self._error

    def progress(self) -> Progress | None:
        return None

    def stop(self, *, finish: bool) -> None:
        if not finish:
            with suppress(Exception):  # it may have ended by itself
                self._cancel()
        self._thread.join()

    def _do(self) -> None:
        try:
            self._work()
        except BaseException as error:  # it is raised nowhere: whoever supervises asks for it
            self._error = error
