"""Background compaction in the process that started the streams, beside their batches.

One thread of the process, the `Watcher`, looks into the folder of notices (`anabranch.spark.context.notices`). For every
query that writes to a table it runs a `Compactor` in a thread of its own: coordinator and committer of the
compaction are there, its workers are Spark tasks, at most half of those that run side by side. The batches of
the query never wait for any of them. A compactor ends with the run of its query: its Spark job is cancelled, and
what was written but not committed is removed. If the process dies, such files are left to orphan cleaning.

The watcher also ends the queries whose sources have come to their bound: see `anabranch.spark.streams.bounded`.

The watcher looks rather than listens: a listener of streaming queries hears of them through sockets, which break
in ways of their own, and a look into a folder once a second costs nothing.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from anabranch.spark.context.notices import BoundReached, Notice, make_folder, take
from anabranch.spark.context.running import is_running
from anabranch.spark.lineage.checkpoint import describe, described
from anabranch.spark.streams.bounded import Ends
from anabranch.spark.tasks.compactor import Compactor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
"""Seconds to wait for compactors when the process or its last session ends."""


def watch(spark: SparkSession) -> Path | None:
    """Start compacting for the streams of this session, and stopping those that reach their bound.

    Returns:
        The folder for their notices; None if none can be made, and nothing is compacted or ended.
    """
    with _LOCK:
        for watcher in _WATCHERS:
            if watcher.adopt(spark):
                return watcher.folder
        try:
            folder = make_folder()
        except OSError as error:
            _LOG.warning(
                "streams of this session are neither compacted nor ended at their bound: no temporary folder "
                "can be made: %s",
                error,
            )
            return None
        watcher = Watcher(spark, folder)
        _WATCHERS[:] = [watcher]
        watcher.start()
        return folder


_LOCK = threading.Lock()
_WATCHERS: list[Watcher] = []
"""The watcher of this process, if there is one."""


class Watcher(threading.Thread):
    """Thread that starts and ends the compactors of all sessions of this process, and ends bounded queries."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(name="anabranch-compaction", daemon=True)
        self.folder = folder
        # Hold sessions weakly, so that we do not keep unused ones alive.
        self._sessions = WeakSet([spark])
        self._adopting = threading.Lock()
        self._compactors: dict[tuple[str, str, str | None], Compactor] = {}
        self._ending: list[Compactor] = []
        self._ends = Ends()
        self._described: set[str] = set()
        """Queries whose source names are already in their checkpoints."""
        self._closed = threading.Event()
        atexit.register(self.close)

    def adopt(self, spark: SparkSession) -> bool:
        """Watch this session too; return False if this watcher has ended."""
        with self._adopting:
            if not self._closed.is_set():
                self._sessions.add(spark)
            return not self._closed.is_set()

    def run(self) -> None:
        level = logging.WARNING
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # the next look may go better; the streams go on in any case
                _LOG.log(level, "it cannot be seen what the streams of this process do", exc_info=error)
                level = logging.DEBUG  # once is enough
            with self._adopting:
                if not any(map(is_running, self._sessions)):
                    self._closed.set()
        self._end(list(self._compactors), hurry=True)
        for compactor in self._ending:
            compactor.join(_PATIENCE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def close(self) -> None:
        """End all compactors, and remove the folder."""
        self._closed.set()
        self.join(2 * _PATIENCE_SECONDS)

    def _look(self) -> None:
        notices = self._notices()
        self._ending = [compactor for compactor in self._ending if compactor.is_alive()]
        if not (notices or self._compactors or self._ending or self._ends):
            return
        runs = self._runs()
        self._end([key for key, c in self._compactors.items() if (c.query, c.run_id) not in runs])
        for notice in notices:
            if isinstance(notice, BoundReached):
                self._ends.expect()
            else:
                self._wake(notice, runs)
                self._describe(notice, runs)
        self._ends.look({run: query for run, (_, query) in runs.items()})

    def _notices(self) -> list[Notice | BoundReached]:
        try:
            return take(self.folder)
        except FileNotFoundError:  # somebody cleaned up temporary folders
            self.folder.mkdir(mode=0o700)
            return []

    def _runs(self) -> dict[tuple[str, str], tuple[SparkSession, StreamingQuery]]:
        """Return all active runs of queries, by the ids of query and run."""
        with self._adopting:
            sessions = [spark for spark in self._sessions if is_running(spark)]
        runs: dict[tuple[str, str], tuple[SparkSession, StreamingQuery]] = {}
        for spark in sessions:
            with suppress(Exception):  # of a session that gives no answer there is nothing to compact
                runs |= {(str(query.id), str(query.runId)): (spark, query) for query in spark.streams.active}
        return runs

    def _wake(
        self, notice: Notice, runs: Mapping[tuple[str, str], tuple[SparkSession, StreamingQuery]]
    ) -> None:
        if notice.key not in self._compactors:
            run = next((run for run in runs if run[0] == notice.query), None)
            if run is None:
                return  # it has ended since
            compactor = self._compactors[notice.key] = Compactor(runs[run][0], notice, run[1])
            compactor.start()
        self._compactors[notice.key].wake()

    def _describe(
        self, notice: Notice, runs: Mapping[tuple[str, str], tuple[SparkSession, StreamingQuery]]
    ) -> None:
        """Record the names of the query's sources in its checkpoint, once they are known."""
        if notice.checkpoint is None or notice.query in self._described:
            return
        query = next((query for (known, _), (_, query) in runs.items() if known == notice.query), None)
        with suppress(
            Exception
        ):  # of a query that has just ended, or of the store: the next batch tells again
            names = described(query.lastProgress) if query is not None else []
            if names:
                describe(notice.checkpoint, names)
                self._described.add(notice.query)

    def _end(self, keys: Iterable[tuple[str, str, str | None]], *, hurry: bool = False) -> None:
        self._ending += [self._compactors.pop(key) for key in keys]
        for compactor in self._ending:
            compactor.end(hurry=hurry)
