"""Removing what was looked at, and not what took its name meanwhile."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.storage.protocol import Storage


def delete_exactly(storage: Storage, path: str, content: bytes) -> bool:
    """Remove an object if it still has this content; False if it is gone or another one.

    Stores have no removal by content, so this looks right before it removes. Whoever uses it makes sure that a name
    is not given to something else in that moment, or that nothing is lost if it is.
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
    """Remove a snapshot's file if it still is this snapshot's; False if it is gone or of another one."""
    if context.snapshots.still(snapshot) is None:
        return False
    context.storage.delete(context.layout.snapshot_path(snapshot.id))
    return True
