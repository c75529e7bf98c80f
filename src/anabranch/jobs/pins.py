"""Keeps what a supervised job has not read from expiring: a consumer of each table that it reads, ``job-<job>``.

It is stored before the first batch, follows the job's committed positions and is never read: where the job goes on says its checkpoint. It stays when
the job is stopped, for however long; `anabranch consumers` lists it, and deletes it once the job is gone for good. A source that
has a consumer of its own (`consumer-id`) keeps that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError
from anabranch.format.records.refs import Consumer
from anabranch.jobs.job import Job
from anabranch.kernel.log.consumers import find_consumer, forget_consumer, record_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.options import CONSUMER_ID
from anabranch.runtime import SYSTEM, Runtime
from anabranch.streaming.consumers import FollowingConsumer
from anabranch.streaming.offsets import Offset, is_offset

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table

_LOG = logging.getLogger(__name__)
_PREFIX = "job-"
_SECONDS = 10.0


def positions_of(sources: Sequence[Any]) -> tuple[Offset, ...]:
    """Return the positions in tables of ours, one a table and branch, that the sources of a batch have all reached."""
    found: dict[tuple[str, str], Offset] = {}
    for source in sources:
        end = source.get("endOffset") if isinstance(source, Mapping) else getattr(source, "endOffset", None)
        try:
            value = json.loads(end) if isinstance(end, str) else end
            offset = Offset.from_dict(value) if is_offset(value) else None
        except (ValueError, AnabranchError):
            continue
        if offset is None:
            continue
        key = offset.table_uuid, offset.branch_uuid
        if key not in found or _place(offset) < _place(found[key]):
            found[key] = offset
    return tuple(found.values())


def _place(offset: Offset) -> tuple[int, bool, int]:
    position = offset.position
    return position.snapshot, position.files is None, position.files or 0


class SourcePins:
    """The consumers of one job."""

    def __init__(self, job: Job, lake: Lake, runtime: Runtime = SYSTEM) -> None:
        """Prepare; nothing is stored yet."""
        self._name = f"{_PREFIX}{job.name}"
        self._lake = lake
        self._runtime = runtime
        self._due = 0.0
        self._tables = [
            source.name
            for source in job.sources.values()
            if source.kind == "table" and CONSUMER_ID.key not in source.options
        ]
        self._consumers: dict[tuple[str, str], FollowingConsumer | None] = {}
        self._before: list[tuple[TableContext, Consumer | None]] = []
        """By branch: the consumer that was there before the job began anew."""

    def begin(self, *, anew: bool = False) -> None:
        """Hold all that is there, before the job's first batch: while that runs, nothing says yet how far it has come.

        A consumer that there is stays where it is, unless the job begins `anew`, without a checkpoint: it may read once more
        what its state was made of. Troubles are left to `reached`.
        """
        for name in self._tables:
            try:
                table = self._lake.table(name)
                context = table.context
                if CONSUMER_ID.key in table.options:
                    continue
                before = find_consumer(context, self._name)
                if not anew and before is not None:
                    continue
                if anew:
                    self._before.append((context, before))
                record_consumer(context, self._name, Consumer(context.snapshots.earliest_id() or 1))
            except AnabranchError as error:
                _LOG.debug("what '%s' has not read of '%s' is not held: %s", self._name, name, error)

    def withdraw(self) -> None:
        """Undo `begin` of a job that was to begin anew and was refused: it has read nothing, and perhaps never will.

        Troubles are only logged: what is held for too long `health` tells.
        """
        for context, before in self._before:
            try:
                if before is None:
                    forget_consumer(context, self._name)
                else:
                    record_consumer(context, self._name, before)
            except AnabranchError as error:
                _LOG.debug("consumer '%s' of '%s' stays: %s", self._name, context.title, error)
        self._before.clear()

    def reached(self, positions: Sequence[Offset], *, now: bool = False) -> None:
        """Note how far the job has come in its sources: stored at most every ten seconds, and `now`.

        Troubles are left to the next call.
        """
        clock = self._runtime.clock
        if not now and clock.monotonic() < self._due:
            return
        self._due = clock.monotonic() + _SECONDS
        for offset in positions:
            key = offset.table_uuid, offset.branch_uuid
            try:
                table = self._table(offset)
                if table is None:
                    continue
                if key not in self._consumers:
                    options = dict(table.options)
                    is_named = CONSUMER_ID.key in options
                    self._consumers[key] = (
                        None if is_named else FollowingConsumer(table.context, self._name, options)
                    )
                consumer = self._consumers[key]
                if consumer is not None:
                    consumer.reached(table.context, offset.position)
            except AnabranchError as error:
                _LOG.debug("what '%s' has not read of '%s' is not held: %s", self._name, offset.name, error)

    def _table(self, offset: Offset) -> Table | None:
        """Return the table of a position, if it is on what is main now: an old main is kept in other ways."""
        for name in self._tables:
            table = self._lake.table(name)
            if (table.table_uuid, table.branch_uuid) == (offset.table_uuid, offset.branch_uuid):
                return table
        return None
