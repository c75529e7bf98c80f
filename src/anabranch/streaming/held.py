"""Snapshots that a stream is reading although their own files have expired.

A stream that begins with all rows of a tag or savepoint, or with what its snapshot added, may be half way through
them when it is restarted. The position names the snapshot by id and stamp; here it is found again.
"""

from __future__ import annotations

from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.savepoint_log import readable_snapshot, savepoints
from anabranch.kernel.log.tag_log import find_tags, tag_names
from anabranch.streaming.offsets import Position


def held_snapshot(context: TableContext, position: Position) -> Snapshot | None:
    """Return the snapshot of a position from a tag or savepoint of the branch, or None if none holds it.

    Reads all tags and savepoints, so look into the snapshot log first.
    """
    for tag in find_tags(context, tag_names(context)):  # among them those that savepoints are pinned by
        if _is_of(position, tag.snapshot):
            return tag.snapshot
    for savepoint in savepoints(context):
        if savepoint.saved_snapshot_id == position.snapshot:
            found = readable_snapshot(context, savepoint)
            if _is_of(position, found):
                return found
    return None


def _is_of(position: Position, snapshot: Snapshot) -> bool:
    return (snapshot.id, snapshot.stamp) == (position.snapshot, position.stamp)
