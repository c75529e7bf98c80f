"""Lineage for pages, which ask often: it looks for new commits at most every few seconds, and beside the answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch import Lake
from anabranch.lineage.store import DamagedIndexError, Known
from anabranch.runtime import Runtime

if TYPE_CHECKING:
    from anabranch.lineage.index import CaughtUp

_RARER = 10
"""Looking for new commits takes at most one part of so many of the time."""


class CalmLineage:
    """The lineage of a warehouse, for pages.

    Looking at all tables of a large lake takes a second, longer over a network. So it is done by a thread of its own, and who asks
    says how long to wait for it: pictures of the whole lake are drawn of what the index has, and drawn again.
    """

    def __init__(self, lake: Lake, runtime: Runtime, every_seconds: float = 5.0) -> None:
        """Make it; nothing is read yet."""
        self._lake = lake
        self._runtime = runtime
        self._every = every_seconds
        self._lock = threading.Lock()
        self._looking: Future[CaughtUp] | None = None
        """The look that goes on, or the last one."""
        self._begun = self._ended = 0.0

    def catch_up(self, patience: float | None = None) -> bool:
        """Take in what is new; return whether the index has all that there was when this was asked, but for the last seconds.

        Args:
            patience: wait for at most so many seconds since the look began; to its end if None.
        """
        looking = self._latest(is_patient=patience is None)
        if patience is not None:
            waited = self._runtime.clock.monotonic() - self._begun
            if not wait([looking], timeout=max(patience - waited, 0)).done:
                return False
        looking.result()  # raises what went wrong
        return True

    @contextmanager
    def reading(self) -> Iterator[Known]:
        """Open the index with all that is new; see `anabranch.lineage.store.LineageSource`."""
        self.catch_up()
        with self.as_it_is() as known:
            yield known

    @contextmanager
    def as_it_is(self) -> Iterator[Known]:
        """Open the index without looking for what is new."""
        looking = self._looking
        is_known = looking is not None and looking.done() and looking.exception() is None
        problems = looking.result().problems if looking is not None and is_known else ()
        try:
            with self._lake.lineage.index.reading() as store:
                yield Known(store, problems)
        except DamagedIndexError:
            self._looking = None  # what it had is gone: all is new to the one that comes in its place
            raise

    def _latest(self, *, is_patient: bool) -> Future[CaughtUp]:
        """Return the look that goes on, the last one if it was just now, or a new one."""
        with self._lock:
            looking, now = self._looking, self._runtime.clock.monotonic()
            if looking is not None:
                took = 0.0 if is_patient else _RARER * (self._ended - self._begun)
                is_young = now - self._ended < max(self._every, took) and looking.done()
                if not looking.done() or (is_young and looking.exception() is None):
                    return looking
            lineage = self._lake.lineage
            _ = lineage.index  # opened by one thread
            self._looking, self._begun = Future(), now
            threading.Thread(target=self._look, args=(self._looking,), daemon=True).start()
            return self._looking

    def _look(self, looking: Future[CaughtUp]) -> None:
        try:
            found = self._lake.lineage.catch_up()
        except BaseException as error:  # told to whoever asked
            self._ended = self._runtime.clock.monotonic()
            looking.set_exception(error)
        else:
            self._ended = self._runtime.clock.monotonic()
            looking.set_result(found)
