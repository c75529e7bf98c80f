"""Opens the branches and savepoints of a table for checks, even if records are damaged or missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from anabranch.errors import AnabranchError, CorruptTableError, UnsupportedFeatureError
from anabranch.format.records.fork import FORK_FILE
from anabranch.format.records.layout import savepoint_id_of
from anabranch.format.records.savepoint import Savepoint, pin_name, pinned_savepoint_of
from anabranch.kernel.branches.lost_fork import is_fork_gone, recovered_fork
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import belongs_on_main, fork_pin, is_fork_pinned
from anabranch.kernel.log.main_branch import succession
from anabranch.kernel.log.savepoint_log import is_of, read_numbers
from anabranch.kernel.log.tag_log import find_tag, tag_names
from anabranch.kernel.repair.found import Found, Kind, Problem, RefState, dropped_if_known, of_branch, tried


def as_found(main: TableContext, branch: TableContext, problems: list[Problem]) -> tuple[TableContext, bool]:
    """Open a branch, with a recovered fork record if needed; return it and whether its identity is known.

    Args:
        problems: problems with the record are added.
    """
    if branch.branch is None:
        return branch, True
    path = branch.layout.branch_file_path(FORK_FILE)
    try:
        if (
            branch.fork is not None
            or state_of(branch) is not BranchState.READY
            or not is_fork_gone(main, branch)
        ):
            return branch, True
        message = f"{path}: is gone, though branch '{branch.branch}' was made by us"
    except UnsupportedFeatureError as error:  # what it says is not ours to guess
        problems.append(Problem(Kind.BRANCH, error.message, path, branch.branch, hint=error.hint))
        return branch.with_fork(None), False
    except CorruptTableError as error:
        message = str(error.message)
    fork = recovered_fork(main, branch)
    again = (
        None
        if fork is None
        else (
            "make it again from the branch's pin and its schemas; how long the branch was to be kept is not known any more, so "
            "`maintain` does not delete it"
        )
    )
    hint = "`delete-branch` removes the branch; rows that main or tags have stay." if fork is None else None
    problems.append(
        Problem(
            Kind.BRANCH,
            f"{message}: who the branch is, where it began and what it may merge stands there",
            path,
            branch.branch,
            repair=again,
            hint=hint,
        )
    )
    return branch.with_fork(fork), fork is not None


def half_made(context: TableContext, *, is_main: bool) -> Problem | None:
    """Return the problem of a branch that is not complete; None if there is none."""
    state = state_of(context)
    # What is main is not deleted: `maintain` takes away the mark of a deletion that died before it saw that.
    is_marked = (
        is_main and state is BranchState.DELETING and context.fork is not None and context.snapshots.own_ids()
    )
    if state is BranchState.READY or is_marked:
        schemas = context.schemas.ids()
        return None if schemas else _without_schema(context, is_main=is_main)
    if state is BranchState.ABSENT and not is_main:
        return None
    if state is BranchState.BEGUN and hinted_id(context) is not None:
        return None  # it was complete: the hint comes after the first snapshot
    doing = {BranchState.BEGUN: "half made", BranchState.DELETING: "half deleted"}.get(state, "no branch")
    return Problem(
        Kind.MAIN_GONE if is_main else Kind.BRANCH,
        f"branch '{context.branch}' is {doing}: nobody brought it to its end",
        context.layout.branch_root,
        context.branch,
        severity="error" if is_main else "warning",
    )


def _without_schema(context: TableContext, *, is_main: bool) -> Problem:
    return Problem(
        Kind.SCHEMA,
        f"branch '{context.branch}' has no schema{', and it is main' if is_main else ''}",
        context.layout.schema_folder,
        context.branch,
    )


def hinted_id(context: TableContext) -> int | None:
    """Return the newest snapshot id according to the hint; None if it cannot be read."""
    try:
        text = context.storage.get(context.layout.latest_hint_path)
    except AnabranchError:
        return None
    return int(text) if len(text) <= 18 and text.isdigit() and int(text) > 0 else None


def read_savepoints(main: TableContext, contexts: list[TableContext], found: Found) -> None:
    # The new main took over those of a dropped former main.
    contexts = [c for c in contexts if c.branch == main.branch or dropped_if_known(c) is None]
    for info in main.storage.list(main.layout.savepoint_folder):
        number = savepoint_id_of(info.path)
        if number is None:
            continue
        found.refs += 1
        saved = tried(
            found,
            Kind.REF,
            main,
            partial(Savepoint.from_path, main.storage, info.path),
            info.path,
            repair="make it again from its tag",
            hint=f"`delete-savepoint {number}` lets go of it, and of what nothing else keeps.",
        )
        if saved is None:
            continue
        owner = next((c for c in contexts if is_of(c, saved)), main)
        if not main.storage.exists(main.layout.manifest_path(saved.full_manifest_list)):
            found.problems.append(_without_list(owner, saved, info.path))
        found.states.append(RefState(f"savepoint {number}", info.path, owner, saved.snapshot, whole=True))
        if saved.saved_snapshot is not None and not main.storage.exists(owner.layout.tag_path(saved.pin)):
            found.problems.append(_pin_missing(owner, saved.pin, f"savepoint {number}"))
    found.problems += _lost_savepoints(main, contexts)
    for context in contexts:
        if context.branch in (None, main.branch) or context.fork is None:
            continue
        if not belongs_on_main(context.fork, context, main):
            continue
        if not is_fork_pinned(main, context.fork.branch_uuid):
            pin = fork_pin(context.fork.branch_uuid)
            found.problems.append(_pin_missing(main, pin, f"branch '{context.branch}'"))


def _without_list(owner: TableContext, saved: Savepoint, path: str) -> Problem:
    has_pin = saved.saved_snapshot is not None and owner.storage.exists(owner.layout.tag_path(saved.pin))
    return Problem(
        Kind.REF,
        f"savepoint {saved.id} names the manifest list {saved.full_manifest_list}, which is not there",
        path,
        owner.branch,
        saved.saved_snapshot_id,
        repair="make it again from its tag" if has_pin else None,
        hint=f"`delete-savepoint {saved.id}` lets go of it, and of what nothing else keeps.",
    )


def _lost_savepoints(main: TableContext, contexts: list[TableContext]) -> Iterator[Problem]:
    """Yield a problem for each savepoint of which there is only the tag."""
    pinned = {
        number: context
        for context in contexts
        if context.branch == main.branch or not _is_former_main(context)
        for name in tag_names(context)
        if (number := pinned_savepoint_of(name)) is not None
    }
    numbers = read_numbers(main) if pinned else None
    for number, context in sorted(pinned.items()):
        assert numbers is not None, "read, for there are pins"
        path = main.layout.savepoint_path(number)
        if number in numbers.present or number in numbers.deleted or main.storage.exists(path):
            continue
        with suppress(CorruptTableError):  # a damaged tag is told as such
            find_tag(context, pin_name(number))
            yield Problem(
                Kind.REF,
                f"savepoint {number} is not there, though its tag '{pin_name(number)}'{of_branch(context)} is: somebody deleted its file",
                path,
                context.branch,
                repair="make it again from its tag",
                hint=f"`delete-savepoint {number}` lets go of it, and of what nothing else keeps.",
            )


def _is_former_main(context: TableContext) -> bool:
    """Whether another branch took its place, and its savepoints with it."""
    try:
        return succession(context, context.branch_uuid) is not None
    except CorruptTableError:
        return True  # it is not known which savepoints are its own


def _pin_missing(context: TableContext, pin: str, whose: str) -> Problem:
    return Problem(
        Kind.PIN,
        f"the tag '{pin}' of {whose} is missing: other engines may delete files that it needs",
        context.layout.tag_path(pin),
        context.branch,
        repair="put it again",
        severity="warning",
    )
