"""Copies of checkpoints on the driver's disk, kept in the warehouse so that state outlives the disk.

Spark writes checkpoints through Hadoop, which knows few object stores without connectors of its own. So where the
warehouse is no folder, the checkpoint lies on the driver's disk. Where a job's sources stand is in each commit anyway; what
its operators keep is copied, from time to time, to where the checkpoint would lie in the warehouse. A job that starts on
another machine goes on after its last commit, with the state of the copy and, read again, what came after it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.state.carry import copy_objects
from anabranch.jobs.state.held import KEPT_FOLDER, held_state, newest_committed, query_of
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)

_SECONDS = 10.0
"""Seconds between copies while batches run: that much is read again if the disk is lost."""


@dataclass
class StateMirror:
    """Copies the newest state of a query that keeps its checkpoint on the driver's disk."""

    checkpoint: Storage
    """Rooted at the query's checkpoint."""
    copies: Storage
    """Rooted at where the checkpoint would lie in the warehouse: each query has a folder of its own there."""
    job: str
    runtime: Runtime = SYSTEM
    has_state: bool = True
    """As of a `StateKeeper`."""
    _last: float | None = None
    _batch: int | None = None

    @property
    def copy(self) -> Storage:
        """Rooted at the copy of this query's checkpoint. The copy of a query that was lost stays until there is one.

        Raises `NotFoundError` if the checkpoint does not tell its query: somebody has removed it.
        """
        query = query_of(self.checkpoint)
        if query is None:
            raise NotFoundError(f"there is no metadata in the checkpoint at {self.checkpoint.url} any more")
        return self.copies.scoped(query)

    def look(self, *, now: bool = False) -> None:
        """Copy the state after the newest batch, if there was one since and the last copy is ten seconds old.

        Failures are logged: then more is read again if the disk is lost.

        Args:
            now: copy however old the last one is.
        """
        clock = self.runtime.clock.monotonic()
        if not now and self._last is not None and clock - self._last < _SECONDS:
            return
        self._last = clock
        try:
            batch = newest_committed(self.checkpoint)
            if batch is not None and batch != self._batch:
                self._copy(batch)
                self._batch = batch
        except (AnabranchError, OSError) as error:
            _LOG.warning("state of job '%s' could not be copied to %s: %s", self.job, self.copies.url, error)

    def _copy(self, batch: int) -> None:
        held = held_state(self.checkpoint, batch, has_state=self.has_state)
        if isinstance(held, str):
            raise NotFoundError(held)
        offsets = [f"offsets/{one}" for one in (batch - 1, batch) if one >= 0]
        *needed, commit = [*offsets, *held.paths]
        own = [info.path for info in self.checkpoint.list("anabranch/operators")]
        # What a committed batch of one query left is not written again, so what was copied needs no second look.
        there = {info.path for info in self.copy.list("state", recursive=True)}
        copy_objects(held.folder, self.copy, [path for path in needed if path not in there])
        copy_objects(self.checkpoint, self.copy, [*own, "metadata"])
        # Spark's log of commits comes last: with it the copy is whole.
        copy_objects(held.folder, self.copy, [commit])
        self._tidy({*needed, commit})

    def _tidy(self, needed: set[str]) -> None:
        """Remove what only the previous copy needed, and copies of lost queries."""
        copy = self.copy
        for folder in ("commits", "offsets", "state", "sources"):
            copy.delete_many(i.path for i in copy.list(folder, recursive=True) if i.path not in needed)
        if self._batch is None:
            for folder in list(self.copies.list_folders()):
                if folder != query_of(self.checkpoint):
                    self._retire(folder)

    def _retire(self, folder: str) -> None:
        """Remove a lost query's copy, but for what is kept of it for tags."""
        old = self.copies.scoped(folder)
        kept = any(True for _ in old.list(KEPT_FOLDER, recursive=True))
        for part in ("commits", "offsets", "state", "sources"):
            old.delete_folder(part)
        if not kept:
            self.copies.delete_folder(folder)
