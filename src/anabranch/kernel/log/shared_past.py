"""Snapshots that lie in the folder of one branch and belong to the history of another.

A branch that becomes main copies nothing of the history before its fork: that stays in the folders of the mains before it,
and `Layout.past` says where. So these snapshots have one more owner, and whoever removes some asks here:

* An expiry removes those of main's history, wherever they lie, but none that a consumer of a former main has to read, there or
  where it goes on; one of a branch that was main leaves what is main's.
* Dropping what was main in the table's own folder leaves them; a branch is not deleted as long as some lie in its folder.
* A destructive rollback removes what lies in the branch's own folder, if it belongs to no other.

An expiry, or a destructive rollback, of what was main then, that stood still while main was replaced, would go on with
numbers that are another's by now. Each says what it is about to do before it looks for an announcement, `check_still_main`;
a replacement announces itself before it hands over the ledger and looks for rollbacks: at least one of both finds the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.errors import AnabranchError, CommitConflictError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import StoredTag, inherited_paths
from anabranch.kernel.log.main_branch import as_main_before, last_replacements, main_of
from anabranch.kernel.log.main_pointer import is_dropped, replacements
from anabranch.kernel.log.seals import settled
from anabranch.kernel.log.tag_log import stored_tags


def held_in(context: TableContext, branch: str | None) -> Callable[[int], bool]:
    """Return whether a number in a branch's folder is a snapshot of the history of main, or of a former main that is kept.

    Args:
        context: the table, on any branch.
        branch: the folder's; None for the table's own. What is its own history alone does not count.
    """
    layouts = [one.layout for one in _going_on_in(main_of(_as_table(context)), branch)]
    return lambda number: any(layout.home_of(number) == branch for layout in layouts)


def is_of_another(context: TableContext, oldest: Snapshot) -> bool:
    """Whether the oldest snapshot of a branch belongs to the history of main, or of a former main that is kept.

    What main's own history goes back to is removed by main, wherever it lies.
    """
    if context.main_generation is not None:
        return False
    home = context.layout.home_of(oldest.id)
    if home == context.branch:
        return held_in(context, home)(oldest.id)
    return main_of(context.on_branch(None)).branch_uuid != context.branch_uuid


def is_named(context: TableContext, branch: str) -> bool:
    """Whether the history of main, or of a former main that is kept, goes on or went on in a branch's folder."""
    return any(True for _ in _going_on_in(main_of(_as_table(context)), branch))


def former_mains(main: TableContext) -> Iterator[TableContext]:
    """Yield the branches that were main before, latest first, each as it was when it was main for the last time."""
    return (as_main_before(main, pointer) for pointer in last_replacements(main))


def sharing(main: TableContext) -> Iterator[tuple[TableContext, int]]:
    """Yield the former mains whose consumers may still have to read what main has: it has not expired beyond their fork.

    Each with the number of the snapshot that both went on from, of which each main has a file of its own.
    """
    if not main.main_generation:
        return
    earliest = main.snapshots.hinted_earliest_id() or 1
    for former in former_mains(main):
        fork = former.layout.shared_up_to(main.layout) + 1
        if fork + 1 >= earliest:
            yield former, fork


def check_still_main(context: TableContext) -> None:
    """Raise `CommitConflictError` if main was replaced since it was opened; waits for the end of a replacement under way.

    For a branch that was not opened as main it only waits: then `held_in` tells what is another's.
    """
    now = settled(_as_table(context))
    if context.main_generation is not None and now.branch_uuid != context.branch_uuid:
        raise CommitConflictError(
            f"main of '{context.name}' was replaced while old snapshots of what was main were to be removed",
            hint="nothing was removed; open the table again and repeat it.",
        )


def forget_inherited(main: TableContext, branch: TableContext) -> None:
    """Remove what is stored of the tags that a branch inherited when it became main: the branch is deleted."""
    numbers = {
        pointer.past[0].tags
        for pointer in replacements(main)
        if pointer.main.uuid == branch.branch_uuid and pointer.past
    }
    paths = [path for number in numbers if number is not None for path in inherited_paths(main, number)]
    if paths:
        main.storage.delete_many(paths)


def left_of_inherited(main: TableContext) -> list[StoredTag]:
    """Return what main may have inherited, from the folders of former mains, where its own files of that are lost."""
    left: dict[str, StoredTag] = {}
    up_to = None
    for pointer in last_replacements(main):
        assert pointer.replaced is not None, "it is a replacement"
        fork = pointer.replaced.fork.id
        up_to = fork if up_to is None else min(up_to, fork)
        for stored in stored_tags(main.on_branch(pointer.replaced.old.name), _leave_out):
            if stored.tag.snapshot.id <= up_to:
                left.setdefault(stored.tag.name, stored)
    return [*left.values()]


def _leave_out(_what: str, _error: AnabranchError) -> None:
    """What cannot be read either is told by `verify`."""


def _going_on_in(main: TableContext, branch: str | None) -> Iterator[TableContext]:
    """Yield main and the former mains that are kept, of those whose history goes on in the folder of another branch."""
    if _goes_on_in(main, branch):
        yield main
    for pointer in last_replacements(main):
        assert pointer.replaced is not None, "it is a replacement"
        former = as_main_before(main, pointer)
        if pointer.replaced.undoes is not None or not _goes_on_in(former, branch):
            continue  # what was undone is a branch like any other
        if not is_dropped(main, pointer):
            yield former


def _goes_on_in(main: TableContext, branch: str | None) -> bool:
    return main.branch != branch and any(part.branch == branch for part in main.past)


def _as_table(context: TableContext) -> TableContext:
    return context if context.main_generation is not None else context.on_branch(None)
