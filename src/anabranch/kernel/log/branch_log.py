"""The branches of a table, by name, and the state of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from anabranch.errors import CorruptTableError, NotFoundError, WarehouseMissingError
from anabranch.format.records.fork import DELETING_FILE, FORK_FILE
from anabranch.format.records.layout import MAIN_BRANCH, Layout, branch_name_of
from anabranch.format.records.main_pointer import former_main_of
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import check_is_text, fits_file
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import former_main, main_of
from anabranch.kernel.log.parallel import reading
from anabranch.storage.open import local_folder


class BranchState(StrEnum):
    """State of a branch in its creation or deletion."""

    ABSENT = "absent"
    """No files, or only a LATEST/EARLIEST hint by a writer that raced with the deletion."""
    BEGUN = "begun"
    """Being created, or left by a creation that died."""
    READY = "ready"
    DELETING = "deleting"
    """Being deleted, or left by a deletion that died."""
    DAMAGED = "damaged"
    """Complete, but its fork record cannot be read. Reported by whoever needs the record, not by `state_of`."""
    LEFT_OVER = "left-over"
    """Files without a branch: written by a late writer, or by one that never finished."""


def branch_names(context: TableContext) -> list[str]:
    """Names of all branches except main, sorted."""
    folders = context.storage.list_folders("branch")
    return sorted(name for folder in folders if (name := branch_name_of(folder)) is not None)


def state_of(branch: TableContext) -> BranchState:
    """Return the state of a branch, read from the store anew."""
    root = branch.layout.branch_root
    # In whatever order: what is asked later only shows what came later.
    with reading(branch.storage) as begin:
        listing, snapshots = begin(lambda: [*branch.storage.list(root)]), begin(branch.snapshots.has_own)
        files = {info.path.rpartition("/")[2] for info in listing()}
        if DELETING_FILE in files:
            return BranchState.DELETING
        if FORK_FILE in files:
            # The first snapshot is put when all else is there.
            return BranchState.READY if snapshots() else BranchState.BEGUN
    if branch.schemas.ids():
        # Branches of other engines have no record, and may be without a snapshot. Ours get it before their schemas.
        is_ours = branch.storage.exists(branch.layout.branch_file_path(FORK_FILE))
        return state_of(branch) if is_ours else BranchState.READY
    hints = {branch.layout.latest_hint_path, branch.layout.earliest_hint_path}
    there = any(info.path not in hints for info in branch.storage.list(root, recursive=True))
    return BranchState.LEFT_OVER if there else BranchState.ABSENT


def open_branch(context: TableContext, branch: str) -> TableContext:
    """Open a branch by name; ``main`` and ``main@1`` (the main that replacement 1 replaced) work too.

    Raises `NotFoundError` naming the existing branches.
    """
    check_is_text("branch", branch)
    if branch == MAIN_BRANCH:
        return main_of(context.on_branch(None))
    replacement = former_main_of(branch)
    if replacement is not None:
        return former_main(context, replacement)
    found = context.on_branch(branch)
    with reading(context.storage) as begin:
        begun = begin(found.read_fork)
        naming = begin(partial(main_of, context.on_branch(None)))
        state = state_of(found) if fits_file(branch) else BranchState.ABSENT
        if state is BranchState.READY:
            fork = begun()  # read now, so that it is known which branch was opened
            found = found if fork is None else found.with_fork(fork)
            found = _with_past(found, naming)
            assert found.fork is None or found.fork.name, "read again where it came after the first look"
            return found
    known = branch_names(context)
    known_text = f"branches there are: main{''.join(f', {name}' for name in known if name != branch)}."
    if state in (BranchState.BEGUN, BranchState.DELETING):
        doing = "created" if state is BranchState.BEGUN else "deleted"
        raise NotFoundError(
            f"branch '{branch}' of '{context.name}' is being {doing}",
            hint=f"{known_text} If nobody is at it any more, repeat it to bring it to its end.",
        )
    raise NotFoundError(f"branch '{branch}' does not exist in '{context.name}'", hint=known_text)


def _with_past(branch: TableContext, naming: Callable[[], TableContext]) -> TableContext:
    """Return a branch with main's past if it is main; `naming` tells which is."""
    try:
        main = naming()
    except CorruptTableError:
        return branch  # what is main is not known: a branch can be read by its name all the same
    return replace(branch, past=main.past) if main.past and main.branch == branch.branch else branch


def check_still_there(branch: TableContext) -> None:
    """Raise `NotFoundError` if the table or branch is not there any more; for whoever finds nothing in it.

    `WarehouseMissingError` if the folder above it is gone as well, as where a disk or mount is away.
    """
    if branch.branch is None:
        check_table_there(branch)
        return
    state = state_of(branch)
    # A deletion that died before it saw that the branch is main has left its mark.
    is_marked = state is BranchState.DELETING and branch.main_generation is not None
    if state is not BranchState.READY and not is_marked:
        check_table_there(branch)  # it may be all of it
        if branch.main_generation is not None:
            raise NotFoundError(
                f"branch '{branch.branch}', which is main of '{branch.name}', is not there: somebody deleted or renamed it",
                hint="`repair` makes main again from what is left; remove no files before.",
            )
        raise NotFoundError(
            f"branch '{branch.branch}' of '{branch.name}' was deleted since it was opened",
            hint="what it merged into main stays; `branches` lists those there are.",
        )


def being_made(context: TableContext) -> NotFoundError:
    """Return the error for a table or branch that is there without a schema."""
    return NotFoundError(
        f"'{context.title}' has no schema: it was deleted while this was going on, and is being made again",
        hint="open it again when it is there.",
    )


def check_table_there(context: TableContext) -> None:
    """Raise as `check_still_there` if nothing is left of the whole table."""
    own = Layout()
    if any(True for folder in (own.schema_folder, own.snapshot_folder) for _ in context.storage.list(folder)):
        return
    folder = local_folder(context.storage.url)
    if folder is not None and not Path(folder).parents[1].is_dir():
        raise WarehouseMissingError(
            f"the warehouse of '{context.name}' was there and is gone: {Path(folder).parents[1]}",
            hint="if its disk or mount is away, mount it again: nothing is lost by that.",
        )
    raise NotFoundError(
        f"table '{context.name}' is not there any more: there is no schema in {context.storage.url}",
        hint="it was dropped or renamed since it was opened (`tables` lists those there are), or its disk or mount is away.",
    )


def newest_schema(context: TableContext) -> TableSchema:
    """Return the newest schema of an open table. Raises as `check_still_there`."""
    found = context.schemas.latest()
    if found is None:
        check_still_there(context)
    assert found is not None, "a table or branch has a schema"
    return found


def check_still_the_same(branch: TableContext) -> None:
    """Raise `NotFoundError` if the table or branch was dropped since it was opened, even if made again under its name.

    For operations that change something without looking at a snapshot first.
    """
    with reading(branch.storage) as begin:
        checks = begin(branch.check_same_table), begin(lambda: check_still_there(branch))
        other = begin(lambda: branch.fork is not None and branch.is_other_branch())
        for check in checks:
            check()
        is_other = other()
    if is_other:
        raise NotFoundError(
            f"branch '{branch.branch}' of '{branch.name}' was dropped and created again since it was opened",
            hint="open it again.",
        )
