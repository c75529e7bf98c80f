"""Removing an object only if it still has the expected content."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.storage.protocol import Storage


def delete_exactly(storage: Storage, path: str, content: bytes) -> bool:
    """Remove an object if it still has this content; False if it is gone or was changed.

    Stores have no conditional delete, so this reads before it removes. The caller makes sure that the name is not
    reused in between, or that nothing is lost if it is.
    """
    try:
        found = storage.get(path)
    except NotFoundError:
        return False
    if found != content:
        return False
    storage.delete(path)
    return True


def delete_snapshot(context: TableContext, snapshot: Snapshot) -> bool:
    """Remove a snapshot's file if it still holds this snapshot; False if it is gone or holds another."""
    if context.snapshots.still(snapshot) is None:
        return False
    context.storage.delete(context.layout.snapshot_path(snapshot.id))
    return True
