"""Resumes a job whose checkpoint is missing: after its last commit, which records how far it had read.

Without this a job that lost its checkpoint would read its sources from the beginning, and write every row again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.jobs.job import Job
from anabranch.jobs.positions import content_of, known_positions
from anabranch.jobs.starts import Starts, starts_at
from anabranch.lineage.model import entry_or_none
from anabranch.table import Table

if TYPE_CHECKING:
    from anabranch.lake import Lake


def resumed(job: Job, lake: Lake, sink: Table, place: str, *, since_fork: bool) -> Starts | None:
    """Return where a job continues after its last commit to a table; None if it has made none, or its work was emptied.

    Args:
        job: the job.
        lake: its warehouse.
        sink: the branch that it writes to.
        place: where its checkpoint would be.
        since_fork: count only commits made on this branch, not those it begins with.

    Raises `InvalidInputError`: it has written to the table, but it is not certain how far it had read its sources.
    """
    head = sink.snapshot
    last = None if head is None else _last_commit(job.name, sink, head, since_fork=since_fork)
    if head is None or last is None:
        return None
    tables = {
        name: lake.table(source.name).table_uuid for name, source in job.sources.items() if source.is_table
    }
    try:
        known = known_positions(sink.context, head, job.name, lambda: sink.lineage.positions(head.id))
        starts = starts_at(known, job.sources, tables)
    except AnabranchError as error:
        raise InvalidInputError(
            f"job '{job.name}' has written to '{sink.name}' before, up to snapshot {last}, but there is no checkpoint at "
            f"{place}, and it cannot go on after that commit: {error.message}",
            hint="restore the checkpoint, or name it with --checkpoint. To read the sources as they are declared all the "
            f"same, so that rows come a second time: --start-anew {job.name}.",
        ) from error
    notice = f"there is no checkpoint at {place}: the job goes on after its last commit, snapshot {last}"
    return replace(starts, notices=(*starts.notices, notice))


def _last_commit(job: str, sink: Table, head: Snapshot, *, since_fork: bool) -> int | None:
    """Return the newest snapshot that the job made; None if it made none, or the table was emptied since."""
    fork = sink.context.fork
    first = fork.snapshot.id + 1 if since_fork and fork is not None else 1
    oldest = head.id + 1
    for snapshot in takewhile(lambda one: one.id >= first, content_of(sink.context, head)):
        entry = entry_or_none(snapshot)
        if entry is not None and entry.job == job and not entry.is_of_no_job:
            return snapshot.id
        if snapshot.commit_kind is CommitKind.OVERWRITE and snapshot.total_record_count == 0:
            return None
        oldest = snapshot.id
    if oldest <= first or since_fork:
        return None
    # Its commits may have expired: lineage remembers them.
    known = [one for one in sink.lineage.positions(head.id) if one.job == job]
    return oldest - 1 if known else None
