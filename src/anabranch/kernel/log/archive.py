"""The archive of history: the metadata of snapshots, kept after the snapshots are removed.

Anything that removes snapshots of a branch (expiry, branch deletion, dropping a replaced main) first writes their
metadata to a segment in the table's folder (`anabranch.format.records.history_segment`); if that fails, nothing is
removed. What is archived of a branch are the commits made on it; what it began with, and the past that main has in the
folders of former mains, is archived as that of the branch it was committed on. Only a branch without any commit archives the
snapshot it began with, so that its identity stays known.

Segments may overlap: a killed removal is repeated, and several may run at once. They may disagree
only after a destructive rollback: then the parent stamp of the next snapshot decides. Many small segments of a
branch are joined into one from time to time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anabranch.errors import CorruptTableError, NotFoundError, StorageError, UnsupportedFeatureError
from anabranch.format.records.history_segment import BranchFacts, HistorySegment, PastSnapshot, SegmentName
from anabranch.format.records.layout import HISTORY_FOLDER
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import PARENT_PROPERTY

_LOG = logging.getLogger(__name__)
_MANY: Final = 16
"""Number of small segments of a branch above which they are joined."""
_SMALL: Final = 2_000
"""Most snapshots of a segment that may still grow."""
_READS: Final = 8


@dataclass(frozen=True, slots=True)
class Following:
    """The oldest snapshot that is known from outside the archive."""

    id: int
    parent: str | None
    """Stamp of the snapshot it was built on, if recorded."""

    @classmethod
    def of(cls, snapshot: Snapshot | PastSnapshot) -> Following:
        return cls(snapshot.id, snapshot.properties.get(PARENT_PROPERTY))


def facts_of(context: TableContext) -> BranchFacts:
    """Return a branch's identity and fork snapshot."""
    fork = context.fork
    return BranchFacts(context.branch_uuid, context.branch, None if fork is None else fork.snapshot)


def is_own(context: TableContext, snapshot_id: int) -> bool:
    """Whether the snapshot of that number was committed on this branch itself, not on one it was forked from."""
    return context.fork is None or snapshot_id > context.fork.snapshot.id


def archive(context: TableContext, snapshots: Iterable[Snapshot]) -> None:
    """Archive the metadata of snapshots that are about to be removed.

    Must return before the first of them is removed. Idempotent.

    Args:
        context: the branch they are of.
        snapshots: in any order; each is archived as one of the branch in whose folder it lies. Those that were not
            committed there are ignored.
    """
    by_home: dict[str | None, list[Snapshot]] = {}
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.id):
        by_home.setdefault(context.layout.home_of(snapshot.id), []).append(snapshot)
    for home, there in by_home.items():
        branch = context if home == context.branch else context.on_branch(home)
        own = [PastSnapshot.of(snapshot) for snapshot in there if is_own(branch, snapshot.id)]
        for start in range(0, len(own), _SMALL):
            _put(branch, facts_of(branch), own[start : start + _SMALL])


def archive_rest(context: TableContext) -> None:
    """Archive all remaining snapshots of a branch before the branch is removed; unreadable ones are skipped."""
    if context.branch is not None and context.fork is None and not context.schemas.ids():
        return  # leftovers of a writer that wrote to a deleted branch
    ids = [number for number in context.snapshots.ids() if is_own(context, number)]
    for start in range(0, len(ids), _SMALL):
        found = each(partial(_find, context), ids[start : start + _SMALL], at=context.storage)
        archive(context, [snapshot for snapshot in found if snapshot is not None])
    if not ids and not segment_names(context, context.branch_uuid):
        begun = None if context.fork is None else _find(context, context.fork.snapshot.id)
        if begun is not None:  # so that it is known whose snapshots were read on the branch
            _put(context, facts_of(context), [PastSnapshot.of(begun)])


def forget_after(context: TableContext, snapshot_id: int) -> None:
    """Drop archived snapshots of a branch above `snapshot_id`, after a destructive rollback."""
    for name in segment_names(context, context.branch_uuid):
        if name.last <= snapshot_id:
            continue
        if name.first <= snapshot_id:
            segment = _read(context, name)
            if segment is None:
                continue  # what is taken from it, should it be mended, goes by what was built on
            kept = [s for s in segment.snapshots if s.id <= snapshot_id]
            _put(context, segment.branch, kept, segment.others)
        context.storage.delete(context.layout.history_path(str(name)))


def tidy(context: TableContext) -> None:
    """Join the small segments of a branch if there are many. Idempotent and safe to run concurrently.

    Costs one listing while there are few.
    """
    small = [
        name for name in segment_names(context, context.branch_uuid) if name.last - name.first < _SMALL // 2
    ]
    if len(small) < _MANY:
        return
    try:
        read = {name: segment for name in small if (segment := _read(context, name)) is not None}
    except NotFoundError:
        return  # another process is joining them
    found = list(read.values())
    by_identity = {(s.id, s.stamp): s for segment in found for s in segment.snapshots}
    ordered = [by_identity[key] for key in sorted(by_identity)]
    stays: set[SegmentName] = set()
    others = {key: value for segment in found for key, value in segment.others.items()}
    for start in range(0, len(ordered), _SMALL):
        stays.add(_put(context, found[0].branch, ordered[start : start + _SMALL], others))
    context.storage.delete_many(
        [context.layout.history_path(str(name)) for name in read if name not in stays]
    )


def _find(context: TableContext, number: int) -> Snapshot | None:
    try:
        return context.snapshots.find(number)
    except (CorruptTableError, UnsupportedFeatureError) as error:
        _LOG.warning("what snapshot %d of '%s' said is lost: %s", number, context.title, error)
        return None


# Reading


def segment_names(context: TableContext, branch_uuid: str | None = None) -> list[SegmentName]:
    """Return the segments of one branch, or of all, in a store-independent order; one listing."""
    found = (SegmentName.parse(info.path) for info in context.storage.list(HISTORY_FOLDER))
    wanted = [name for name in found if name is not None and branch_uuid in (None, name.branch_uuid)]
    return sorted(wanted, key=lambda name: (name.branch_uuid, name.first, name.last, name.end))


def archived_branch(context: TableContext, branch_uuid: str) -> BranchFacts | None:
    """Return the facts of a branch that may be deleted; None if nothing of it is archived or readable."""
    for _ in range(_READS):
        try:
            segments = (_read(context, name) for name in reversed(segment_names(context, branch_uuid)))
            return next((segment.branch for segment in segments if segment is not None), None)
        except NotFoundError:
            continue
    raise _restless(context)


def archived(
    context: TableContext, branch_uuid: str, before: Following | None = None
) -> Iterator[PastSnapshot]:
    """Yield the archived snapshots of a branch, newest first.

    Memory stays bounded while segments do not overlap. A segment that cannot be read is skipped
    with a warning: its snapshots are then missing, which shows as a gap in the snapshot ids.

    Args:
        branch_uuid: which branch; it may be gone.
        before: the oldest snapshot known from elsewhere: only older ones are returned. None for a deleted branch.
    """
    following = before
    failures = 0
    while True:
        names = [
            name
            for name in segment_names(context, branch_uuid)
            if following is None or name.first < following.id
        ]
        try:
            for group in _overlapping(names):
                for snapshot in _descending(context, group, following):
                    following = Following.of(snapshot)
                    yield snapshot
        except NotFoundError as error:  # segments were joined meanwhile: go on with what there is now
            failures += 1
            if failures == _READS:
                raise _restless(context) from error
            continue
        return


def _overlapping(names: Sequence[SegmentName]) -> Iterator[list[SegmentName]]:
    """Group segments so that no two groups share snapshot ids; newest first."""
    group: list[SegmentName] = []
    for name in sorted(names, key=lambda name: name.last, reverse=True):
        if group and name.last < min(other.first for other in group):
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _descending(
    context: TableContext, group: Sequence[SegmentName], following: Following | None
) -> Iterator[PastSnapshot]:
    by_id: dict[int, dict[str, PastSnapshot]] = {}
    for name in group:
        segment = _read(context, name)
        for snapshot in () if segment is None else segment.snapshots:
            by_id.setdefault(snapshot.id, {})[snapshot.stamp] = snapshot
    for number in sorted(by_id, reverse=True):
        if following is not None and number >= following.id:
            continue
        chosen = _built_on(following, number, by_id[number])
        if chosen is not None:
            following = Following.of(chosen)
            yield chosen


def _built_on(
    following: Following | None, number: int, found: dict[str, PastSnapshot]
) -> PastSnapshot | None:
    """Choose, among snapshots with the same id, the one that history continued from."""
    if following is not None and following.id == number + 1 and following.parent is not None:
        return found.get(following.parent)
    return max(found.values(), key=lambda snapshot: (snapshot.time_millis, snapshot.stamp))


def _read(context: TableContext, name: SegmentName) -> HistorySegment | None:
    """Read a segment; None if it is damaged. Raises `NotFoundError`."""
    path = context.layout.history_path(str(name))
    try:
        return HistorySegment.from_bytes(context.storage.get(path), path=path)
    except CorruptTableError as error:
        _LOG.warning(
            "what snapshots %d to %d of '%s' said is lost: %s", name.first, name.last, context.name, error
        )
        return None


def _put(
    context: TableContext,
    branch: BranchFacts,
    snapshots: Sequence[PastSnapshot],
    others: Mapping[str, Any] | None = None,
) -> SegmentName:
    segment = HistorySegment(branch, snapshots, others or {})
    context.storage.put(context.layout.history_path(str(segment.name)), segment.to_bytes())
    return segment.name


def _restless(context: TableContext) -> StorageError:
    return StorageError(f"the archive of '{context.name}' changes faster than it can be read", retryable=True)
