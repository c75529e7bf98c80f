"""Removes a branch's metadata; data files that only it reached go with the next cleaning.

1. An empty ``DELETING`` is put in its folder: from here on we no longer treat it as a branch.
2. It is checked again whether the branch is main: a replacement checks for that file, and for the branch itself,
   between its announcement and its decision, so of a racing deletion and replacement, one gives way.
3. Main gets files of its own for what it inherits of the branch's tags. The branch's operations are recorded beside the
   branches (`operations`), and its snapshots' metadata in the archive of the table.
4. Savepoints, which lie with those of all branches; then snapshots and tags, then schemas, then the rest.
5. The pins on main; ``FORK``; ``DELETING``.

A deletion that died is completed by the next one. A concurrent writer to the branch notices
after its put, when the snapshot it built on is gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.fork import DELETING_FILE, FORK_FILE, Fork
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.main_pointer import former_main_name
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.text.names import check_is_text
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
from anabranch.kernel.log.shared_past import forget_inherited, held_in
from anabranch.kernel.refs.savepoints import delete_savepoint
from anabranch.kernel.refs.tags import own_inherited


@dataclass(frozen=True, slots=True)
class DeletedBranch:
    """A branch that was removed."""

    name: str
    fork: Fork | None
    """Its fork record; None if another engine made it, or only leftovers were there."""
    savepoints: tuple[int, ...]
    """The savepoints that were removed with it."""


def delete_branch(main: TableContext, name: str, *, dry_run: bool = False) -> DeletedBranch:
    """Remove a branch, or what an interrupted creation or removal left of it.

    Args:
        main: the table.
        name: of the branch.
        dry_run: only say what would be removed, or why it may not be.

    Raises:
        NotFoundError: there is no such branch.
        InvalidInputError: the branch is main now, or is kept as a former main.
    """
    check_is_text("branch", name)
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
    if dry_run:
        check_may_go(main, branch)
        return DeletedBranch(name, branch.fork, _savepoints_of_it_alone(branch))
    mark = branch.layout.branch_file_path(DELETING_FILE)
    try:
        check_may_go(main, branch)
        branch.storage.put(mark, b"")
        main = settled(main)
        check_may_go(main, branch)
    except InvalidInputError:
        # Also what another deletion left that died here: one that may go on has marked the branch before it could be main.
        branch.storage.delete(mark)
        raise
    own_inherited(main, branch)
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
    forget_inherited(main, branch)
    return DeletedBranch(name, branch.fork, numbers)


def is_being_deleted(branch: TableContext) -> bool:
    """Whether deletion of the branch has begun: it must not become main any more."""
    return branch.branch is not None and branch.storage.exists(branch.layout.branch_file_path(DELETING_FILE))


def check_may_go(main: TableContext, branch: TableContext) -> None:
    """Raise `InvalidInputError` if the branch is main, or a main that was replaced and is kept."""
    if main.branch == branch.branch:
        raise InvalidInputError(
            f"branch '{branch.branch}' is the main branch of '{main.name}' and cannot be deleted",
            hint="replace main with another branch first.",
        )
    pointer = succession(main, branch.branch_uuid)
    if pointer is None or pointer.replaced is None:
        return
    if pointer.replaced.undoes is not None:  # a branch like any other
        if any(map(held_in(main, branch.branch), branch.snapshots.own_ids())):
            raise InvalidInputError(
                f"branch '{branch.branch}' of '{main.name}' was main, and a part of main's past lies in its folder",
                hint="it can be deleted once those snapshots have expired.",
            )
        return
    release = find_release(main, pointer.generation)
    if release is None or release.what != "drop":
        raise InvalidInputError(
            f"branch '{branch.branch}' of '{main.name}' is kept as '{former_main_name(pointer.generation)}', the main "
            "that was replaced",
            hint="it goes when branch.replaced-main.time-retained is over and nothing needs it; `maintain` says what does."
            if release is None
            else "somebody began to make it main again and did not come to the end: repeat that, `undo-replace`.",
        )


def _delete_savepoints(branch: TableContext) -> tuple[int, ...]:
    numbers = _savepoints_of_it_alone(branch)
    for number in numbers:
        with suppress(NotFoundError):  # another process was faster
            delete_savepoint(branch, number)
    return numbers


def _savepoints_of_it_alone(branch: TableContext) -> tuple[int, ...]:
    return tuple(found.id for found in savepoints(branch) if not _is_elsewhere(branch, found))


def _is_elsewhere(branch: TableContext, savepoint: Savepoint) -> bool:
    """Whether another branch has the savepoint too: of two former mains, one took over the past of the other."""
    others = (readable_branch(branch, name) for name in branch_names(branch) if name != branch.branch)
    return any(is_of(other, savepoint) for other in (branch.on_branch(None), *others))


def _delete_files(branch: TableContext) -> None:
    """Delete all but the two marker files. What refers to schemas goes before them."""
    storage, layout = branch.storage, branch.layout
    ids = branch.snapshots.ids()
    # The newest last: whoever holds the branch open must not take an older one for the newest.
    storage.delete_many([layout.snapshot_path(number) for number in ids[:-1]])
    for folder in (layout.snapshot_folder, layout.tag_folder, layout.consumer_folder, layout.schema_folder):
        storage.delete_folder(folder)
    kept = {layout.branch_file_path(FORK_FILE), layout.branch_file_path(DELETING_FILE)}
    infos = storage.list(layout.branch_root, recursive=True, include_temporary=True)
    storage.delete_many([info.path for info in infos if info.path not in kept])
