"""Leftovers above the newest snapshot: put there by an overtaken writer after a destructive rollback.

They block the next commits, and other engines may take them for the newest. None is deleted, since its number,
once free, could be given to an acknowledged commit before the removal happens. Instead a snapshot that
continues history is stored in its place, in one step. It is a function of what it replaces and the newest snapshot
only, so that several processes may do it at once, at any pace, and store the same.

Acknowledgements stay true: a snapshot of ours was not acknowledged (its writer checks afterwards, see `in_history`,
and commits again), so it is replaced by an empty one. Other engines do not check. What one appended is
appended here, without what it was built on; any other change is kept under a tag ``leftover-<number>-<stamp>``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.layout import manifest_list_name
from anabranch.format.records.manifest_list import encode_manifest_list
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext, delete_exactly
from anabranch.kernel.log.properties import (
    BRANCH_PROPERTY,
    LEFTOVER_PROPERTY,
    PARENT_PROPERTY,
    WATERMARK_PROPERTY,
    WRITER_PROPERTY,
)
from anabranch.kernel.log.removals import is_after_removed, record_removal
from anabranch.options import MANIFEST_COMPRESSION
from anabranch.version import __version__

_LOG = logging.getLogger(__name__)
_NAMES: Final = uuid.UUID("0b0f2f0e-3f0c-5a53-8a3e-5d7c9a1e6b42")
_CODECS = {"zstd": "zstandard"}


def leftovers_above(context: TableContext, head: Snapshot) -> list[Snapshot]:
    """Return snapshots above the newest that are not built on it, by ascending id; unreadable ones are skipped."""
    found: list[Snapshot] = []
    for number in context.snapshots.ids():
        if number > head.id:
            try:
                snapshot = context.snapshots.find(number)
            except AnabranchError:
                continue
            if snapshot is not None:
                found.append(snapshot)
    if found and context.snapshots.follows(head, found[0]):
        return []  # history went on meanwhile
    return found


def displace(context: TableContext, head: Snapshot) -> Snapshot | None:
    """Replace a leftover right above the newest snapshot by a snapshot that continues history.

    Args:
        head: its newest snapshot.

    Returns the leftover that was there; None if there is none, or history moved meanwhile.
    """
    snapshots = context.snapshots
    found = snapshots.find(head.id + 1)
    if found is None or snapshots.follows(head, found):
        return None
    lists = _Lists.of(context, head, found)
    appended = _appended(context, head, found)
    if not appended and _may_have_been_acknowledged(context, found) and not _keep(context, found):
        return None
    context.storage.put_many(lists.objects)
    made = _appending(head, found, lists) if appended else _changing_nothing(head, lists)
    made = replace(
        made,
        properties={
            **_carried(head),
            BRANCH_PROPERTY: context.branch_uuid,
            WRITER_PROPERTY: f"anabranch {__version__}",
            PARENT_PROPERTY: head.stamp,
            LEFTOVER_PROPERTY: found.stamp,
        },
    )
    now, below = snapshots.find(found.id), snapshots.find(head.id)
    if now is None or now.stamp != found.stamp or below is None or below.stamp != head.stamp:
        return None
    context.storage.put(context.layout.snapshot_path(found.id), made.to_json())
    _LOG.warning(
        "snapshot %d of '%s' by commit user %s was built on what was rolled back for good or deleted; %s",
        *(found.id, context.title, found.commit_user),
        "what it appended was appended to what is there now" if appended else "it was taken out of the way",
    )
    return found


def withdraw(context: TableContext, snapshot: Snapshot) -> None:
    """Remove the tag of a kept leftover: its writer is alive and commits its change again."""
    tag = _tag(snapshot)
    delete_exactly(context.storage, context.layout.tag_path(tag.name), tag.to_json())


def _keep(context: TableContext, found: Snapshot) -> bool:
    """Keep a leftover under a tag; False, without a tag, if its files may be gone meanwhile."""
    tag = _tag(found)
    path = context.layout.tag_path(tag.name)
    context.storage.put_if_absent(path, tag.to_json())
    now = context.snapshots.find(found.id)
    if now is not None and (now.stamp == found.stamp or _may_have_been_acknowledged(context, found)):
        return True
    context.storage.delete(path)  # it has expired, or its writer has taken it back
    return False


def _tag(leftover: Snapshot) -> Tag:
    return Tag(f"leftover-{leftover.id}-{leftover.stamp[:8]}", leftover)


def _may_have_been_acknowledged(context: TableContext, found: Snapshot) -> bool:
    """Whether a leftover may have been acknowledged to its writer and so must be kept.

    Our writers check after the put, and what they find misplaced was built on a removed snapshot, or made on a
    deleted branch of the same name.
    """
    if LEFTOVER_PROPERTY in found.properties and found.commit_kind == CommitKind.COMPACT:
        return False  # it changes nothing: it was stored to bridge a gap in history
    if found.properties.get(BRANCH_PROPERTY, context.branch_uuid) != context.branch_uuid:
        return False
    if WRITER_PROPERTY in found.properties:
        return not is_after_removed(context.storage, context.manifests, found)
    return found.commit_kind != CommitKind.COMPACT


def take_over(context: TableContext, leftover: Snapshot | None = None) -> Snapshot | None:
    """Put an empty snapshot of this branch on top of the newest, made by whatever branch; None if there is none.

    After another engine's fast-forward the newest snapshot is another branch's, and commits refuse to build on it.

    Args:
        leftover: a snapshot further up, if history is to be extended to it.
    """
    head = context.snapshots.head()
    if head is None:
        return None
    lists = _Lists.of(context, head, head)
    context.storage.put_many(lists.objects)
    made = replace(
        _changing_nothing(head, lists),
        properties={
            **_carried(head),
            BRANCH_PROPERTY: context.branch_uuid,
            WRITER_PROPERTY: f"anabranch {__version__}",
            PARENT_PROPERTY: head.stamp,
            **({} if leftover is None else {LEFTOVER_PROPERTY: leftover.stamp}),
        },
    )
    if not context.storage.put_if_absent(context.layout.snapshot_path(made.id), made.to_json()):
        return None
    below = context.snapshots.find(head.id)
    if below is not None and below.stamp == head.stamp:
        context.snapshots.write_hint(made.id)
    else:  # rolled back meanwhile, perhaps by another engine: what was put is known as a leftover
        _LOG.warning("snapshot %d of '%s' was rolled back meanwhile", head.id, context.title)
        remains = [n for n in context.snapshots.ids() if n < head.id]
        target = context.snapshots.find(remains[-1]) if remains else None
        if target is not None:
            record_removal(context.storage, context.layout, context.manifests, target, [head])
    return made


@dataclass(frozen=True, slots=True)
class _Lists:
    """The manifest lists of a replacing snapshot, under names derived from the newest snapshot."""

    base: str
    base_size: int
    empty: str
    empty_size: int
    objects: dict[str, bytes]

    @classmethod
    def of(cls, context: TableContext, head: Snapshot, found: Snapshot) -> _Lists:
        schema = context.schemas.get(max(head.schema_id, found.schema_id))
        codec = MANIFEST_COMPRESSION.of(schema.options)
        codec = _CODECS.get(codec, codec)
        base = encode_manifest_list(tuple(context.manifests.of_snapshot(head)), codec=codec)
        empty = encode_manifest_list((), codec=codec)
        unique = str(uuid.uuid5(_NAMES, head.stamp))
        names = [manifest_list_name(unique, number) for number in range(2)]
        path = context.layout.manifest_path
        return cls(names[0], len(base), names[1], len(empty), {path(names[0]): base, path(names[1]): empty})


def _changing_nothing(head: Snapshot, lists: _Lists) -> Snapshot:
    """Return an empty snapshot that is the same for every leftover, so that it does not matter which was seen."""
    return Snapshot(
        id=head.id + 1,
        schema_id=head.schema_id,
        base_manifest_list=lists.base,
        base_manifest_list_size=lists.base_size,
        delta_manifest_list=lists.empty,
        delta_manifest_list_size=lists.empty_size,
        index_manifest=head.index_manifest,
        commit_user=str(uuid.uuid5(_NAMES, f"{head.stamp} {head.id}")),
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.COMPACT,
        time_millis=head.time_millis,
        total_record_count=head.total_record_count,
        delta_record_count=0,
        watermark=head.watermark,
        next_row_id=head.next_row_id,
        uuid=str(uuid.uuid5(_NAMES, f"{head.stamp} {head.id} uuid")),
    )


def _appending(head: Snapshot, found: Snapshot, lists: _Lists) -> Snapshot:
    added = found.delta_record_count
    marks = [mark for mark in (head.watermark, found.watermark) if mark is not None]
    return replace(
        _changing_nothing(head, lists),
        schema_id=max(head.schema_id, found.schema_id),
        delta_manifest_list=found.delta_manifest_list,
        delta_manifest_list_size=found.delta_manifest_list_size,
        commit_user=found.commit_user,
        commit_identifier=found.commit_identifier,
        commit_kind=CommitKind.APPEND,
        time_millis=max(head.time_millis, found.time_millis),
        total_record_count=None
        if head.total_record_count is None or added is None
        else head.total_record_count + added,
        delta_record_count=added,
        watermark=max(marks, default=None),
        uuid=str(uuid.uuid5(_NAMES, f"{head.stamp} {found.stamp}")),
    )


def _appended(context: TableContext, head: Snapshot, found: Snapshot) -> Sequence[ManifestFileMeta]:
    """Return the manifests of an append by another engine; none if it is not one, or already in the table."""
    if WRITER_PROPERTY in found.properties or found.commit_kind != CommitKind.APPEND:
        return ()
    metas = context.manifests.read_list(found.delta_manifest_list)
    if any(meta.num_deleted_files for meta in metas):
        return ()
    added = context.manifests.entries(metas, only=IDENTITY).df
    there = context.manifests.entries(context.manifests.of_snapshot(head), only=IDENTITY).df
    return () if added.join(there, on=IDENTITY, how="semi").height else metas


def _carried(head: Snapshot) -> dict[str, str]:
    mark = head.properties.get(WATERMARK_PROPERTY)
    return {} if mark is None else {WATERMARK_PROPERTY: mark}
