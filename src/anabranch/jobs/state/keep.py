"""Keeps state for as long as a job may begin with it: for each tag, savepoint and branch of the job's table.

Spark removes the state of old batches (``spark.sql.streaming.minBatchesToRetain``, by default all but the last 100). What
belongs to a tag is put aside in the checkpoint, in ``anabranch/kept/<batch>``; on a local disk as links, which take room
only once Spark has removed its own. Savepoints and branches hold their snapshots by tags, so tags are all there is to see.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.refs import Tag
from anabranch.jobs.state.carry import copy_objects
from anabranch.jobs.state.held import KEPT_FOLDER, held_state, query_of
from anabranch.jobs.state.mirror import StateMirror
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.tag_log import all_tags
from anabranch.kernel.provenance.job_states import JobState, KeptState, record_job_state
from anabranch.lineage.model import entry_or_none
from anabranch.options import JOB_STATE_RETAINED
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)

_SECONDS = 2.0
"""Seconds between looks: in that time no query does the hundred batches after which Spark removes state."""
_FURTHEST = 10_000
"""Most snapshots searched for the last commit of the job before a tag."""


@dataclass
class StateKeeper:
    """Keeps the state of one query for the tags of the table it writes to."""

    checkpoint: Storage
    """Rooted at the query's checkpoint."""
    table: TableContext
    """The branch that it writes to."""
    job: str
    location: str
    """Path or URL of the checkpoint."""
    mirror: StateMirror | None = None
    """Copies the checkpoint to the warehouse, if it lies on the driver's disk; what tags need is put aside there too."""
    runtime: Runtime = SYSTEM
    has_state: bool = True
    """Whether it has operators with state; otherwise the logs of its batches are kept, for the files that it has read."""
    _last: float | None = None
    _batches: dict[str, int | None] = field(default_factory=dict)
    """By stamp of a tag's snapshot: the query's last batch in it, or None."""
    _told: JobState | None = None

    @property
    def _kept(self) -> Storage:
        return self.checkpoint if self.mirror is None else self.mirror.copy

    def look(self, *, now: bool = False) -> None:
        """Put aside what tags need that were made since, and remove what no tag needs; not more than every two seconds.

        Failures are logged: then a correction rebuilds the state, or is refused.

        Args:
            now: look, and copy the state, however short ago that was done.
        """
        clock = self.runtime.clock.monotonic()
        if not now and self._last is not None and clock - self._last < _SECONDS:
            return
        self._last = clock
        if self.mirror is not None:
            self.mirror.look(now=now)
        try:
            self._look()
        except (AnabranchError, OSError) as error:
            _LOG.warning("state of job '%s' could not be kept for its tags: %s", self.job, error)

    def _look(self) -> None:
        query = query_of(self.checkpoint)
        if query is None:
            return
        tags = all_tags(self.table)
        wanted: dict[int, list[str]] = {}
        for tag in self._retained(tags):
            batch = self._batch(tag, query)
            if batch is not None:
                wanted.setdefault(batch, []).append(tag.name)
        there = {kept.batch for kept in kept_states(self._kept)}
        for batch in sorted(wanted.keys() - there):
            self._keep(batch)
        for batch in there - wanted.keys():
            self._kept.delete_folder(f"{KEPT_FOLDER}/{batch}")
        self._tell(wanted)

    def _tell(self, wanted: Mapping[int, Sequence[str]]) -> None:
        """Record in the table what is kept, and for which tags, if that has changed."""
        kept = kept_states(self._kept) if wanted else []
        known = tuple(replace(one, tags=tuple(sorted(wanted.get(one.batch, ())))) for one in kept)
        state = JobState(self.job, self.location, known)
        if state != self._told:
            record_job_state(self.table, state)
            self._told = state

    def _retained(self, tags: list[Tag]) -> Iterator[Tag]:
        schema = self.table.schemas.latest()
        longest = None if schema is None else JOB_STATE_RETAINED.of(schema.options)
        now = self.runtime.clock.now_millis()
        for tag in tags:
            if longest is None or now - tag.snapshot.time_millis <= longest:
                yield tag

    def _batch(self, tag: Tag, query: str) -> int | None:
        stamp = tag.snapshot.stamp
        if stamp not in self._batches:
            self._batches[stamp] = self._last_batch(tag, query)
        return self._batches[stamp]

    def _last_batch(self, tag: Tag, query: str) -> int | None:
        """Return the query's last batch in a tag; None if the job's last commit there is from another query."""
        for snapshot in islice(self.table.snapshots.backwards(tag.snapshot), _FURTHEST):
            entry = entry_or_none(snapshot)
            if entry is not None and entry.job == self.job and entry.engine.batch is not None:
                return entry.engine.batch if entry.engine.query == query else None
        return None

    def _keep(self, batch: int) -> None:
        held = held_state(self.checkpoint, batch, has_state=self.has_state)
        if isinstance(held, str):
            _LOG.info("state of job '%s' after batch %d is not kept: %s", self.job, batch, held)
            return
        offsets = [f"offsets/{one}" for one in (batch - 1, batch) if one >= 0]
        target = self._kept.scoped(f"{KEPT_FOLDER}/{batch}")
        try:
            # The log of commits comes last: with it the copy is whole.
            copy_objects(held.folder, target, [*offsets, *held.paths])
        except NotFoundError:
            self._kept.delete_folder(f"{KEPT_FOLDER}/{batch}")
            raise


def kept_states(checkpoint: Storage) -> list[KeptState]:
    """Return the state kept in a checkpoint besides the query's working state."""
    found = []
    for folder in checkpoint.list_folders(KEPT_FOLDER):
        batch = folder.rpartition("/")[2]
        files = list(checkpoint.list(folder, recursive=True))
        if batch.isdigit() and any(one.path.endswith(f"/commits/{batch}") for one in files):
            found.append(KeptState(int(batch), len(files), sum(one.size for one in files)))
    return sorted(found, key=lambda one: one.batch)
