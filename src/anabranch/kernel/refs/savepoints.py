"""Crash-safe creation and removal of savepoints: the process may die at any call.

Creation:

1. A pin, a short-lived tag, holds the snapshot; then the snapshot is checked to still exist.
2. The full manifest list is written: one list of all manifests of the snapshot.
3. ``savepoint-<n>`` is put if absent, n being the next number of the table. That one call makes the savepoint and
   assigns the number; the loser of a race tries the next one. All that it needs is held by then, but for the
   list, which a cleaning may have taken if the process stood still in between: it is looked for, and written again.
4. The savepoint's own tag, ``anabranch-savepoint-<n>``, takes over from the pin, which is removed.

Removal: an empty ``savepoint-<n>.deleted``, so that the number is not reused; then the file; then
the tag. Manifests and data go with the next expiry and orphan cleaning.

A process that dies leaves a pin without a savepoint, a savepoint whose tag is missing, a mark beside a savepoint
that should be gone, or a tag and a mark without their savepoint. Each is recognised and repaired by `tend`,
which every creation and removal begins with. A tag with neither savepoint nor mark is kept: somebody deleted the
file, and `repair` makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint, pin_name, pinned_savepoint_of
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.commit.manifest_writer import ManifestWriter
from anabranch.kernel.log import moment_pins as pins
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment, of_snapshot
from anabranch.kernel.log.moment import newest as newest_moment
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.savepoint_log import (
    find_savepoint,
    get_savepoint,
    is_of,
    newest_first,
    read_numbers,
)
from anabranch.kernel.log.store_clock import SKEW_MILLIS, commit_time, removal_time
from anabranch.kernel.log.tag_log import UNKNOWN, find_tag, tag_names, tag_times
from anabranch.options import SAVEPOINT_CREATE_INTERVAL

_MARK_MILLIS = 24 * 3_600_000
"""How long the mark of a deleted savepoint stays when newer numbers were assigned: no creation takes as long."""


def create_savepoint(context: TableContext, moment: Moment | None = None) -> Savepoint:
    """Create a permanent savepoint of a moment, under the next number of the table.

    Args:
        moment: what to keep; the newest snapshot if None.

    Raises:
        NotFoundError: there is no snapshot, or the moment was removed meanwhile; there is no savepoint.
        StorageError: with `outcome_unknown`, it may have been made; `savepoint_log.savepoints` shows it.
    """
    chosen = moment or newest_moment(context)
    free = _free_above(tend(context))
    while True:
        made = _create(context, chosen, max(free, read_numbers(context).next))
        if made is not None:
            return made


def due_savepoint(
    context: TableContext, options: Mapping[str, str], newest: Snapshot | None = None
) -> Savepoint | None:
    """Create the savepoint that `savepoint.create-interval` asks for, if one is due; otherwise return None.

    One is due if that snapshot is younger by the interval than that of the branch's newest savepoint, or
    the branch has none. After a pause of any length one is made; of several concurrent callers, one makes it.
    Cheap if nothing is due: one listing and one small read.

    Args:
        context: the branch.
        options: of the table, overridden by those of the job.
        newest: the snapshot that would be saved, such as one just committed; the newest if None.
    """
    interval = SAVEPOINT_CREATE_INTERVAL.of(options)
    head = None if interval is None else newest or context.snapshots.head()
    if interval is None or head is None:
        return None
    free: int | None = None
    while True:
        numbers = read_numbers(context)
        # The time of savepoints made by a clock that was ahead tells nothing.
        since = next((s.saved_time for s in newest_first(context, numbers) if _is_of_past(context, s)), None)
        if since is not None and commit_time(context, head) - since < interval:
            return None
        if free is None:
            free = _free_above(tend(context))
        # Only under the number that follows what was seen: the loser of a race checks again whether one is due.
        made = _create(context, of_snapshot(head), max(free, numbers.next))
        if made is not None:
            return made


def _is_of_past(context: TableContext, savepoint: Savepoint) -> bool:
    now = context.runtime.clock.now_millis()
    return savepoint.saved_time is None or savepoint.saved_time <= now + SKEW_MILLIS


def delete_savepoint(context: TableContext, number: int) -> Savepoint:
    """Delete a savepoint; its number is not reused.

    An unreadable one belongs to the branch that has its tag; without a tag, to any. Little is known of it then.

    Raises `NotFoundError`: this branch has no such savepoint.
    """
    tend(context)
    try:
        savepoint = get_savepoint(context, number)
    except CorruptTableError:
        savepoint = _damaged(context, number)
    except NotFoundError:
        if pin_name(number) not in tag_names(context):
            raise
        savepoint = _damaged(context, number)  # somebody deleted its file
    context.storage.put(context.layout.deleted_savepoint_path(number), b"")
    _remove(context, number)
    return savepoint


def _damaged(context: TableContext, number: int) -> Savepoint:
    """Return what is known of an unreadable savepoint. Raises `NotFoundError`: it is of another branch."""
    pin = pin_name(number)
    others = (context.on_branch(name) for name in (None, *branch_names(context)) if name != context.branch)
    if pin not in tag_names(context) and any(o.storage.exists(o.layout.tag_path(pin)) for o in others):
        raise NotFoundError(f"savepoint {number} is of another branch than '{context.title}'")
    try:
        tag = find_tag(context, pin)
    except CorruptTableError:
        tag = None
    saved = UNKNOWN if tag is None else tag.snapshot
    return Savepoint(
        id=number,
        saved_snapshot_id=saved.id,
        schema_id=saved.schema_id,
        full_manifest_list=NO_LIST,
        record_count=saved.total_record_count or 0,
        branch_uuid=context.branch_uuid,
    )


def remade_savepoint(context: TableContext, number: int) -> Savepoint | None:
    """Rebuild an unreadable savepoint from its tag, not yet stored; None if there is no tag.

    Its manifest list is written at once. Raises `CorruptTableError`: the saved snapshot cannot be read.
    """
    tag = find_tag(context, pin_name(number))
    if tag is None:
        return None
    stored = context.storage.info(context.layout.tag_path(tag.name)).modified_millis
    draft, _ = _draft(context, tag.snapshot, number)
    return replace(draft, save_time=stored)


@dataclass(frozen=True, slots=True)
class Tended:
    """Result of `tend`, by names of tags and numbers of savepoints."""

    pinned: tuple[str, ...] = ()
    """Tags that were missing."""
    unpinned: tuple[str, ...] = ()
    """Tags that were no longer needed."""
    deleted: tuple[int, ...] = ()
    """Savepoints whose removal had begun."""
    lost: tuple[int, ...] = ()
    """Savepoints that have a tag, and whose file somebody deleted."""


def tend(context: TableContext) -> Tended:
    """Repair what processes left that died while they made or removed savepoints or held a pin.

    Safe to run concurrently. Costs two listings where there is nothing to do.
    """
    tags = tag_times(context)  # read before the savepoints: a tag is put after its savepoint
    numbers = read_numbers(context)
    deleted, pinned, unpinned, lost = [], [], [], []
    suspects = [n for n in numbers.present if n in numbers.deleted or pin_name(n) not in tags]
    for number, savepoint in zip(
        suspects, each(lambda n: _readable(context, n), suspects, at=context.storage), strict=True
    ):
        if savepoint is None and number in numbers.deleted and pin_name(number) in tags:
            _remove(context, number)
            deleted.append(number)
        if savepoint is None or not is_of(context, savepoint):
            continue
        if savepoint.id in numbers.deleted:
            _remove(context, savepoint.id)
            deleted.append(savepoint.id)
        elif savepoint.saved_snapshot is not None:
            _pin(context, savepoint)
            pinned.append(savepoint.pin)
    present = {*numbers.present} - {*deleted}
    for name in sorted(tags):
        number_of_pin = pinned_savepoint_of(name)
        # Listed after the tags: one that is deleted since takes its tag away itself.
        if number_of_pin is None or number_of_pin in present or _exists(context, number_of_pin):
            continue
        if number_of_pin in numbers.deleted:
            context.storage.delete(context.layout.tag_path(name))
            unpinned.append(name)
        else:
            lost.append(number_of_pin)
    unpinned += pins.release_old(context, tags)
    now = removal_time(context) if numbers.deleted else 0
    for number, marked_at in numbers.deleted.items():
        is_over = number + 1 < numbers.next and number not in numbers.present
        if is_over and now - marked_at > _MARK_MILLIS and not _is_pinned(context, number):
            context.storage.delete(context.layout.deleted_savepoint_path(number))
    return Tended(tuple(pinned), tuple(unpinned), tuple(deleted), tuple(lost))


def _free_above(tended: Tended) -> int:
    """Return a number above those of lost savepoints, whose tags a savepoint of the same number would replace."""
    return max(tended.lost, default=0) + 1


def _is_pinned(context: TableContext, number: int) -> bool:
    """Whether any branch has the tag of a savepoint; without its mark that would look like a lost savepoint."""
    places = [context, *(context.on_branch(name) for name in (None, *branch_names(context)))]
    return any(place.storage.exists(place.layout.tag_path(pin_name(number))) for place in places)


def _create(context: TableContext, moment: Moment, number: int) -> Savepoint | None:
    """Create the savepoint under exactly that number; None if the number is taken."""
    pin = pins.take(context, moment)
    draft: Savepoint | None = None
    try:
        draft, full_list = _draft(context, moment.snapshot, number)
        won = context.storage.put_if_absent(context.layout.savepoint_path(number), draft.to_json())
    except AnabranchError as error:
        if not (isinstance(error, StorageError) and error.outcome_unknown):
            _discard(context, draft, pin)
        raise
    is_whole = True
    if won:
        paths = [context.layout.deleted_savepoint_path(number), *full_list]
        was_deleted, *are_there = each(context.storage.exists, paths, at=context.storage)
        is_whole = all(are_there)
        if was_deleted:
            # Made and deleted by others since the numbers were read: the number must not come back.
            context.storage.delete(context.layout.savepoint_path(number))
            won = False
    if not won:
        _discard(context, draft, pin)
        return None
    # Whatever fails from here on, the savepoint exists and the pin holds it.
    if (
        not is_whole
    ):  # a cleaning that comes later finds that it is needed, or puts it back when it looks again
        context.storage.put_many(full_list)
    _pin(context, draft)
    try:
        pins.hand_over(context, pin, moment)
    except NotFoundError:
        context.storage.put(context.layout.deleted_savepoint_path(number), b"")
        _remove(context, number)
        raise
    return draft


def _draft(context: TableContext, snapshot: Snapshot, number: int) -> tuple[Savepoint, Mapping[str, bytes]]:
    """Prepare the savepoint, not yet stored, and store its manifest list; return both."""
    schema = context.schemas.get(snapshot.schema_id)
    manifests = context.manifests.of_snapshot(snapshot)
    writer = ManifestWriter(context, schema, schema.options)
    full_list, _ = writer.manifest_list(manifests)
    context.storage.put_many(writer.objects)
    draft = Savepoint(
        id=number,
        saved_snapshot_id=snapshot.id,
        schema_id=snapshot.schema_id,
        full_manifest_list=full_list,
        record_count=_count(context, snapshot, manifests),
        save_time=context.runtime.clock.now_millis(),
        branch_uuid=context.branch_uuid,
        saved_snapshot=snapshot,
    )
    return draft, writer.objects


def _count(context: TableContext, snapshot: Snapshot, manifests: list[ManifestFileMeta]) -> int:
    """Return the row count; counted from the entries if a very old engine's snapshot lacks it."""
    if snapshot.total_record_count is not None and snapshot.total_record_count >= 0:
        return snapshot.total_record_count
    entries = context.manifests.entries(manifests, only=("kind", "row_count", *IDENTITY))
    return int(entries.live().df["row_count"].sum())


def _pin(context: TableContext, savepoint: Savepoint) -> None:
    """Put the savepoint's own tag, unless the savepoint is removed meanwhile."""
    assert savepoint.saved_snapshot is not None
    path = context.layout.tag_path(savepoint.pin)
    context.storage.put(path, Tag(savepoint.pin, savepoint.saved_snapshot).to_json())
    if not _exists(context, savepoint.id):
        context.storage.delete(path)


def _readable(context: TableContext, number: int) -> Savepoint | None:
    """Return the savepoint; None if it is gone or unreadable, which is left to `repair` or a deletion."""
    try:
        return find_savepoint(context, number)
    except CorruptTableError:
        return None


def _remove(context: TableContext, number: int) -> None:
    context.storage.delete(context.layout.savepoint_path(number))
    context.storage.delete(context.layout.tag_path(pin_name(number)))


def _exists(context: TableContext, number: int) -> bool:
    return context.storage.exists(context.layout.savepoint_path(number))


def _discard(context: TableContext, draft: Savepoint | None, pin: str) -> None:
    """Remove what was written for nothing; what cannot be removed now is found by cleaning."""
    if draft is not None:
        with suppress(StorageError):
            context.storage.delete(context.layout.manifest_path(draft.full_manifest_list))
    pins.release(context, pin)
