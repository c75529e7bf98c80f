"""The fence of a merge: a branch snapshot that collides with compactions unaware of the merge."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.format.records.snapshot import CommitIdentity, CommitKind, Snapshot, SnapshotRef
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.merge_record import MergeRecord
from anabranch.kernel.log.properties import FENCE_PROPERTY
from anabranch.kernel.log.seals import is_replaced_by
from anabranch.kernel.merge.actions import Nothing
from anabranch.kernel.provenance.past import past_since


def put_fence(
    branch: TableContext,
    record: MergeRecord,
    newest: Callable[[], Snapshot | None],
    known: Snapshot | None = None,
) -> bool:
    """Commit the fence unless it exists; False if a compaction that may not know of the record came in between.

    A branch that was main until that was undone takes no commits. Its seal is the fence: whatever began before collides
    with it, also if the branch becomes main again.

    Args:
        branch: the branch.
        record: the merge.
        newest: the branch's newest snapshot, looked for since the record is there.
        known: a snapshot seen before, as `commit` takes it.
    """
    head = newest()
    fence = None if head is None else _find_fence(branch, record, head)
    if fence is None and head is not None:
        pointer = is_replaced_by(branch, head)
        if pointer is not None and pointer.replaced is not None and pointer.replaced.undoes is not None:
            fence = head
    if fence is None:
        action = Nothing({FENCE_PROPERTY: str(record.number)})
        fence = commit(
            branch, CommitRequest(action, CommitIdentity.batch(branch.runtime)), known_head=known
        ).snapshot
    assert fence is not None, "it was committed just now"
    between = past_since(branch, fence, _head_of(branch, record))
    return between.reaches_base and not any(
        snapshot.commit_kind == CommitKind.COMPACT and _has_entries(branch, snapshot)
        for snapshot in between.snapshots
    )


def _find_fence(branch: TableContext, record: MergeRecord, head: Snapshot) -> Snapshot | None:
    """Return the existing fence of a merge that was begun before."""
    later = past_since(branch, head, _head_of(branch, record)).snapshots
    wanted = str(record.number)
    return next((s for s in later if s.properties.get(FENCE_PROPERTY) == wanted), None)


def fence_on_top(branch: TableContext, record: MergeRecord, head: Snapshot) -> str | None:
    """Return the stamp of a merge's fence, if the branch did nothing else since."""
    fence = _find_fence(branch, record, head)
    return None if fence is None or fence.id != record.head.id + 1 else fence.stamp


def _has_entries(context: TableContext, snapshot: Snapshot) -> bool:
    metas = context.manifests.read_list(snapshot.delta_manifest_list)
    return any(meta.num_added_files or meta.num_deleted_files for meta in metas)


def _head_of(branch: TableContext, record: MergeRecord) -> SnapshotRef:
    return SnapshotRef(branch.branch_uuid, record.head.id, record.head.stamp)
