"""Removing a branch: its metadata goes; data files that only it reached go with the next cleaning.

1. An empty ``DELETING`` in its folder: from here on it is no branch any more, for us.
2. It is looked again whether the branch is main: a replacement looks for that file, and whether the branch is there at
   all, between its announcement and its decision, so of a deletion and a replacement that cross, one gives way.
3. What was done with the branch is written down beside the branches (`operations`), and what its snapshots said, in the
   archive of the table.
4. Savepoints, which lie with those of all branches; then snapshots and tags, then schemas, then the rest.
5. The pins on main; ``FORK``; ``DELETING``.

A deletion that died is brought to its end by the next. Somebody who writes to the branch meanwhile finds out when
looking, after the put, whether the snapshot built on is there still.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.fork import DELETING_FILE, FORK_FILE, Fork
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import former_main_name
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.branches.lost_fork import readable_branch
from anabranch.kernel.branches.operations import record_deletion
from anabranch.kernel.log.archive import archive_rest
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import unpin_fork
from anabranch.kernel.log.lost_pointers import check_decisions
from anabranch.kernel.log.main_branch import main_of, succession
from anabranch.kernel.log.main_pointer import find_release
from anabranch.kernel.log.merge_pins import unpin_merges
from anabranch.kernel.log.savepoint_log import is_of, savepoints
from anabranch.kernel.log.seals import settled
from anabranch.kernel.refs.savepoints import delete_savepoint


@dataclass(frozen=True, slots=True)
class DeletedBranch:
    """A branch that was removed."""

    name: str
    fork: Fork | None
    """How it began; None if another engine made it, or nothing but leavings was there."""
    savepoints: tuple[int, ...]
    """The savepoints it had, which went with it."""


def delete_branch(main: TableContext, name: str) -> DeletedBranch:
    """Remove a branch, or what an interrupted creation or removal left of it.

    Args:
        main: the main branch.
        name: of the branch.

    Raises:
        NotFoundError: there is no such branch.
        InvalidInputError: the branch is main now, or is kept as one that was.
    """
    main = main_of(main)
    if name == MAIN_BRANCH:
        raise InvalidInputError(f"main of '{main.name}' cannot be deleted", hint="drop the table instead.")
    branch = main.on_branch(name) if "/" in name else readable_branch(main, name)
    if "/" in name or state_of(branch) is BranchState.ABSENT:
        known = ", ".join(branch_names(main)) or "none besides main"
        raise NotFoundError(
            f"branch '{name}' does not exist in '{main.name}'", hint=f"branches there are: {known}."
        )
    check_decisions(main)
    _check_may_go(main, branch)
    mark = branch.layout.branch_file_path(DELETING_FILE)
    branch.storage.put(mark, b"")
    main = settled(main)
    try:
        _check_may_go(main, branch)
    except InvalidInputError:
        branch.storage.delete(mark)
        raise
    record_deletion(branch)
    archive_rest(branch)
    numbers = _delete_savepoints(branch)
    _delete_files(branch)
    if branch.fork is not None:
        unpin_merges(main, branch.fork.branch_uuid)
        unpin_fork(main, branch.fork.branch_uuid)
    for kept in (FORK_FILE, DELETING_FILE):
        branch.storage.delete(branch.layout.branch_file_path(kept))
    branch.storage.delete_folder(branch.layout.branch_root)
    return DeletedBranch(name, branch.fork, numbers)


def is_being_deleted(branch: TableContext) -> bool:
    """Whether somebody began to delete the branch: it must not become main any more."""
    return branch.branch is not None and branch.storage.exists(branch.layout.branch_file_path(DELETING_FILE))


def _check_may_go(main: TableContext, branch: TableContext) -> None:
    if main.branch == branch.branch:
        raise InvalidInputError(
            f"branch '{branch.branch}' is the main branch of '{main.name}' and cannot be deleted",
            hint="replace main with another branch first.",
        )
    pointer = succession(main, branch.branch_uuid)
    if pointer is None or pointer.replaced is None or pointer.replaced.undoes is not None:
        return  # what was main until a replacement was taken back is a branch like any other
    release = find_release(main, pointer.generation)
    if release is None or release.what != "drop":
        raise InvalidInputError(
            f"branch '{branch.branch}' of '{main.name}' is kept as '{former_main_name(pointer.generation)}', the main "
            "that was replaced",
            hint="it goes when branch.replaced-main.time-retained is over."
            if release is None
            else "somebody began to make it main again and did not come to the end: repeat that, `undo-replace`.",
        )


def _delete_savepoints(branch: TableContext) -> tuple[int, ...]:
    numbers = tuple(found.id for found in savepoints(branch) if not _is_elsewhere(branch, found))
    for number in numbers:
        with suppress(NotFoundError):  # somebody else was faster
            delete_savepoint(branch, number)
    return numbers


def _is_elsewhere(branch: TableContext, savepoint: Savepoint) -> bool:
    """Whether another branch has a savepoint too: of two that were main, one took over the past of the other."""
    others = (readable_branch(branch, name) for name in branch_names(branch) if name != branch.branch)
    return any(is_of(other, savepoint) for other in (branch.on_branch(None), *others))


def _delete_files(branch: TableContext) -> None:
    """All but the two files that say what this is. What refers to schemas goes before them."""
    storage, layout = branch.storage, branch.layout
    ids = branch.snapshots.ids()
    # The newest last: nobody who holds the branch open takes an older one for the newest.
    storage.delete_many([layout.snapshot_path(number) for number in ids[:-1]])
    for folder in (layout.snapshot_folder, layout.tag_folder, layout.consumer_folder, layout.schema_folder):
        storage.delete_folder(folder)
    kept = {layout.branch_file_path(FORK_FILE), layout.branch_file_path(DELETING_FILE)}
    infos = storage.list(layout.branch_root, recursive=True, include_temporary=True)
    storage.delete_many([info.path for info in infos if info.path not in kept])
