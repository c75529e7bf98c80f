"""The destructive rollbacks of a table, on any branch; see `anabranch.format.records.rewind`."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.format.records.rewind import REWIND_PREFIX, RemovedSnapshot, Rewind
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext

_WEIGHT_OF_ONE = 128
"""Approximate bytes of a removed snapshot in the cache."""


def record_rewind(context: TableContext, target: Snapshot, head: Snapshot) -> None:
    """Record which snapshots of a branch are about to be removed, or had expired. Idempotent.

    Args:
        context: the branch.
        target: the newest snapshot that stays.
        head: the newest that goes.
    """
    known = rewinds(context)
    gone = tuple(
        RemovedSnapshot(s.id, s.stamp, s.time_millis) for s in back_from(context, head, above=target.id)
    )
    made = max(context.runtime.clock.now_millis(), *(s.time_millis for s in gone))
    number = len(known) + 1
    while True:
        rewind = Rewind(number, context.branch_uuid, target.id, gone, made)
        if context.storage.put_if_absent(_path(context, number), rewind.to_json()):
            return
        number += 1


def rewinds(context: TableContext) -> list[Rewind]:
    """Return all destructive rollbacks, oldest first; one read if there are none. Raises `CorruptTableError`."""
    found: list[Rewind] = []
    while (rewind := _find(context, len(found) + 1)) is not None:
        found.append(rewind)
    return found


def _find(context: TableContext, number: int) -> Rewind | None:
    path = _path(context, number)
    key = (context.table_uuid, context.storage.url, path)
    known: Rewind | None = context.cache.get(key)
    if known is not None:
        return known
    try:
        data = context.storage.get(path)
    except NotFoundError:
        return None
    rewind = Rewind.from_json(data, number=number, path=path)
    context.cache.put(key, rewind, _WEIGHT_OF_ONE * (1 + len(rewind.removed)))
    return rewind


def _path(context: TableContext, number: int) -> str:
    return context.layout.branches_file_path(f"{REWIND_PREFIX}{number}")
