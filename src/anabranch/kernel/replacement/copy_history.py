"""Copies main's past to a branch that becomes main: the history before the fork belongs to both.

Snapshots are copied newest first, in batches, so that the branch's past has no gap except for the batch being
written: it is not needed before the branch is main, and a repetition fills it. A batch is written first, in
parallel, and then one listing shows whether the originals still exist; if not, the copies are removed: an expiry
that removed an original before shows in that check, and one that comes later finds the copy. The same holds for each
single tag. A savepoint belongs to the table; the tag that pins it on a branch makes it one of the branch.

All of it is idempotent, and harmless for a branch that does not become main after all. A crash before the check
may leave a snapshot whose files are gone, so what main has expired is removed from the branch too: see `drop_expired`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint, pinned_savepoint_of
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.branches.upkeep import drop_expired
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.context import TableContext, delete_exactly
from anabranch.kernel.log.ledger import take_over
from anabranch.kernel.log.moment_pins import is_pin
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.ref_log import find_savepoint, find_tag, find_tags, savepoints, tag_names

_AT_ONCE: Final = 512
"""Snapshots per batch: they are held in memory and checked by one listing."""


@dataclass(frozen=True, slots=True)
class CopiedPast:
    """Copied part of main's past on a branch."""

    snapshots: int
    """Number of snapshots copied by this call."""
    tags: frozenset[str]
    """Names of the copied tags, including those that pin savepoints."""


def copy_past(main: TableContext, target: TableContext, fork: SnapshotRef) -> CopiedPast:
    """Copy main's snapshots below the fork, and the tags and savepoints up to it, to a branch.

    If the branch no longer has the fork snapshot, only tags and savepoints are copied.
    """
    copied = _copy_snapshots(main, target, fork)
    drop_expired(main, target, fork)
    return CopiedPast(copied, copy_refs(main, target, fork))


def copy_refs(
    main: TableContext, target: TableContext, fork: SnapshotRef, before: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Copy main's past tags, savepoints and ledger to a branch; return the names of the tags.

    Args:
        main: the main branch.
        target: the branch.
        fork: the fork snapshot.
        before: the tags that were copied already; those are copied again if they changed on main.
    """
    take_over(main, target, fork)
    tags = _tags_of_past(main, fork)
    saved = [s for s in savepoints(main) if s.saved_snapshot_id <= fork.id]
    copied = each(lambda tag: _copy_tag(main, target, tag, again=tag.name in before), tags, at=main.storage)
    taken = each(lambda savepoint: _take_savepoint(target, savepoint), saved, at=main.storage)
    return frozenset(name for name in (*copied, *taken) if name is not None)


def drop_stale(target: TableContext, before: frozenset[str], now: frozenset[str]) -> None:
    """Remove copied tags that have been deleted from main since."""
    target.storage.delete_many([target.layout.tag_path(name) for name in sorted(before - now)])


def tag_clashes(main: TableContext, target: TableContext, fork: SnapshotRef) -> Iterator[Conflict]:
    """The tags of main's past that cannot be copied, because the branch calls something else so."""
    tags = _tags_of_past(main, fork)
    named = set(tag_names(target)) if tags else set()
    alike = {tag.name: tag for tag in find_tags(target, [tag.name for tag in tags if tag.name in named])}
    for tag in tags:
        there = alike.get(tag.name)
        if there is not None and there.snapshot.stamp != tag.snapshot.stamp:
            yield Conflict(
                "TAG_CLASH",
                f"the tag '{tag.name}' names snapshot {tag.snapshot.id} on main of '{main.name}', and another snapshot, "
                f"{there.snapshot.id}, on '{target.title}'",
                "rename one of them.",
            )


def _copy_snapshots(main: TableContext, target: TableContext, fork: SnapshotRef) -> int:
    begun, parted = target.snapshots.find(fork.id), main.snapshots.find(fork.id)
    if begun is None or parted is None or not begun.stamp == parted.stamp == fork.stamp:
        return 0
    copied, lowest = 0, fork.id
    known = set(target.snapshots.ids())
    if all(number in known or number > fork.id for number in main.snapshots.ids()):
        return 0
    past = main.snapshots.stored_below(parted)
    while batch := {snapshot.id: data for snapshot, data in islice(past, _AT_ONCE)}:
        missing = {number: data for number, data in batch.items() if number not in known}
        there = _copy_batch(main, target, fork, missing)
        copied += there
        if there < len(missing):
            break  # they were expired meanwhile, and all before them
        lowest = min(batch)
    if copied:
        target.storage.put(target.layout.earliest_hint_path, str(lowest).encode(), durable=False)
    return copied


def _copy_batch(
    main: TableContext, target: TableContext, fork: SnapshotRef, snapshots: Mapping[int, bytes]
) -> int:
    """Copy these snapshots; return how many were copied and are still main's."""
    paths = {target.layout.snapshot_path(number): data for number, data in snapshots.items()}
    each(lambda path: target.storage.put_if_absent(path, paths[path]), [*paths], at=target.storage)
    there = set(main.snapshots.ids()) if snapshots else set()
    gone = [number for number in snapshots if number not in there]
    if gone:
        # Another replacement may have copied what lies below: there must be no gap.
        drop_expired(main, target, fork)
    for number in sorted(gone):
        delete_exactly(target.storage, target.layout.snapshot_path(number), snapshots[number])
    return len(snapshots) - len(gone)


def _tags_of_past(main: TableContext, fork: SnapshotRef) -> list[Tag]:
    names = [name for name in tag_names(main) if not is_pin(name) and pinned_savepoint_of(name) is None]
    return [tag for tag in find_tags(main, names) if tag.snapshot.id <= fork.id]


def _copy_tag(main: TableContext, target: TableContext, tag: Tag, *, again: bool) -> str | None:
    """Copy a tag and return its name; None if it is deleted or the branch has another of its name."""
    path = target.layout.tag_path(tag.name)
    if again and find_tag(target, tag.name) == tag:
        return tag.name  # the copy was put before main's was read this time: that is the look
    if not target.storage.put_if_absent(path, tag.to_json()):
        there = find_tag(target, tag.name)
        if there == tag or not again:
            return tag.name if there == tag else None
        target.storage.put(path, tag.to_json())
    if find_tag(main, tag.name) == tag:
        return tag.name
    delete_exactly(target.storage, path, tag.to_json())
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
