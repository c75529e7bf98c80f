"""Time travel by commit time or watermark.

By time there is one rule: of all retained snapshots and all savepoints of the branch, the newest one (the highest
number) whose snapshot was committed at that time or before it. A savepoint counts by the time of the snapshot it
saves, so it substitutes for that snapshot once expired. Several snapshots of one millisecond: the last. Commits of
Anabranch never go back in time; where the clocks of other writers did, the rule still holds as long as not more
than 32 commits in a row are out of order. A snapshot whose time is in the future counts by the time at which its file
was stored.

By watermark: the first of them whose watermark is at least the one asked for.

The answer is *exact* if no expired snapshot can have come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment, duration_text, of_savepoint, of_snapshot, time_text
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import PARENT_PROPERTY, WATERMARK_SINCE_PROPERTY
from anabranch.kernel.log.savepoint_log import savepoints
from anabranch.kernel.log.snapshot_log import SnapshotLog
from anabranch.kernel.log.store_clock import commit_time

_DISORDER = 32


def retained_at(context: TableContext, millis: int, *, exact: bool = False) -> Moment:
    """Return the branch at a time, by the rule of this module and its current, retained history.

    Args:
        millis: the time, in milliseconds since the epoch.
        exact: refuse an answer after which something may have expired.

    Raises:
        NotFoundError: nothing is that old, or nothing is certain; the message says what exists.
    """

    def early(snapshot: Snapshot) -> bool:
        return commit_time(context, snapshot) <= millis

    head = context.snapshots.head()
    border = Border(head, None) if head is not None and early(head) else _by_time(context, head, early)
    saved = []
    if border.last != head and not _are_neighbours(border):
        saved = savepoints(context)  # something has expired in between: a savepoint may bridge it
    moment = None if border.last is None else of_snapshot(border.last)
    bridge = _newest_saved(context, saved, border.last, head, millis)
    if bridge is not None:
        moment = of_savepoint(context, bridge)
    if moment is None:
        raise _nothing_before(context, millis, border.after, head, saved)
    moment = replace(
        moment,
        asked=time_text(millis),
        distance_millis=millis - min(millis, moment.snapshot.time_millis),
        is_exact=_is_last_before(context, moment.snapshot, millis, head, saved),
    )
    if exact and not moment.is_exact:
        raise uncertain(context, moment, millis)
    return moment


def at_watermark(context: TableContext, watermark: int, *, exact: bool = False) -> Moment:
    """Return the first moment whose watermark is at least `watermark` (epoch milliseconds).

    Args:
        watermark: the event time to reach.
        exact: refuse an answer before which an expired snapshot may already have reached it.

    Raises:
        NotFoundError: no watermark is as high, or nothing is certain; the message says what exists.
    """
    if not isinstance(watermark, int):
        raise InvalidInputError(
            f"a watermark is in milliseconds since the epoch, found {type(watermark).__name__} {watermark!r}"
        )

    def too_low(snapshot: Snapshot | None) -> bool:
        return snapshot is not None and (snapshot.watermark is None or snapshot.watermark < watermark)

    head = context.snapshots.head()
    border = Border(head, None) if too_low(head) else _border_by_watermark(context, head, too_low)
    found = None if border.after is None else of_snapshot(border.after)
    saved: list[Savepoint] = []
    if not _are_neighbours(border):
        saved = [s for s in savepoints(context) if s.saved_snapshot is not None]
        first = min(
            (s for s in saved if not too_low(s.saved_snapshot) and _is_in_history(context, s, head)),
            key=lambda s: s.saved_snapshot_id,
            default=None,
        )
        if first is not None and (found is None or first.saved_snapshot_id < found.snapshot.id):
            found = of_savepoint(context, first)
    if found is None or found.snapshot.watermark is None:
        raise _no_watermark(context, watermark, head)
    before = _known(context, found.snapshot.id - 1, saved)
    found = replace(
        found,
        asked=f"watermark {watermark}",
        distance_millis=found.snapshot.watermark - watermark,
        is_exact=found.snapshot.id == 1 or too_low(before),
    )
    if exact and not found.is_exact:
        raise NotFoundError(
            f"it is not certain which snapshot of '{context.title}' was the first with a watermark of {watermark} or "
            f"more: {found.name} has {found.snapshot.watermark}, and what came before it has expired",
            hint=f"leave out exact to read {found.name}.",
        )
    return found


def _by_time(context: TableContext, head: Snapshot | None, early: Callable[[Snapshot], bool]) -> Border:
    """Find the last snapshot for which `early` holds and the one after it, even if times go back a little."""
    border = _border(context, head, early)
    if head is None:
        return border
    place = border.last.id if border.last is not None else (border.after.id - 1 if border.after else 0)
    while place < head.id:
        window = range(place + 1, min(place + _DISORDER, head.id) + 1)
        following = [s for s in each(context.snapshots.find, window, at=context.storage) if s is not None]
        later = [snapshot for snapshot in following if early(snapshot)]
        if not later:
            return Border(border.last, following[0] if following else border.after)
        border = Border(later[-1], border.after)
        place = later[-1].id
    return border


def _border(context: TableContext, head: Snapshot | None, holds: Callable[[Snapshot], bool]) -> Border:
    earliest = context.snapshots.earliest_id()
    if head is None or earliest is None:
        return Border(None, None)
    ids: Sequence[int] = range(earliest, head.id + 1)
    border = find_border(context.snapshots, ids, holds)
    if border.last is None:
        ids = context.snapshots.ids()
        if len(ids) < head.id - ids[0] + 1:  # a gap ends the search; below it there may be more
            border = find_border(context.snapshots, ids, holds)
    return border


def _border_by_watermark(
    context: TableContext, head: Snapshot | None, too_low: Callable[[Snapshot | None], bool]
) -> Border:
    """Find the border by watermark; after a reset, only since the reset, as it was never as low again."""
    newest = head
    while newest is not None:
        since = newest.properties.get(WATERMARK_SINCE_PROPERTY, "")
        begun = int(since) if since.isdigit() else 0
        if not 1 < begun <= newest.id:
            break
        first, before = context.snapshots.find(begun), context.snapshots.find(begun - 1)
        if first is None:
            break
        if too_low(first):
            return find_border(context.snapshots, range(begun, newest.id + 1), too_low)
        if before is None:
            return Border(None, first)
        newest = before
    return _border(context, newest, too_low)


def _newest_saved(
    context: TableContext,
    saved: Sequence[Savepoint],
    last: Snapshot | None,
    head: Snapshot | None,
    millis: int,
) -> Savepoint | None:
    """Return the savepoint that is a better answer than the retained snapshot `last`, if there is one."""
    lowest = 0 if last is None else last.id
    timed = [s for s in saved if s.saved_time is not None and s.saved_time <= millis]
    candidates = [s for s in timed if s.saved_snapshot_id > lowest]
    for savepoint in sorted(candidates, key=lambda s: (s.saved_snapshot_id, s.id), reverse=True):
        if _is_in_history(context, savepoint, head):
            return savepoint
    return None


def _is_in_history(context: TableContext, savepoint: Savepoint, head: Snapshot | None) -> bool:
    """Whether a savepoint is still in history; False if its snapshot was destructively rolled back."""
    if head is not None and savepoint.saved_snapshot_id > head.id:
        return False
    retained = context.snapshots.find(savepoint.saved_snapshot_id)
    saved = savepoint.saved_snapshot
    return retained is None or saved is None or retained.stamp == saved.stamp


def _is_last_before(
    context: TableContext, found: Snapshot, millis: int, head: Snapshot | None, saved: Sequence[Savepoint]
) -> bool:
    """Whether the snapshot after `found` is known to be later than `millis`, or cannot have existed by then."""
    if head is not None and found.id == head.id:
        return millis <= context.runtime.clock.now_millis()
    following = _known(context, found.id + 1, saved)
    if following is None or commit_time(context, following) <= millis:
        return False
    return following.properties.get(PARENT_PROPERTY) in (None, found.stamp)


def _known(context: TableContext, snapshot_id: int, saved: Sequence[Savepoint]) -> Snapshot | None:
    """Return a snapshot that is retained, or saved by one of these savepoints."""
    if snapshot_id < 1:
        return None
    held = (s.saved_snapshot for s in saved if s.saved_snapshot_id == snapshot_id)
    return context.snapshots.find(snapshot_id) or next((s for s in held if s is not None), None)


def _are_neighbours(border: Border) -> bool:
    return border.last is not None and border.after is not None and border.last.id + 1 == border.after.id


def _nothing_before(
    context: TableContext,
    millis: int,
    earliest: Snapshot | None,
    head: Snapshot | None,
    saved: Sequence[Savepoint],
) -> NotFoundError:
    asked = f"'{context.title}' has no snapshot at or before {millis} ({time_text(millis)})"
    if earliest is None or head is None:
        return NotFoundError(f"{asked}: it has none at all", hint="write to it first.")
    message = f"{asked}: the earliest is {_when(earliest)}, the latest is {_when(head)}"
    timed = [(s.saved_time, s) for s in saved if s.saved_time is not None]
    if not timed:
        return NotFoundError(
            f"{message}, and no savepoint is older",
            hint=f"ask for 'snapshot.{earliest.id}' or later, or read a tag.",
        )
    time, nearest = min(timed, key=lambda pair: (abs(pair[0] - millis), pair[1].id))
    return NotFoundError(
        f"{message}, the nearest savepoint is {nearest.id}, of {time} ({time_text(time)})",
        hint=f"ask for 'savepoint.{nearest.id}', 'snapshot.{earliest.id}' or later, or read a tag.",
    )


def uncertain(context: TableContext, moment: Moment, millis: int) -> NotFoundError:
    """Return the error for a branch whose state at a time is not certain."""
    asked = f"{millis} ({time_text(millis)})"
    distance = duration_text(moment.distance_millis)
    head = context.snapshots.head()
    if head is not None and head.id == moment.snapshot.id:
        return NotFoundError(
            f"it is not certain what '{context.title}' will be at {asked}: that is still to come",
            hint="ask for a time that has passed, or leave out exact.",
        )
    return NotFoundError(
        f"it is not certain what '{context.title}' was at {asked}: the newest that is left of the time before is "
        f"{moment.name} ({_when(moment.snapshot)}), {distance} earlier, and what came after it has expired",
        hint=f"leave out exact to read {moment.name}; savepoints made more often leave smaller gaps.",
    )


def _no_watermark(context: TableContext, watermark: int, head: Snapshot | None) -> NotFoundError:
    if head is None or head.watermark is None:
        found = "its snapshots have no watermark" if head is not None else "it has no snapshots"
        hint = "ask by time or number."
    else:
        found = f"the newest snapshot, {head.id}, has {head.watermark} ({time_text(head.watermark)})"
        hint = f"ask for {head.watermark} or less."
    return NotFoundError(f"'{context.title}' has no watermark of {watermark} or more: {found}", hint=hint)


def _when(snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.id} of {snapshot.time_millis} ({time_text(snapshot.time_millis)})"


@dataclass(frozen=True, slots=True)
class Border:
    """The border between snapshots that satisfy a condition and later ones that do not."""

    last: Snapshot | None
    """The last snapshot for which it holds."""
    after: Snapshot | None
    """The first snapshot after it."""


def find_border(log: SnapshotLog, ids: Sequence[int], holds: Callable[[Snapshot], bool]) -> Border:
    """Find the border among these ascending snapshot ids; those that expired meanwhile are left out.

    Reads about log2(number of ids) snapshots.
    """
    last = after = None
    low, high = 0, len(ids) - 1
    while low <= high:
        middle = (low + high) // 2
        snapshot = log.find(ids[middle])
        if snapshot is None:
            low = middle + 1  # expired since, and all before it
        elif holds(snapshot):
            last, low = snapshot, middle + 1
        else:
            after, high = snapshot, middle - 1
    return Border(last, after)
