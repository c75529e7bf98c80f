"""Time that does not depend on one machine's clock: for removal by age, and for commit times.

The age of a file is the time on the store's clock since it was stored. The clock of the cleaning machine may be
days ahead; ages from it would remove files written a moment ago. So before anything is removed by its age,
a small file is put and its modification time read as the store's time.

A snapshot's commit time is from the clock of the machine that made it. If it lies in the future, that clock
was ahead; then the modification time of its file tells when it was really made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.layout import MANIFEST_FOLDER
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import afterwards
from anabranch.storage.names import temporary_name

DAY_MILLIS = 24 * 3_600_000
SKEW_MILLIS = 60_000
"""Most that the clocks of healthy machines may differ."""


def removal_time(context: TableContext, *, lists_files: bool = False) -> int:
    """Return the time to compute ages from when removing something, in epoch milliseconds.

    It is the earlier of this machine's time and the store's, so that a wrong clock on either side never makes
    anything look older. Costs three calls; ask only when this machine's clock says that something is due.

    A store that cannot be written to, such as a full disk, does not tell its time. Then the time at which its newest
    snapshot was stored is taken as a lower bound.

    Args:
        lists_files: the caller lists files of the table next, so the small file must be gone; else nobody waits for that.
    """
    machine = context.runtime.clock.now_millis()
    stored = _time_of_put(context, is_waited_for=lists_files)
    if stored is None:
        infos = context.storage.list(context.layout.snapshot_folder)
        stored = max((info.modified_millis for info in infos), default=machine)
    return min(machine, stored)


def day_old(context: TableContext, stored: Mapping[str, int]) -> list[str]:
    """Return the files of killed operations, by name: those stored more than a day ago. No operation takes as long.

    Args:
        stored: when each file was stored, by name. Costs nothing if there are none.
    """
    now = removal_time(context) if stored else 0
    return sorted(name for name, made in stored.items() if now - made > DAY_MILLIS)


def commit_time(context: TableContext, snapshot: Snapshot) -> int:
    """Return a snapshot's commit time, in epoch milliseconds: as recorded, unless that is in the future.

    Costs a call only in that case.
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
    """Whether a snapshot's recorded commit time is in the future."""
    return snapshot.time_millis > now + SKEW_MILLIS


def _time_of_put(context: TableContext, *, is_waited_for: bool) -> int | None:
    """Return the store's time, or None if it cannot be had."""
    # Beside manifests: there the cleaning of orphans finds one left by a killed process.
    path = f"{MANIFEST_FOLDER}/{temporary_name('clock', context.runtime.ids.uuid())}"
    try:
        context.storage.put(path, b"", durable=False)
        return context.storage.info(path).modified_millis
    except AnabranchError:
        return None
    finally:
        if is_waited_for:
            _remove(context, path)
        else:
            afterwards(partial(_remove, context, path), at=context.storage)


def _remove(context: TableContext, path: str) -> None:
    with suppress(AnabranchError):
        context.storage.delete(path)
