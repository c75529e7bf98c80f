"""Sends all commits of a warehouse as events, once or continuously.

Every commit with a lineage entry is sent at least once: the cursor moves after its event has arrived. Receivers
detect repetitions by run id. An export only reads commits and delays nothing: an unreachable server
is retried with growing pauses, and everything committed meanwhile is sent when it is back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.errors import AnabranchError, StorageError
from anabranch.lineage.commit import Commit, CommitRef
from anabranch.lineage.openlineage.events import Events, ReportedCommits, Windows, is_urgent
from anabranch.lineage.openlineage.facets import Facts, Naming
from anabranch.lineage.openlineage.transport import Cursor, Destination
from anabranch.lineage.store import CommitStore
from anabranch.runtime import Runtime

_SAVE_EVERY = 100
"""Events at most between saves of the cursor; so many are sent again after a crash."""
_AT_ONCE = 1_000
"""Commits held in memory, besides those that wait for their interval."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds between attempts."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to export, and how."""

    job_namespace: str = "anabranch"
    kafka_namespace: str = "kafka"
    throttle_millis: int = 0
    """Minimum time between events of a job; 0 for one event per commit."""
    since_millis: int | None = None
    """Send, also again, what was committed at or after this time; None to continue where the last export ended."""
    follow: bool = False
    """Go on until `stop` says so."""
    poll_seconds: float = 1.0
    patience_seconds: float = 60.0
    """How long an export that does not follow retries an unreachable server."""


@dataclass
class Exported:
    """Result of an export."""

    events: int = 0
    commits: int = 0
    """Commits reported by these events."""
    unsaid: int = 0
    """Commits of rows without a lineage entry, which are not sent."""
    refused: list[str] = field(default_factory=list)
    """Events that the server rejects, and why."""
    failure: str | None = None
    """Why not all was sent; None if it was."""


@dataclass
class Exporter:
    """One run of an export."""

    catalog: FilesystemCatalog
    commits: Callable[[], AbstractContextManager[CommitStore]]
    """Opens the store of all commits, brought up to date. Closed before anything is sent: sending may take long."""
    destination: Destination
    cursor: Cursor
    options: ExportOptions
    runtime: Runtime
    report: Callable[[str], None] = lambda _: None
    """Called with progress messages for people."""
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.done = Exported()
        self._windows = Windows(self.options.throttle_millis)
        self._unsaved = 0
        self._since = self.options.since_millis
        self._events: Events | None = None

    def run(self) -> Exported:
        """Export. What could not be sent is in the result and stays for the next run.

        Raises what reading the lineage raises, unless it follows: then it retries.
        """
        if self._since is not None:
            self.cursor.forget()
        try:
            while True:
                if not self._round() or not self.options.follow or self.stop():
                    break
                self.runtime.sleeper.sleep(self.options.poll_seconds)
            if not self.options.follow and self.done.failure is None:
                self._send_all(self._windows.rest())
        finally:
            self._save()
            self.destination.close()
        return self.done

    def _round(self) -> bool:
        """Find and send what is new. Return whether to go on."""
        while True:
            try:
                found = self._found()
            except AnabranchError as error:
                if not self.options.follow:
                    raise
                self.report(f"the lineage cannot be read, it is tried again: {error.message}")
                return True
            if not all(self._send_all(self._take(commit)) for commit in found):
                return False
            if len(found) < _AT_ONCE:
                break
        sent = self._send_all(self._windows.due(self.runtime.clock.now_millis()))
        self._save()
        return sent

    def _found(self) -> list[Commit]:
        """Return the next new commits of all branches, ordered by time."""
        with self.commits() as store:
            self._events = self._made_of(store)
            branches = list(self._new_branches(store, self._events))
            in_order = heapq.merge(*branches, key=lambda commit: (commit.time_millis, commit.ref))
            return list(islice(in_order, _AT_ONCE))

    def _made_of(self, store: CommitStore) -> Events:
        lines = {line.branch_uuid: line for line in store.lines()}
        here = self.catalog.storage.url
        elsewhere = {branch: place for branch, place in store.warehouses().items() if place != here}
        naming = Naming(here, lines, self.options.kafka_namespace, elsewhere)
        if self._events is not None and self._events.naming == naming:
            return self._events
        return Events(naming, Facts(self.catalog, lines), self.options.job_namespace)

    def _new_branches(self, store: CommitStore, events: Events) -> Iterator[Iterator[Commit]]:
        for branch, line in events.naming.lines.items():
            if branch in events.naming.elsewhere:  # an index may be shared
                continue
            reached = self.cursor.reached(branch)
            if reached is not None:
                known = store.commit(CommitRef(branch, reached.snapshot))
                if known is None or known.stamp != reached.stamp:  # its history was rewritten
                    self.cursor.forget(branch)
            begin = 0 if line.fork is None else line.fork.snapshot
            first = max(begin, self.cursor.newest_found(branch)) + 1
            yield store.commits(branch, first)

    def _take(self, commit: Commit) -> list[ReportedCommits]:
        is_old = self._since is not None and commit.time_millis < self._since
        is_of_job = commit.entry is not None and not commit.entry.is_of_no_job
        is_told = is_of_job and commit.may_bring_rows and not is_old
        self.done.unsaid += not is_of_job and commit.has_rows and not is_old
        schema_id = self.cursor.schema_id(commit.branch_uuid)
        self.cursor.found(commit, is_told=is_told)
        if not is_told:
            return []
        is_changed = schema_id is not None and schema_id != commit.schema_id
        return self._windows.add(commit, urgent=is_changed or is_urgent(commit))

    def _send_all(self, told: list[ReportedCommits]) -> bool:
        """Send events. Whether all arrived, or were rejected for good."""
        return all(self._send(one) for one in told)

    def _send(self, told: ReportedCommits) -> bool:
        assert self._events is not None, "events are told of commits that were found"
        event = self._events.event(told)
        pause, waited = _FIRST_PAUSE, 0.0
        while (failure := self.destination.send(event)) is not None:
            about = f"{told.last.entry.job if told.last.entry else ''}, snapshot {told.last.snapshot}"
            if failure.is_final:
                self.done.refused.append(f"{about}: {failure.why}")
                self.report(f"refused: {about}: {failure.why}")
                break
            if self.stop() or (not self.options.follow and waited >= self.options.patience_seconds):
                self.done.failure = failure.why
                return False
            self._save()
            self.report(f"{failure.why}; trying again in {pause:.0f} s")
            self.runtime.sleeper.sleep(pause * (0.5 + self.runtime.ids.jitter() / 2))
            waited, pause = waited + pause, min(2 * pause, _LONGEST_PAUSE)
        else:
            self.done.events += 1
            self.done.commits += len(told.commits)
        self.cursor.sent(told.commits)
        self._unsaved += 1
        if self._unsaved >= _SAVE_EVERY:
            self._save()
        return True

    def _save(self) -> None:
        self._unsaved = 0
        self.destination.settle()
        try:
            self.cursor.save()
        except StorageError as error:
            if not self.options.follow:
                raise
            self.report(f"the cursor cannot be saved, it is tried again: {error.message}")
