"""Gives a branch that becomes main the past of main: the history before the fork belongs to both.

Its snapshots stay where they are, and the decision says that main's history goes on there (`Layout.past`,
`anabranch.kernel.log.shared_past`). Its tags are inherited, see `anabranch.kernel.log.inherited_tags`. Savepoints and the ledger
are the branch's own, and are copied.

Snapshots and tags are copied as well where a branch has some of them already, as one of a cascade, which is read by its name
while it is made; and where a destructive rollback of main is under way, which would remove what is shared. They are
copied newest first, in batches, so that the branch's past has no gap except for the batch being written: it is not
needed before the branch is main, and a repetition fills it. A batch is written first, in parallel, and then one listing
shows whether the originals still exist; if not, the copies are removed: an expiry that removed an original before shows
in that check, and one that comes later finds the copy. The same holds for each single tag. A savepoint belongs to the
table; the tag that pins it on a branch makes it one of the branch.

All of it is idempotent, and harmless for a branch that does not become main after all. A crash before the check
may leave a snapshot whose files are gone, so what main has expired is removed from the branch too: see `drop_expired`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from anabranch.format.records.layout import Layout, Part
from anabranch.format.records.main_pointer import MOST_PARTS
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint, pinned_savepoint_of
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.branches.upkeep import drop_expired
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.context import TableContext, delete_exactly
from anabranch.kernel.log.inherited_tags import put_inherited
from anabranch.kernel.log.ledger import copy_pages, take_over
from anabranch.kernel.log.main_branch import main_by_uuid, succession
from anabranch.kernel.log.main_pointer import past_after
from anabranch.kernel.log.moment_pins import is_pin
from anabranch.kernel.log.parallel import each, reading, stream, together
from anabranch.kernel.log.rollback_pins import next_rewound
from anabranch.kernel.log.savepoint_log import find_savepoint, savepoints
from anabranch.kernel.log.shared_past import former_mains
from anabranch.kernel.log.tag_log import (
    find_tag,
    find_tags,
    stored_tags,
    tag_names,
    visible_names,
)
from anabranch.kernel.refs.tag_removal import take_back

_AT_ONCE: Final = 512
"""Snapshots per batch: they are held in memory and checked by one listing."""


@dataclass(frozen=True, slots=True)
class TakenPast:
    """What a branch that becomes main has of main's past."""

    tags: frozenset[str]
    """Names of the copied tags, including those that pin savepoints."""
    past: tuple[Part, ...] | None = None
    """Where the branch's history goes on below what lies in its folder; None if snapshots were copied instead."""
    is_of_main: bool = True
    """Whether all of its past is main's; not so if it was main before, or began on a former main."""


def take_past(main: TableContext, target: TableContext, fork: SnapshotRef) -> TakenPast:
    """Do for a branch that becomes main what can be done before: copy main's past, except for snapshots that can be shared."""
    with reading(main.storage) as begin:
        rewound, asked = (
            begin(partial(is_rewound, main, fork)),
            begin(partial(succession, main, target.branch_uuid)),
        )
        begun = begin(partial(_begun, main, target))
        before = asked()
        origin, past = begun() if before is None else (None, past_after(main, before.generation - 1))
        if past is None or rewound():
            return copy_past(main, target, fork)
    tags = frozenset[str]()

    def copy_others() -> None:
        nonlocal tags
        tags = copy_refs(main, target, fork, inherits=bool(past))
        if past:
            stored_tags(main)  # what is damaged is told before main is sealed

    together(copy_others, partial(_point_to_earliest, main, target), at=main.storage)
    return TakenPast(tags, past, origin is main)


def is_rewound(main: TableContext, fork: SnapshotRef) -> bool:
    """Whether a destructive rollback under way removes snapshots of main's past before a fork."""
    target = next_rewound(main)
    return target is not None and target < fork.id


def shared_past(origin: TableContext, begun: SnapshotRef) -> tuple[Part, ...]:
    """Return where the past of a branch lies that began on a main, without what has expired; one part at least."""
    found = origin.layout.past_below(begun.id)
    earliest = origin.snapshots.hinted_earliest_id() if len(found) > 1 else None
    if earliest is None or not origin.snapshots.is_there(earliest) or origin.snapshots.is_there(earliest - 1):
        return found
    return tuple(part for part in found if part.below > earliest) or found[:1]


def inherit_tags(
    main: TableContext, target: TableContext, fork: SnapshotRef, number: int, past: tuple[Part, ...]
) -> tuple[Part, ...]:
    """Store the tags that a branch will inherit from main, once that is sealed; return its past, which says where they are.

    It has all that main has of what both have, in the place of what it inherited when it was main itself, if it was. Those in its
    own folder come before them.

    Args:
        number: of the replacement.
        past: where the branch's past lies.
    """
    own = {*tag_names(target)}  # a tag that is put there later looks whether it is inherited
    before = stored_tags(replace(target, past=past)) if past[0].tags is not None else []
    tags = {stored.tag.name: stored for stored in before}
    tags |= {stored.tag.name: stored for stored in stored_tags(main) if stored.tag.snapshot.id <= fork.id}
    is_some = put_inherited(main, number, [stored for name, stored in tags.items() if name not in own])
    return (replace(past[0], tags=number if is_some else None), *past[1:])


def take_over_again(main: TableContext, target: TableContext, past: tuple[Part, ...]) -> None:
    """Complete the ledger of a branch that was main, or began on a former main, by what mains expired of its past since.

    Called once main is sealed.
    """
    layout = Layout(target.branch, past)
    for one in (main, *former_mains(main)):
        last = one.layout.shared_up_to(layout)
        if last and one.branch_uuid != target.branch_uuid:
            copy_pages(one, target, last)


def _begun(main: TableContext, target: TableContext) -> tuple[TableContext | None, tuple[Part, ...] | None]:
    """Return the main, or former main, on which a branch began, and where its past lies; None where that has to be copied."""
    begun = None if target.fork is None else target.fork.snapshot
    if begun is None:
        return None, None
    origin = main if begun.branch_uuid == main.branch_uuid else main_by_uuid(main, begun.branch_uuid)
    if origin is None:
        return None, None
    with reading(main.storage) as begin:
        found = [begin(partial(branch.snapshots.find, begun.id)) for branch in (target, origin)]
        listed = begin(target.snapshots.own_ids)
        is_same = all(one is not None and one.stamp == begun.stamp for one in (find() for find in found))
        if not is_same or listed()[:1] != [begun.id]:
            return origin, None
    past = shared_past(origin, begun)
    return origin, past if len(past) <= MOST_PARTS else None


def _point_to_earliest(main: TableContext, target: TableContext) -> None:
    earliest = main.snapshots.earliest_id()
    if earliest is not None:
        target.storage.put(target.layout.earliest_hint_path, str(earliest).encode(), durable=False)


def copy_past(main: TableContext, target: TableContext, fork: SnapshotRef) -> TakenPast:
    """Copy main's snapshots below the fork, and the tags and savepoints up to it, to a branch.

    If the branch no longer has the fork snapshot, only tags and savepoints are copied.
    """
    tags = frozenset[str]()

    def copy_snapshots() -> None:
        _copy_snapshots(main, target, fork)
        drop_expired(main, target, fork)

    def copy_others() -> None:
        nonlocal tags
        tags = copy_refs(main, target, fork)

    # Neither needs the other: whoever died may have left any of both, and a branch without the fork snapshot gets no others.
    together(copy_snapshots, copy_others, at=main.storage)
    return TakenPast(tags)


def copy_refs(
    main: TableContext,
    target: TableContext,
    fork: SnapshotRef,
    before: frozenset[str] = frozenset(),
    *,
    inherits: bool = False,
) -> frozenset[str]:
    """Copy main's past tags, savepoints and ledger to a branch; return the names of the tags.

    Args:
        fork: the fork snapshot.
        before: the tags that were copied already; those are copied again if they changed on main.
        inherits: whether it inherits main's tags, and needs no copies.
    """
    with reading(main.storage) as begin:
        # Pages of the ledger have nothing to do with tags and savepoints, nor these with each other.
        taken_over = begin(partial(take_over, main, target, fork))
        missing = begin(partial(_tags_of_past, main, fork)) if not inherits else list[Tag]
        saving = begin(partial(savepoints, main))
        # Each was put before main's is read below.
        copies = {name: begin(partial(find_tag, target, name)) for name in sorted(before)}
        taken_over()
        tags = missing()
        saved = [s for s in saving() if s.saved_snapshot_id <= fork.id]
        copied = each(lambda tag: _copy_tag(main, target, tag, copies.get(tag.name)), tags, at=main.storage)
    taken = each(lambda savepoint: _take_savepoint(target, savepoint), saved, at=main.storage)
    return frozenset(name for name in (*copied, *taken) if name is not None)


def drop_stale(target: TableContext, before: frozenset[str], now: frozenset[str]) -> None:
    """Remove copied tags that have been deleted from main since."""
    target.storage.delete_many([target.layout.tag_path(name) for name in sorted(before - now)])


def tag_clashes(main: TableContext, target: TableContext, fork: SnapshotRef) -> Iterator[Conflict]:
    """The tags of main's past that the branch cannot have too, because it calls something else so."""
    with reading(main.storage) as begin:
        ours, theirs = begin(partial(visible_names, main)), begin(partial(visible_names, target))
        both = sorted({*ours()} & {*theirs()})  # only those are read: main waits for this once it is sealed
        tags, alike = begin(partial(find_tags, main, both)), begin(partial(find_tags, target, both))
        there = {tag.name: tag for tag in alike()}
    for tag in tags():
        other = there.get(tag.name)
        if other is not None and tag.snapshot.id <= fork.id and other.snapshot.stamp != tag.snapshot.stamp:
            yield Conflict(
                "TAG_CLASH",
                f"the tag '{tag.name}' names snapshot {tag.snapshot.id} on main of '{main.name}', and another snapshot, "
                f"{other.snapshot.id}, on '{target.title}'",
                "rename one of them.",
            )


def _copy_snapshots(main: TableContext, target: TableContext, fork: SnapshotRef) -> None:
    with reading(main.storage) as begin:
        found = [begin(partial(branch.snapshots.find, fork.id)) for branch in (target, main)]
        listed = [begin(branch.snapshots.ids) for branch in (target, main)]
        begun, parted = (find() for find in found)
        if begun is None or parted is None or not begun.stamp == parted.stamp == fork.stamp:
            return
        # One that is put or expires between the listings is copied once more, or not found below.
        known, stored = (set(ids()) for ids in listed)
    lowest = fork.id
    if all(number in known or number > fork.id for number in stored):
        return
    past = main.snapshots.stored_below(parted)
    while batch := _put_batch(target, known, past):
        missing = {number: data for number, data in batch.items() if number not in known}
        there = _checked(main, target, fork, missing)
        if there < len(missing):
            break  # they were expired meanwhile, and all before them
        lowest = min(batch)
    if lowest < fork.id:
        target.storage.put(target.layout.earliest_hint_path, str(lowest).encode(), durable=False)


def _put_batch(
    target: TableContext, known: Collection[int], past: Iterator[tuple[Snapshot, bytes]]
) -> dict[int, bytes]:
    """Put the next snapshots of a past that are not known on a branch, while more of them are read; return all of these."""
    batch: dict[int, bytes] = {}

    def missing() -> Iterator[tuple[str, bytes]]:
        for snapshot, data in islice(past, _AT_ONCE):
            batch[snapshot.id] = data
            if snapshot.id not in known:
                yield target.layout.snapshot_path(snapshot.id), data

    def put(item: tuple[str, bytes]) -> bool:
        return target.storage.put_if_absent(*item)

    for _ in stream(put, missing(), at=target.storage):
        continue
    return batch


def _checked(
    main: TableContext, target: TableContext, fork: SnapshotRef, snapshots: Mapping[int, bytes]
) -> int:
    """Take back the copies of snapshots that are main's no more; return how many are."""
    there = set(main.snapshots.ids()) if snapshots else set()
    gone = [number for number in snapshots if number not in there]
    if gone:
        # Another replacement may have copied what lies below: there must be no gap.
        drop_expired(main, target, fork)
    for number in sorted(gone):
        delete_exactly(target.storage, target.layout.snapshot_path(number), snapshots[number])
    return len(snapshots) - len(gone)


def _tags_of_past(main: TableContext, fork: SnapshotRef) -> list[Tag]:
    names = {*tag_names(main), *visible_names(main)}
    wanted = [name for name in sorted(names) if not is_pin(name) and pinned_savepoint_of(name) is None]
    return [tag for tag in find_tags(main, wanted) if tag.snapshot.id <= fork.id]


def _copy_tag(
    main: TableContext, target: TableContext, tag: Tag, copy: Callable[[], Tag | None] | None
) -> str | None:
    """Copy a tag and return its name; None if it is deleted or the branch has another of its name.

    Args:
        main: the main branch.
        target: the branch.
        tag: main's.
        copy: finds its copy, if it was copied before main's was read this time.
    """
    path = target.layout.tag_path(tag.name)
    if copy is not None and copy() == tag:
        return tag.name  # the copy was put before main's was read this time: that is the look
    if not target.storage.put_if_absent(path, tag.to_json()):
        there = find_tag(target, tag.name)
        if there == tag or copy is None:
            return tag.name if there == tag else None
        target.storage.put(path, tag.to_json())
    if find_tag(main, tag.name) == tag:
        return tag.name
    take_back(target, tag)
    return None


def _take_savepoint(target: TableContext, savepoint: Savepoint) -> str | None:
    """Pin a savepoint on the branch and return the tag's name; None if it cannot be pinned, or is deleted."""
    if savepoint.saved_snapshot is None:
        return None
    path = target.layout.tag_path(savepoint.pin)
    target.storage.put_if_absent(path, Tag(savepoint.pin, savepoint.saved_snapshot).to_json())
    if find_savepoint(target, savepoint.id) is not None:
        return savepoint.pin
    target.storage.delete(path)
    return None
