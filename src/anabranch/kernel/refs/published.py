"""Two views of the past: a table at a time by its current history, and what readers really saw then.

The two differ if the past was changed since: a replacement of main puts another history in its place, also for
earlier times, and a destructive rollback removes snapshots. The records of both outlive the data, and the archive
of history has the metadata of expired snapshots, so it is known which snapshot was main's newest at any time. Its rows
can be read as long as it is retained, or held by a savepoint or a tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import NotFoundError
from anabranch.format.records.history_segment import PastSnapshot, Rewind
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import BranchRef, MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.archive import Following, archived, archived_branch
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.commits import back_from, expired, rewinds
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import former_main, succession
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.moment import Moment, newest, of_savepoint, of_snapshot, of_tag, time_text
from anabranch.kernel.log.savepoint_log import savepoints
from anabranch.kernel.log.tag_log import all_tags
from anabranch.kernel.refs.time_travel import retained_at, uncertain


def at_time(context: TableContext, millis: int, *, exact: bool = False) -> Moment:
    """Return the table at a time by its current history, including later corrections.

    Args:
        millis: the time, in milliseconds since the epoch.
        exact: refuse an answer that is not certainly what readers saw then.

    Raises:
        NotFoundError: nothing is that old, or nothing is certain; the message says what exists.
    """
    moment = retained_at(context, millis, exact=exact)
    changed = _change_since(context, millis, moment.snapshot)
    if changed is None:
        return moment
    if exact:
        raise NotFoundError(
            f"'{context.title}' is not what it was at {millis} ({time_text(millis)}): {changed}",
            hint=f"ask for what was published then, or leave out exact to read {moment.name} of the history as it is now.",
        )
    return replace(moment, is_exact=False, changed_by=changed)


def published_at(context: TableContext, millis: int, *, exact: bool = False) -> tuple[TableContext, Moment]:
    """Return what readers saw at a time, regardless of later corrections, and the branch that has it.

    Args:
        context: main, or another branch.
        millis: the time, in milliseconds since the epoch.
        exact: refuse a time in the future.

    Raises:
        NotFoundError: nothing existed yet, its data is gone, or it is not known; the message says which.
    """
    if millis > context.runtime.clock.now_millis():
        moment = newest(context)
        if exact:
            raise uncertain(context, moment, millis)
        return context, replace(_asked(moment, millis), is_exact=False)
    era = _era(context, millis)
    seen = _seen(context, era, millis)
    if seen is None:
        raise NotFoundError(
            f"'{context.title}' had nothing to be read at {millis} ({time_text(millis)}): no snapshot is so old",
            hint="ask for a later time.",
        )
    held = _held(context, era, seen)
    if held is None:
        raise _gone(context, era, seen, millis)
    if not seen.is_sure:
        raise NotFoundError(
            f"it is not known what readers of '{context.title}' saw at {millis} ({time_text(millis)}): snapshot "
            f"{seen.id} is the newest that is known, and what came after it was removed without leaving a record",
            hint="leave out published to read the newest of the time before that is left.",
        )
    place, moment = held
    return place, _asked(moment, millis)


def _asked(moment: Moment, millis: int) -> Moment:
    distance = millis - moment.snapshot.time_millis
    return replace(moment, asked=time_text(millis), distance_millis=distance, is_published=True)


@dataclass(frozen=True, slots=True)
class _Era:
    """Period in which one branch was main; all time for a branch opened by its name."""

    branch: BranchRef
    began: MainPointer | None = None
    """The replacement that made it main."""
    ended: MainPointer | None = None
    """The replacement that ended it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The snapshot that was the newest for readers at a time; it may be gone."""

    id: int
    stamp: str
    time_millis: int | None
    is_sure: bool = True
    """Whether nothing unknown can have come after it."""
    rewound_by: Rewind | None = None
    """The destructive rollback that removed it."""


def _era(context: TableContext, millis: int) -> _Era:
    if context.main_generation is None:
        return _Era(BranchRef(context.branch, context.branch_uuid))
    era, reached = _Era(BranchRef(None, context.table_uuid)), 0
    for pointer in replacements(context) if context.main_generation else ():
        reached = max(reached, pointer.made_millis)
        if reached > millis:
            return replace(era, ended=pointer)
        era = _Era(pointer.main, pointer)
    return era


def _change_since(context: TableContext, millis: int, found: Snapshot) -> str | None:
    """Describe what changed the answer for a time since readers saw it; None if they saw `found`."""
    era = _era(context, millis)
    if era.ended is None and not rewinds(context):
        return None
    seen = _seen(context, era, millis)
    if seen is not None and seen.rewound_by is not None:
        at = time_text(seen.rewound_by.made_millis)
        if seen.stamp != found.stamp:
            return (
                f"snapshot {seen.id} was removed by a rollback to snapshot {seen.rewound_by.target} at {at}"
            )
        if not seen.is_sure:
            return f"what came after snapshot {seen.id} was removed by a rollback at {at}"
    if era.ended is None or (seen is not None and seen.is_sure and seen.stamp == found.stamp):
        return None
    assert era.ended.replaced is not None, "it is a replacement"
    done = f"replacement {era.ended.generation} of main at {time_text(era.ended.made_millis)}"
    if era.ended.replaced.undoes is not None:
        return f"{done} took back replacement {era.ended.replaced.undoes}"
    return f"{done} put '{era.ended.main.name or MAIN_BRANCH}' in its place"


def _seen(context: TableContext, era: _Era, millis: int) -> _Seen | None:
    """Return the newest snapshot that readers had in that era at that time."""
    place = _place(context, era.branch)
    seen = _retained(place, millis) or _remembered(context, era.branch, place, millis)
    rewound = [rewind for rewind in rewinds(context) if rewind.branch_uuid == era.branch.uuid]
    seen = _before(rewound, seen, millis)
    if seen is not None and seen.rewound_by is not None:
        return seen
    began = None if era.began is None else era.began.replaced
    removed = {snapshot.stamp for rewind in rewound for snapshot in rewind.removed}
    if began is not None and began.taken.stamp not in removed and (seen is None or seen.id < began.taken.id):
        seen = _Seen(began.taken.id, began.taken.stamp, None)  # somebody's clock was wrong
    ended = None if era.ended is None else era.ended.replaced
    if ended is not None and seen is not None and seen.id > ended.head.id + 1:
        seen = _Seen(ended.head.id, ended.head.stamp, None)  # put there after it had been sealed
    return seen


def _place(context: TableContext, branch: BranchRef) -> TableContext | None:
    """Return the branch of that identity; None if it is gone."""
    if branch.uuid == context.branch_uuid:
        return context
    pointer = succession(context, branch.uuid)
    if pointer is None:
        return None
    try:
        found = former_main(context, pointer.generation)
    except NotFoundError:
        return None
    return found if found.branch is None or state_of(found) is BranchState.READY else None


def _retained(place: TableContext | None, millis: int) -> _Seen | None:
    """Return the answer from retained snapshots, if certain without other records."""
    if place is None:
        return None
    try:
        moment = retained_at(place, millis, exact=True)
    except NotFoundError:
        return None
    return _Seen(moment.snapshot.id, moment.snapshot.stamp, moment.snapshot.time_millis)


def _remembered(
    context: TableContext, branch: BranchRef, place: TableContext | None, millis: int
) -> _Seen | None:
    """Return the answer with the help of the archive."""
    following: int | None = None
    for snapshot in _history(context, branch.uuid, place, millis):
        if snapshot.time_millis <= millis:
            is_sure = following in (None, snapshot.id + 1)
            return _Seen(snapshot.id, snapshot.stamp, snapshot.time_millis, is_sure)
        following = snapshot.id
    return None


def _history(
    context: TableContext, uuid: str, place: TableContext | None, millis: int
) -> Iterator[Snapshot | PastSnapshot]:
    """Yield the snapshots of a possibly deleted branch, then those of its parent branch, newest first."""
    upto: SnapshotRef | None = None
    while True:
        fork: SnapshotRef | None
        if place is not None:
            fork = None if place.fork is None else place.fork.snapshot
            yield from _own(place, upto, 0 if fork is None else fork.id, millis)
        else:
            facts = archived_branch(context, uuid)
            fork = None if facts is None else facts.fork
            for snapshot in archived(
                context, uuid, None if upto is None else Following(upto.id + 1, upto.stamp)
            ):
                if fork is not None and snapshot.id <= fork.id:
                    break
                yield snapshot
        if fork is None:
            return
        uuid, upto = fork.branch_uuid, fork
        place = _place(context, BranchRef(None if uuid == context.table_uuid else "", uuid))


def _own(
    place: TableContext, upto: SnapshotRef | None, above: int, millis: int
) -> Iterator[Snapshot | PastSnapshot]:
    """Yield the commits of an existing branch; too late ones are skipped where that saves reads."""
    first = place.snapshots.earliest_id()
    earliest = None if first is None else place.snapshots.find(first)
    if upto is not None and (earliest is None or upto.id < earliest.id):
        yield from expired(place, Following(upto.id + 1, upto.stamp), above)
    elif earliest is not None and earliest.time_millis > millis:
        yield earliest
        yield from expired(place, Following.of(earliest), above)
    else:
        head = place.snapshots.find(upto.id) if upto is not None else place.snapshots.head()
        if head is not None:
            yield from back_from(place, head, above)


def _before(rewound: Sequence[Rewind], seen: _Seen | None, millis: int) -> _Seen | None:
    """Return the newest snapshot before destructive rollbacks removed some."""
    for rewind in rewound:
        if rewind.made_millis <= millis:
            continue
        following: int | None = None
        for removed in rewind.removed:
            if removed.time_millis <= millis:
                break
            following = removed.id
        else:
            if seen is not None and seen.id == rewind.target and following not in (None, seen.id + 1):
                seen = replace(seen, is_sure=False, rewound_by=rewind)  # what came after it left no record
            continue
        if seen is None or removed.id > seen.id:
            is_sure = following in (None, removed.id + 1)
            seen = _Seen(removed.id, removed.stamp, removed.time_millis, is_sure, rewind)
    return seen


def _held(context: TableContext, era: _Era, seen: _Seen) -> tuple[TableContext, Moment] | None:
    """Return the branch and reference by which a snapshot's rows can be read."""
    place = _place(context, era.branch)
    places = [p for p in (place, context) if p is not None]
    for each in places[:1] if len(places) > 1 and places[0] is context else places:
        found = each.snapshots.find(seen.id)
        if found is not None and found.stamp == seen.stamp:
            return each, of_snapshot(found)
        for savepoint in savepoints(each):
            if savepoint.saved_snapshot is not None and savepoint.saved_snapshot.stamp == seen.stamp:
                return each, of_savepoint(each, savepoint)
        for tag in all_tags(each):
            if tag.snapshot.stamp == seen.stamp:
                return each, of_tag(tag)
    return None


def _gone(context: TableContext, era: _Era, seen: _Seen, millis: int) -> NotFoundError:
    of = "" if era.ended is None else f" of {former_main_name(era.ended.generation)}"
    when = "" if seen.time_millis is None else f", of {time_text(seen.time_millis)}"
    if seen.rewound_by is not None:
        at = time_text(seen.rewound_by.made_millis)
        why = f"it was removed by a rollback to snapshot {seen.rewound_by.target} at {at}"
    elif _place(context, era.branch) is None:
        why = "that branch was dropped"
    else:
        why = "it has expired, and no savepoint or tag holds it"
    return NotFoundError(
        f"what readers of '{context.title}' saw at {millis} ({time_text(millis)}) was snapshot {seen.id}{of}{when}, and "
        f"its data is gone: {why}",
        hint="leave out published to read the history as it is now; a savepoint or tag keeps a moment for later.",
    )
