"""Tags that keep other engines from deleting files that a rollback restored.

Engines of the Paimon family expire snapshots by a rule of thumb: what snapshot s deleted goes from the store unless
the newest tag before s has it. That assumes that a file is added only once. A rollback gives files a second
life, so each life gets a tag inside of it, and the newest tag before a deletion then has the file:

* the *target* pin, on the snapshot that was rolled back to, put before the commit;
* the *result* pin, on the rollback's own snapshot, put after it.

Both are needed as long as anything older than the rollback is left, be it a snapshot or a tag; `tend_pins` removes
them afterwards. A rollback that restores no file leaves none. Our own expiry needs no pins for that: it checks
reachability.

A destructive rollback has only the target pin, as long as it is under way, with the target's stamp for a commit user: an
expiry leaves snapshots from the target on (`anabranch.kernel.log.removal_marks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import StorageError
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import holds_nothing
from anabranch.kernel.log.store_clock import day_old
from anabranch.kernel.log.tag_log import find_tag, find_tags, tag_times

_PREFIX = "anabranch-rollback-"
_TARGET, _RESULT = "-target", "-result"


def is_rollback_pin(tag_name: str) -> bool:
    """Whether a tag is a rollback pin."""
    return tag_name.startswith(_PREFIX)


def pinned_rollback_of(tag_name: str) -> tuple[str, bool]:
    """The commit user of the rollback that one of these is of, and whether it is on the snapshot it went to."""
    return _user_of(tag_name), tag_name.endswith(_TARGET)


def pin_target(context: TableContext, target: Snapshot, user: str) -> str | None:
    """Hold on to the snapshot that the rollback of this commit user goes to; the path of the pin.

    None where only a savepoint is left of the snapshot: that holds it, and other engines do not know it.
    """
    if target.delta_manifest_list == NO_LIST:
        return None
    _put(context, _target_name(user), target)
    return context.layout.tag_path(_target_name(user))


def is_pinned(context: TableContext, user: str) -> bool:
    """Whether one of the pins of the rollback by this commit user is there."""
    paths = [context.layout.tag_path(name) for name in (_result_name(user), _target_name(user))]
    return any(context.storage.exists(path) for path in paths)


def is_removal_pinned(context: TableContext, target: Snapshot) -> bool:
    """Whether a destructive rollback is still known to be under way; after a day its pin is taken for one of a killed rollback."""
    return context.storage.exists(context.layout.tag_path(_target_name(target.stamp)))


def next_rewound(context: TableContext) -> int | None:
    """Return the lowest snapshot that a destructive rollback under way goes to; None if there is none."""
    names = [name for name in tag_times(context) if name.startswith(_PREFIX) and name.endswith(_TARGET)]
    pinned = (tag.snapshot for tag in find_tags(context, names) if _user_of(tag.name) == tag.snapshot.stamp)
    return min((snapshot.id for snapshot in pinned), default=None)


def pin_result(context: TableContext, result: Snapshot) -> None:
    """Tag the snapshot that a rollback made."""
    _put(context, _result_name(result.commit_user), result)


def unpin(context: TableContext, user: str) -> None:
    """Remove the pins of the rollback by this commit user."""
    for name in (_target_name(user), _result_name(user)):
        context.storage.delete(context.layout.tag_path(name))


@dataclass(frozen=True, slots=True)
class PinCare:
    """Result of `tend_pins`, by names of pins."""

    restored: tuple[str, ...] = ()
    released: tuple[str, ...] = ()


def tend_pins(context: TableContext) -> PinCare:
    """Complete the pins of killed rollbacks, remove those no longer needed. Costs one listing if there are none."""
    found = tag_times(context)
    if not any(is_rollback_pin(name) for name in found):
        return PinCare()
    tags = {name: tag for name in found if (tag := find_tag(context, name)) is not None}
    before = set(tags)
    for user in sorted({_user_of(name) for name in tags if is_rollback_pin(name)}):
        if _result_name(user) not in tags:
            _settle(context, user, tags, found[_target_name(user)])
        if _result_name(user) in tags and not _has_older(context, tags[_result_name(user)], tags):
            for name in (_target_name(user), _result_name(user)):
                tags.pop(name, None)
            unpin(context, user)
    after = set(tags)
    return PinCare(tuple(sorted(after - before)), tuple(sorted(before - after)))


def _settle(context: TableContext, user: str, tags: dict[str, Tag], pinned_at: int) -> None:
    """Complete the pins of a rollback that was killed, or is still under way."""
    target = tags[_target_name(user)].snapshot
    result = _commit_of(context, user, target)
    if result is not None and brings_back(context, result):
        try:
            pin_result(context, result)
        except StorageError as error:
            if not error.out_of_space:
                raise
            return  # a full disk is cleaned first: our own expiry needs no pins, and the next one puts it
        tags[_result_name(user)] = Tag(_result_name(user), result)
    elif result is not None or day_old(context, {user: pinned_at}) or holds_nothing(context, target):
        del tags[_target_name(user)]
        unpin(context, user)


def brings_back(context: TableContext, result: Snapshot) -> bool:
    """Whether a rollback's snapshot restored files."""
    return any(meta.num_added_files for meta in context.manifests.read_list(result.delta_manifest_list))


def _commit_of(context: TableContext, user: str, target: Snapshot) -> Snapshot | None:
    head = context.snapshots.head()
    if head is None:
        return None
    for snapshot in context.snapshots.backwards(head):
        if snapshot.commit_user == user:
            return snapshot
        if snapshot.id <= target.id:
            return None
    return None


def _has_older(context: TableContext, result: Tag, tags: Mapping[str, Tag]) -> bool:
    """Whether anything older than a rollback is left that another engine might expire."""
    earliest = context.snapshots.earliest_id()
    if earliest is not None and earliest < result.snapshot.id:
        return True
    others = (tag for name, tag in tags.items() if not is_rollback_pin(name))
    return any(tag.snapshot.id < result.snapshot.id for tag in others)


def _put(context: TableContext, name: str, snapshot: Snapshot) -> None:
    context.storage.put_if_absent(context.layout.tag_path(name), Tag(name, snapshot).to_json())


def _target_name(user: str) -> str:
    return f"{_PREFIX}{user}{_TARGET}"


def _result_name(user: str) -> str:
    return f"{_PREFIX}{user}{_RESULT}"


def _user_of(name: str) -> str:
    return name.removeprefix(_PREFIX).removesuffix(_TARGET).removesuffix(_RESULT)
