"""Whether a snapshot that was just put is part of history, or fell into a place that history has left.

Put-if-absent protects a number only while its file exists. If snapshots n-1 and n were expired or rolled
away while a writer was paused, its put of n succeeds although readers will never come to it.
"""

from __future__ import annotations

from anabranch.errors import CommitOutcomeUnknownError
from anabranch.kernel.context import PARENT_PROPERTY, TableContext
from anabranch.spec.snapshot import Snapshot


def took_hold(context: TableContext, snapshot: Snapshot, built_on: Snapshot) -> bool:
    """True if the snapshot is in the current history; if not, it is removed and False returned.

    Raises `CommitOutcomeUnknownError` where the snapshots after it do not tell.
    """
    predecessor = context.snapshots.find(built_on.id)
    if predecessor is not None and predecessor.stamp == built_on.stamp:
        return True
    ids = context.snapshots.ids()
    newest = ids[-1] if ids else 0
    if newest == snapshot.id:
        # Nothing came after it. Alone, it is what an expiry left over; above a gap, history was rolled back.
        in_history = len(ids) == 1
    else:
        in_history = snapshot.id + 1 in ids and _is_built_on(context, snapshot)
    if not in_history:
        context.storage.delete(context.layout.snapshot_path(snapshot.id))
    return in_history


def _is_built_on(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the snapshot that follows in number was made on top of this one."""
    following = context.snapshots.get(snapshot.id + 1)
    parent = following.properties.get(PARENT_PROPERTY)
    if parent is not None:
        return parent == snapshot.stamp
    ours = {meta.file_name for meta in context.manifests.read_list(snapshot.delta_manifest_list)}
    theirs = {meta.file_name for meta in context.manifests.read_list(following.base_manifest_list)}
    if ours and ours <= theirs:
        return True
    raise CommitOutcomeUnknownError(
        f"snapshot {snapshot.id} of '{context.title}' was stored, but the snapshots around it were removed "
        "meanwhile and the one after it does not tell what it was built on",
        hint=f"compare the rows of commit user {snapshot.commit_user} with the table before writing again.",
    )
