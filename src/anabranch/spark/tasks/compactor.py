"""Compaction of a table while a query writes to it: coordinator and committer here, workers in Spark tasks."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.arrow.splitting import BucketKey, Splitter
from anabranch.arrow.writer import WriteContext
from anabranch.errors import AnabranchError
from anabranch.kernel.commit.commit_message import CompactionTask
from anabranch.kernel.compaction.coordinator import Coordinator, TaskEnd
from anabranch.kernel.log.context import TableContext
from anabranch.lazy import lazy
from anabranch.maintenance.expire import expire_after_commit
from anabranch.maintenance.rewrites import carry_out, waves, write_context
from anabranch.options import WRITE_ONLY
from anabranch.runtime import RandomIds, Runtime
from anabranch.spark.context.notices import Notice
from anabranch.spark.context.running import is_running, slots_of
from anabranch.spark.tasks.engine import SparkEngine
from anabranch.spark.tasks.task_engine import SparkJobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL: Final = "anabranch-compaction"
"""Scheduler pool of the workers."""

DESCRIPTION: Final = {"compaction": "continuous"}
"""Snapshot properties that describe how the snapshots were made."""

Chore = Callable[[TableContext, Mapping[str, str]], object]
CHORES: Final[Mapping[str, Chore]] = {"expiry of snapshots": expire_after_commit}
"""Other chores of a writing job, as functions of the branch and its effective options."""

_LOG = logging.getLogger(__name__)
_WAVE_TASKS = 64
"""Number of tasks per slot that are executed and committed together."""
_LONGEST_REST_SECONDS = 600.0
_DYING_SECONDS = 5.0
"""Seconds that tasks of a cancelled job may still run."""


class Compactor(threading.Thread):
    """Thread that compacts one branch of one table while one run of a query writes to it."""

    def __init__(self, spark: SparkSession, notice: Notice, run_id: str) -> None:
        super().__init__(name=f"anabranch-compaction-of-{notice.context.title}", daemon=True)
        self.spark = spark
        self.query = notice.query
        self.run_id = run_id
        self._context = notice.context
        self._options = dict(notice.options)
        self._tag = f"anabranch-compaction-{notice.context.runtime.ids.uuid()}"
        self._coordinator = Coordinator(self._context, self._options)
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._hurried = threading.Event()
        self._failures = Counter[str]()
        self._resting: dict[str, float] = {}
        """Times until which failed duties are not retried."""
        self._reported: set[str] = set()

    def wake(self) -> None:
        """Wake the thread, because there is a new snapshot."""
        self._woken.set()

    def end(self, *, hurry: bool = False) -> None:
        """Ask the thread to end soon. To be repeated until it has ended, as a job may begin in between.

        Args:
            hurry: do not wait for tasks that are being cancelled.
        """
        self._ended.set()
        self._woken.set()
        if hurry:
            self._hurried.set()
        with suppress(Exception):  # with the session, its jobs have ended too
            SparkEngine(self.spark, tag=self._tag).cancel()

    def run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            if self._ended.is_set():
                return
            self._do("compaction", self._compact)
            for name, chore in CHORES.items():
                self._do(name, partial(self._do_chore, chore))

    def _do(self, name: str, duty: Callable[[], None]) -> None:
        """Do a duty if it is due. Its failure stops neither the stream nor the other duties."""
        now = self._context.runtime.clock.monotonic()
        if self._ended.is_set() or now < self._resting.get(name, now):
            return
        try:
            duty()
            self._failures.pop(name, None)
        except Exception as error:  # the compaction of a stream's table must not end on a surprise
            if not self._ended.is_set() and is_running(self.spark):
                self._failures[name] += 1
                self._resting[name] = now + min(2.0 ** self._failures[name], _LONGEST_REST_SECONDS)
                self._report(name, error)

    def _compact(self) -> None:
        if WRITE_ONLY.of(self._all_options()):
            return
        self._coordinator.observe()
        tasks = self._coordinator.tasks(_WAVE_TASKS * self._slots)
        if tasks:
            self._carry_out(tasks)
            self.wake()  # there may be more

    def _do_chore(self, chore: Chore) -> None:
        options = self._all_options()
        if not WRITE_ONLY.of(options):
            chore(self._context, options)

    def _all_options(self) -> dict[str, str]:
        schema = self._context.schemas.latest()
        return {**(schema.options if schema is not None else {}), **self._options}

    def _carry_out(self, tasks: Sequence[CompactionTask]) -> None:
        left = list(tasks)
        try:
            for wave in waves(tasks):
                self._carry_out_job(wave)
                del left[: len(wave)]
        except BaseException:
            for task in left:
                self._coordinator.done(task, TaskEnd.FAILED)
            raise

    def _carry_out_job(self, tasks: Sequence[CompactionTask]) -> None:
        """Execute tasks as one Spark job, under its own mark: files of an earlier job may be committed by now."""
        mark = self._context.runtime.ids.uuid()[: len("00000000-0000-0000")]
        context = replace(self._context, runtime=Runtime(ids=MarkedIds(mark)))
        engine = SparkEngine(self.spark, self._slots, POOL, self._tag)
        try:
            outcome = carry_out(context, self._options, tasks, engine=engine, description=DESCRIPTION)
        except SparkJobError:
            self._hurried.wait(_DYING_SECONDS)
            remove_marked(mark, tasks, write_context(context, self._options, engine))
            raise
        for rewritten in outcome.committed:
            self._coordinator.done(rewritten.task, TaskEnd.COMMITTED)
        for task in outcome.given_up:
            self._coordinator.done(task, TaskEnd.GIVEN_UP)

    @lazy
    def _slots(self) -> int:
        return max(slots_of(self.spark) // 2, 1)

    def _report(self, name: str, error: Exception) -> None:
        # Log once: the obstacle will still be there at the next batch.
        level = logging.DEBUG if name in self._reported else logging.WARNING
        self._reported.add(name)
        _LOG.log(
            level,
            "%s of '%s' failed beside the query %s that writes to it, which goes on; it is tried again, at growing "
            "intervals. If it stays so, write with the option 'write-only' and have a job of its own do it, with "
            "'anabranch maintain'. The reason: %s",
            name,
            self._context.title,
            self.query,
            error,
            exc_info=None if isinstance(error, AnabranchError) else error,
        )


@dataclass(frozen=True)
class MarkedIds(RandomIds):
    """Random names with a common prefix, by which files can be found that no other record names."""

    mark: str

    def uuid(self) -> str:
        return self.mark + super().uuid()[len(self.mark) :]


def remove_marked(mark: str, tasks: Sequence[CompactionTask], writing: WriteContext) -> None:
    """Remove the files of a failed job for these tasks, found by their mark, as far as the store allows.

    Only for a job that gave back no result: then nothing of it is, or will be, committed.
    """
    splitter = Splitter(writing.schema, writing.all_options)
    for folder in {splitter.folder(BucketKey(task.partition, task.bucket)) for task in tasks}:
        with suppress(AnabranchError):
            files = writing.storage.list(folder, include_temporary=True)
            writing.storage.delete_many([file.path for file in files if f"data-{mark}" in file.path])
