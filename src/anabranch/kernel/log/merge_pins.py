"""Tags that pin merged snapshots, so that no engine's expiry removes their files.

After a merge main and the branch share files, and each may delete them from its own history. Engines that do not check
other branches still spare tagged snapshots; so there is a tag on the branch, of what was merged, and one on main, of
the merge's result. Our own expiry needs none: it checks all refs. A pin is removed once a newer one exists and history
no longer reaches back to before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.merge_log import MergeLog, merge_log
from anabranch.kernel.log.merge_record import MergeEnd, MergeRecord
from anabranch.kernel.log.moment import check_holds, of_snapshot
from anabranch.kernel.log.store_clock import day_old
from anabranch.kernel.log.tag_log import (
    delete_tags,
    find_tag,
    find_tags,
    is_internal,
    put_tag,
    tag_names,
    tag_times,
)

MERGE_PIN_PREFIX: Final = f"{RESERVED_TAG_PREFIX}merge-"
"""Tags that hold what was merged."""


def branch_pin(number: int) -> str:
    """Return the name of the branch's tag that holds the head taken by a merge."""
    return f"{MERGE_PIN_PREFIX}{number}"


def main_pin(branch_uuid: str, number: int) -> str:
    """Return the name of main's tag that holds the result of a merge."""
    return f"{MERGE_PIN_PREFIX}{branch_uuid}-{number}"


def pin_head(branch: TableContext, record: MergeRecord, *, is_new: bool = False) -> bool:
    """Tag the merged head on the branch; False if it has already expired.

    Args:
        branch: the branch.
        record: the merge.
        is_new: whether its record was put just now: nobody can have tagged the head for it before.
    """
    name = branch_pin(record.number)
    found = None if is_new else find_tag(branch, name)
    if found is not None and found.snapshot.stamp == record.head.stamp:
        return True
    put_tag(branch, name, record.head)
    try:
        check_holds(branch, of_snapshot(record.head))
    except AnabranchError:
        branch.storage.delete(branch.layout.tag_path(name))
        return False
    return True


def pin_result(main: TableContext, branch_uuid: str, number: int, made: Snapshot) -> None:
    """Tag the result of a merge on main."""
    put_tag(main, main_pin(branch_uuid, number), made)


def is_merge_pin(tag_name: str) -> bool:
    """Whether a tag is a merge pin."""
    return tag_name.startswith(MERGE_PIN_PREFIX)


def pinned_merge_of(tag_name: str) -> tuple[str | None, int]:
    """Return the branch (None for a pin on the branch itself) and the number of the merge that a pin belongs to."""
    uuid, _, number = tag_name.removeprefix(MERGE_PIN_PREFIX).rpartition("-")
    return uuid or None, int(number) if number.isascii() and number.isdigit() else 0


def unpin_after(main: TableContext, snapshot_id: int) -> None:
    """Remove main's pins of merge results after a snapshot that history is cut back to."""
    pins = find_tags(main, [name for name in tag_names(main) if is_merge_pin(name)])
    delete_tags(main, (pin.name for pin in pins if pin.snapshot.id > snapshot_id))


def unpin_merges(main: TableContext, branch_uuid: str) -> None:
    """Remove main's pins of the merges of a deleted branch."""
    prefix = f"{MERGE_PIN_PREFIX}{branch_uuid}-"
    delete_tags(main, (name for name in tag_names(main) if name.startswith(prefix)))


@dataclass(frozen=True, slots=True)
class MergePinCare:
    """Result of `tend_merge_pins`."""

    restored: tuple[str, ...] = ()
    """Branches that lacked a pin, on main or on the branch."""
    released: int = 0
    """Number of removed pins that were no longer needed."""


def tend_merge_pins(
    main: TableContext, branches: Sequence[TableContext] | None = None, *, dry_run: bool = False
) -> MergePinCare:
    """Put back what others removed, and remove what is needed no more.

    Args:
        main: the main branch.
        branches: all others, as they were found; None to look for them.
    """
    if branches is None:
        branches = [main.on_branch(name) for name in branch_names(main)]
    restored: list[str] = []
    released = 0
    foreign = {name: made for name, made in tag_times(main).items() if is_merge_pin(name)}
    is_known = True
    for branch in branches:
        name = branch.branch or ""
        try:
            if branch.fork is None or main.branch == name:
                continue
        except CorruptTableError:
            is_known = False  # any of them may be of this branch
            continue
        prefix = f"{MERGE_PIN_PREFIX}{branch.fork.branch_uuid}-"
        on_main = {pin: made for pin, made in foreign.items() if pin.startswith(prefix)}
        foreign = {pin: made for pin, made in foreign.items() if pin not in on_main}
        if state_of(branch) is not BranchState.READY:
            continue
        # The pins before the records: a merge puts its record first, so each pin seen has its record in the log.
        on_branch = {tag for tag in tag_names(branch) if tag.startswith(MERGE_PIN_PREFIX)}
        log = merge_log(branch)
        sides = (
            (branch, _wanted_on_branch(branch, log), on_branch),
            (main, _wanted_on_main(main, branch.fork.branch_uuid, log), set(on_main)),
        )
        for side, wanted, there in sides:
            missing = {pin: snapshot for pin, snapshot in wanted.items() if pin not in there and snapshot}
            if missing:
                restored.append(name)
            released += _settle(side, missing, there - wanted.keys(), dry_run=dry_run)
    released += _settle(main, {}, day_old(main, foreign if is_known else {}), dry_run=dry_run)
    return MergePinCare(tuple(dict.fromkeys(restored)), released)


def _wanted_on_branch(branch: TableContext, log: MergeLog) -> dict[str, Snapshot | None]:
    """Return the pins that a branch needs and their snapshots; merges under way put their own."""
    made = {end.number: log.records[end.number].head for end in _made(log)}
    kept = _kept(branch, {number: head.id for number, head in made.items()})
    wanted: dict[str, Snapshot | None] = {branch_pin(number): made[number] for number in kept}
    return wanted | {branch_pin(record.number): None for record in log.under_way}


def _wanted_on_main(main: TableContext, branch_uuid: str, log: MergeLog) -> dict[str, Snapshot | None]:
    """Return the pins of a branch that main needs; None for those that cannot be restored."""
    ends = {end.number: end.snapshot for end in _made(log) if end.snapshot is not None}
    mine = {number: ref for number, ref in ends.items() if ref.branch_uuid == main.branch_uuid}
    kept = _kept(main, {number: ref.id for number, ref in mine.items()})
    wanted: dict[str, Snapshot | None] = {}
    for number in kept:
        found = main.snapshots.find(mine[number].id)
        is_it = found is not None and found.stamp == mine[number].stamp
        wanted[main_pin(branch_uuid, number)] = found if is_it else None
    return wanted | {main_pin(branch_uuid, record.number): None for record in log.under_way}


def _made(log: MergeLog) -> Iterator[MergeEnd]:
    return (end for end in log.ends.values() if end.snapshot is not None and end.number in log.records)


def _kept(side: TableContext, pinned: Mapping[int, int]) -> list[int]:
    """Return the merges whose pins are needed, given the id of the snapshot that each holds."""
    if not pinned:
        return []
    earliest = side.snapshots.earliest_id() or 0
    tags = find_tags(side, [name for name in tag_names(side) if not is_internal(name)])
    kept = [
        number
        for number, following in pairwise(sorted(pinned))
        if earliest < pinned[following]
        or any(pinned[number] < tag.snapshot.id <= pinned[following] for tag in tags)
    ]
    return [*kept, max(pinned)]


def _settle(
    side: TableContext,
    missing: Mapping[str, Snapshot | None],
    extra: Sequence[str] | set[str],
    *,
    dry_run: bool,
) -> int:
    """Put and remove pins; return how many were removed."""
    if not dry_run:
        for name, snapshot in missing.items():
            if snapshot is not None:
                put_tag(side, name, snapshot)
        delete_tags(side, extra)
    return len(extra)
