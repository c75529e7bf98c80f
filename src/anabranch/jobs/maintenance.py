"""Maintenance beside running jobs: the tables that they read and write are kept within bounds by a thread.

Each round does what `anabranch maintain` does with one table after another, and removes checkpoints that no job can go on
with. It runs in the driver without Spark, so that it takes nothing from the batches but time; it may be killed anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from anabranch.errors import AnabranchError
from anabranch.jobs.gone import remove_gone_checkpoints
from anabranch.jobs.job import Job
from anabranch.lake import Lake, connect
from anabranch.runtime import SYSTEM, Runtime

_FIRST_SECONDS = 60.0
"""Before the first round: jobs start first."""
_LEAVE_SECONDS = 5.0
"""How long the end waits for a round; what it is at is safe to cut off."""


@dataclass
class Keeping:
    """Maintains the tables of jobs, again and again."""

    lake: Lake
    tables: Sequence[str]
    tell: Callable[[str], None] = lambda _: None
    """Told what went wrong, once until it is well again, and what was removed that somebody may miss."""
    runtime: Runtime = SYSTEM
    _told: dict[str, str] = field(default_factory=dict)

    def round(self, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Maintain every table once."""
        for name in self.tables:
            if is_ended():
                return
            self._try(name, lambda name=name: self._maintain(name))  # type: ignore[misc]
        if not is_ended():
            self._try("checkpoints", self._remove_checkpoints)

    def _maintain(self, name: str) -> None:
        self.lake.table(name).maintain()

    def _remove_checkpoints(self) -> None:
        for gone in remove_gone_checkpoints(self.lake, runtime=self.runtime):
            self.tell(f"removed the checkpoint {gone.location} of job '{gone.job}': {gone.why}")

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except AnabranchError as error:
            message = f"maintenance of {what}: {error.message}" + (
                f"\n  hint: {error.hint}" if error.hint else ""
            )
            if self._told.get(what) != message:
                self.tell(message)
            self._told[what] = message
            return
        if self._told.pop(what, None) is not None:
            self.tell(f"maintenance of {what} works again")

    @contextmanager
    def kept(self, seconds: float) -> Iterator[None]:
        """Do a round every so many seconds while the block runs."""
        ended = threading.Event()

        def work() -> None:
            pause = min(seconds, _FIRST_SECONDS)
            while not ended.wait(pause):
                pause = seconds
                self.round(ended.is_set)

        thread = threading.Thread(target=work, name="maintenance", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_LEAVE_SECONDS)


def keeping_of(
    warehouse: str, jobs: Sequence[Job], branch: str | None, tell: Callable[[str], None]
) -> Keeping:
    """Return what maintains the tables that jobs read, and those that they write, on their branch."""
    lake = connect(warehouse)
    read = [source.name for job in jobs for source in job.sources.values() if source.is_table]
    suffix = "" if branch in (None, "main") else f"$branch_{branch}"
    written = [f"{job.sink}{suffix}" for job in jobs]
    return Keeping(lake, [*dict.fromkeys([*written, *read])], tell)
