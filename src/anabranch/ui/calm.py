"""Lineage for pages, which ask often: it looks for new commits at most every few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch import Lake
from anabranch.lineage.store import Known
from anabranch.runtime import Runtime


class CalmLineage:
    """The lineage of a warehouse, which looks for new commits at most every few seconds: pages ask often."""

    def __init__(self, lake: Lake, runtime: Runtime, every_seconds: float = 5.0) -> None:
        """Make it; nothing is read yet."""
        self._lake = lake
        self._runtime = runtime
        self._every = every_seconds
        self._last: float | None = None
        self._problems: tuple[str, ...] = ()

    @contextmanager
    def reading(self) -> Iterator[Known]:
        """See `anabranch.lineage.store.LineageSource`."""
        lineage, now = self._lake.lineage, self._runtime.clock.monotonic()
        if self._last is None or now - self._last >= self._every:
            self._problems = lineage.catch_up().problems
            self._last = self._runtime.clock.monotonic()
        with lineage.index.reading() as store:
            yield Known(store, self._problems)
