"""Checks that the files of a commit still exist, where they are old enough to have been cleaned away.

Orphan cleaning treats files as abandoned that no snapshot names and that are older than a grace period, a
day by default. A writer that is paused for longer, such as a sleeping laptop, would publish the names of removed
files. So a commit whose files are older than a fraction of that period checks their existence right before it puts
its snapshot and once more after it: a cleaning that removes them in between had read the refs before.

What our own cleaning took lies in a quarantine folder for as long again and is brought back.

A snapshot whose files are gone is taken back, unless others have built on it. They may do so between the look and the
removal. So the number above is looked at once more when it is removed: who put a snapshot there before the removal may
have been told that it is committed, and gets back what that was built on; who puts one later looks for its base
(`in_history`) and commits again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.layout import ORPHANS_FOLDER, tag_name_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.context import TableContext, delete_snapshot
from anabranch.kernel.log.file_paths import data_file_paths
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import ROLLBACK_PROPERTY
from anabranch.kernel.log.rollback_pins import brings_back, is_pinned

_SAFE_MILLIS = 3_600_000
"""A 24th of the default grace period of orphan cleaning."""
_SKEW_MILLIS = 300_000
"""Most that the clock of the machine that wrote a file may be ahead of the committing one's."""


def is_aged(context: TableContext, written: int) -> bool:
    """Whether a file written at that time may have been cleaned away, or the clock was set back since."""
    return not -_SKEW_MILLIS <= context.runtime.clock.now_millis() - written <= _SAFE_MILLIS


def aged_files(
    context: TableContext, schema: TableSchema, entries: Sequence[ManifestEntry], *, is_late: bool
) -> list[str]:
    """Return the paths of a commit's files that are old enough to require a check.

    Files that were in the table before, such as those of a rollback or merge, are held by a pin and skipped, unless
    the commit is late: then the pin may have been released as that of a killed operation.
    """
    added = [entry for entry in entries if entry.kind == FileKind.ADD]
    aged = [entry for entry in added if is_late or _is_old(context, entry)]
    return data_file_paths(aged, schema) if aged else []


def _is_old(context: TableContext, entry: ManifestEntry) -> bool:
    written = entry.file.written_millis
    return written is not None and is_aged(context, written)


def lost_files(context: TableContext, paths: Collection[str]) -> list[str]:
    """Return the files that are gone for good, after restoring those that orphan cleaning moved away."""
    missing = _missing(context, paths)
    if not missing:
        return []
    for run in sorted(context.storage.list_folders(ORPHANS_FOLDER), reverse=True):
        moved = [path for path in missing if context.storage.exists(f"{run}/{path}")]
        context.storage.move_many({f"{run}/{path}": path for path in moved})
        missing = [path for path in missing if path not in set(moved)]
    return _missing(context, missing)


def lost_files_of(context: TableContext, snapshot: Snapshot) -> tuple[list[str], int]:
    """Return the files added by a snapshot that are gone for good, and the number of files checked.

    For a commit that is requested again: the first attempt may have died, or got no answer, before its own check.
    Raises `CorruptTableError`.
    """
    manifests, layout = context.manifests, context.layout
    paths = [
        layout.manifest_path(name) for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    ]
    lost = lost_files(context, paths)
    if not lost:
        metas = manifests.read_list(snapshot.delta_manifest_list)
        of_delta = [layout.manifest_path(meta.file_name) for meta in metas]
        paths += of_delta
        lost = lost_files(context, of_delta)
    if not lost:
        added = manifests.entries(metas).adds().to_entries()
        files = data_file_paths(added, context.schemas.get(snapshot.schema_id))
        paths += files
        lost = lost_files(context, files)
    return lost, len(paths)


def brought_back(context: TableContext, newest: Snapshot, unreadable: str | None) -> bool:
    """Bring back what orphan cleaning moved away of the newest snapshot; False if a file that was not there still is not.

    Its writer slept right before it put the snapshot, and died before it looked for its files.
    """
    if unreadable is None or context.storage.exists(unreadable):
        return False  # it is damaged
    lost_files_of(context, newest)
    return context.storage.exists(unreadable)


def take_back(context: TableContext, snapshot: Snapshot) -> bool:
    """Remove a snapshot whose files are gone if it is the newest; False if others built on it, or take it back."""
    snapshots = context.snapshots
    newest = snapshots.head(snapshot)
    if newest is None or newest.stamp != snapshot.stamp:
        return False
    if ROLLBACK_PROPERTY in snapshot.properties and not _claim(context, snapshot):
        return False
    if not delete_snapshot(context, snapshot):
        return True  # it was rolled back, and its number may be another one's by now
    above = snapshots.find(snapshot.id + 1)
    if above is not None and snapshots.follows(snapshot, above):
        # Where its number is taken, the writer of the one above is told that its base is gone.
        path = context.layout.snapshot_path(snapshot.id)
        return not context.storage.put_if_absent(path, snapshot.to_json())
    # Not before: from a hint below it, others would not find what somebody put above it meanwhile.
    if snapshots.hinted_id() == snapshot.id:
        snapshots.take_back_hint(snapshot.id - 1)
    return True


def _claim(context: TableContext, snapshot: Snapshot) -> bool:
    """Claim the removal of a rollback, which everybody takes back who finds it; False if somebody else has.

    It goes by its number, which is somebody else's as soon as it has gone: so only one process may ever remove it.
    """
    path = context.layout.branch_file_path(f"ledger/taken-back-{snapshot.stamp}")
    return context.storage.put_if_absent(path, context.runtime.ids.uuid().encode())


def is_late_rollback(context: TableContext, newest: Snapshot) -> bool:
    """Whether the newest snapshot is a rollback that nobody was told of, and what it brings back is gone.

    Its writer slept until its pin was taken for one of a killed rollback, put it, and died before it looked for its
    files. One that was acknowledged, and brings something back, has a pin as long as an older snapshot is left: what is
    missing of any other is damage, and for `repair`. A file that an expiry deletes even later, when it stood still as
    well, is not found. Asks nothing of the store unless the newest is a rollback.

    Raises `CorruptTableError`: its manifest list is gone.
    """
    if ROLLBACK_PROPERTY not in newest.properties or is_pinned(context, newest.commit_user):
        return False
    if context.is_forked(newest) or context.snapshots.find(newest.id - 1) is None:
        return False
    if not brings_back(context, newest):
        return False
    lost, _ = lost_files_of(context, newest)
    return bool(lost)


def lost_conflict(context: TableContext, lost: Sequence[str], total: int) -> Conflict:
    """Why a commit whose files are gone is refused."""
    if all(tag_name_of(path) is not None for path in lost):
        return Conflict(
            "FILES_LET_GO",
            f"this commit to '{context.title}' brings back files that a tag of its own held, and it took so long that "
            f"the tag was removed as that of a process that died: {lost[0]}",
            "nothing was published: do it again.",
        )
    return Conflict(
        "FILES_CLEANED_AWAY",
        f"{len(lost)} of {total} files that this commit to '{context.title}' wrote were removed before it, as the "
        f"cleaning of orphan files does with files that are not committed for long; the first is {lost[0]}",
        "nothing was published: write the rows again. Clean orphan files with an age above that of the longest write.",
    )


def _missing(context: TableContext, paths: Collection[str]) -> list[str]:
    asked = sorted(paths)
    there = each(context.storage.exists, asked, at=context.storage)
    return [path for path, found in zip(asked, there, strict=True) if not found]
