"""Checks that the moment a rollback goes to can be read from the store.

Another engine's expiry removes the files of a snapshot before the snapshot itself. If it dies in between, the snapshot looks
as if it was there, and this process may have its manifests in the cache. A pin on it would hold nothing, and no expiry
of ours goes on while a tag cannot be read in full.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.errors import CommitConflictError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.commit.presence import lost_files
from anabranch.kernel.log.context import TableContext


def check_whole(context: TableContext, target: Snapshot, data_files: Collection[str] = ()) -> None:
    """Raise `CommitConflictError` if manifests of the target, or these data files of it, are not in the store."""
    metas = context.manifests.of_snapshot(target)
    names = [target.base_manifest_list, target.delta_manifest_list, *(meta.file_name for meta in metas)]
    paths = [*(context.layout.manifest_path(name) for name in names), *data_files]
    if lost := lost_files(context, paths):
        raise refused(
            "TARGET_NOT_WHOLE",
            f"{len(lost)} of {len(paths)} files of snapshot {target.id} of '{context.title}' are gone, the first is {lost[0]}",
            "roll back to a newer moment; `verify` tells what is damaged.",
        )


def refused(kind: str, message: str, hint: str) -> CommitConflictError:
    """Return the error of a rollback that is refused before anything is changed."""
    return CommitConflictError(f"{kind}: {message}", conflicts=(Conflict(kind, message, hint),), hint=hint)
