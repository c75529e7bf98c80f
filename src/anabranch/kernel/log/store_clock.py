"""Time that does not depend on a single machine's clock: when files may be removed, when snapshots were committed.

The age of a file is the time on the store's clock since it was stored. The clock of the machine that cleans up may be
days ahead; taking ages from it would remove what was written a moment ago. So before anything is removed by its age,
the store is asked for its time: a small file is put, and its modification time read.

A snapshot says when it was committed by the clock of the machine that made it. One that says a time still to come was
made by a clock that was ahead; when it was really made, its file's modification time tells.
"""

from __future__ import annotations

from contextlib import suppress

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.layout import MANIFEST_FOLDER
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.storage.names import temporary_name

SKEW_MILLIS = 60_000
"""How far the clocks of machines that are in order may be apart."""


def removal_time(context: TableContext) -> int:
    """The time from which ages count back when something is to be removed, in epoch milliseconds.

    It is the earlier of this machine's time and the store's, so whichever clock is wrong, nothing is taken for older
    than it is. Costs three calls; ask only when this machine's clock says that something is due.

    A store to which nothing can be written, such as a full disk, does not tell its time. Then it is at least as late
    as its newest snapshot was stored, and that time is taken.
    """
    machine = context.runtime.clock.now_millis()
    stored = _time_of_put(context)
    if stored is None:
        infos = context.storage.list(context.layout.snapshot_folder)
        stored = max((info.modified_millis for info in infos), default=machine)
    return min(machine, stored)


def commit_time(context: TableContext, snapshot: Snapshot) -> int:
    """When a snapshot was committed, in epoch milliseconds: as it says, unless that is still to come.

    Costs a call only for those that say so.
    """
    now = context.runtime.clock.now_millis()
    if not is_ahead(snapshot, now):
        return snapshot.time_millis
    try:
        stored = context.storage.info(context.layout.snapshot_path(snapshot.id)).modified_millis
    except NotFoundError:  # it has expired, and a tag or savepoint has its content
        stored = now
    return min(snapshot.time_millis, stored)


def is_ahead(snapshot: Snapshot, now: int) -> bool:
    """Whether a snapshot says that it was committed at a time that is still to come."""
    return snapshot.time_millis > now + SKEW_MILLIS


def _time_of_put(context: TableContext) -> int | None:
    """The store's time, or None if it cannot be had."""
    # Beside manifests: one that a killed process leaves is found there by the cleaning of orphans.
    path = f"{MANIFEST_FOLDER}/{temporary_name('clock', context.runtime.ids.uuid())}"
    try:
        context.storage.put(path, b"", durable=False)
        return context.storage.info(path).modified_millis
    except AnabranchError:
        return None
    finally:
        with suppress(AnabranchError):
            context.storage.delete(path)
