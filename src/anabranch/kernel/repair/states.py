"""The states of a table that refs name: read as far as they can be, with what is wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, StorageError
from anabranch.format.records.layout import savepoint_id_of
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.commit.leftovers import leftovers_above
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_pin
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.removals import was_removed
from anabranch.kernel.log.savepoint_log import is_of
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.log.tag_log import find_tag, is_internal, tag_names
from anabranch.kernel.repair.branches import as_found, half_made, hinted_id
from anabranch.kernel.repair.pointers import pointer_problems
from anabranch.kernel.repair.problem import Kind, Problem
from anabranch.kernel.repair.records import damaged_records

_AHEAD_MILLIS: Final = 10 * 60_000
"""Clocks differ by so much without harm."""


@dataclass(frozen=True, slots=True)
class State:
    """A state of the table that a ref names."""

    name: str
    """For people: ``snapshot 5 of branch 'fix'``."""
    path: str
    context: TableContext
    snapshot: Snapshot
    whole: bool
    """Whether all of its files are to be looked at, or only what it added: the one before it is looked at too."""


@dataclass
class Found:
    """What was read so far."""

    states: list[State] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    branches: int = 0
    snapshots: int = 0
    refs: int = 0


def read_states(main: TableContext) -> Found:
    """Read the snapshots, tags and savepoints of all branches. `main` was opened as main."""
    found = Found()
    found.problems.extend(pointer_problems(main))
    contexts = [main.on_branch(None), *(main.on_branch(name) for name in branch_names(main))]
    if main.branch is not None and not any(c.branch == main.branch for c in contexts):
        found.problems.append(
            Problem(
                Kind.MAIN_GONE,
                f"branch '{main.branch}', which is main, is not there: it was deleted or renamed",
                path=main.layout.branch_root,
                branch=main.branch,
                repair="make main again what it was, from what is left of it",
            )
        )
    known: list[TableContext] = []
    for one in contexts:
        is_main = one.branch == main.branch
        context, is_known = as_found(main, main if is_main else one, found.problems)
        if not is_known:
            _read_unknown(context, found)
            continue
        known.append(context)
        if context.branch is not None and (problem := half_made(context, is_main=is_main)) is not None:
            found.problems.append(problem)
            if state_of(context) is not BranchState.READY:
                continue
        found.branches += 1
        read_branch(context, found)
    found.problems += damaged_records(main, contexts)
    _savepoints(main, known, found)
    return found


def read_branch(context: TableContext, found: Found) -> None:
    """Read the history and the tags of one branch."""
    dropped = _dropped_until(context)
    read_history(context, found, dropped=dropped)
    if dropped is None:
        _read_tags(context, found)


def _read_tags(context: TableContext, found: Found) -> None:
    for name in tag_names(context):
        found.refs += 1
        path = context.layout.tag_path(name)
        tag = _tried(
            found, Kind.REF, context, lambda name=name: find_tag(context, name), path, **_about_tag(name)
        )
        if tag is not None:
            found.states.append(State(f"tag '{name}'{_of(context)}", path, context, tag.snapshot, whole=True))


def _dropped_until(context: TableContext) -> int | None:
    """As `dropped_until`; None too if the record of that is damaged, which is told of by itself."""
    try:
        return dropped_until(context)
    except CorruptTableError:
        return None


def _about_tag(name: str) -> dict[str, str]:
    """What is done about a damaged tag."""
    if not is_internal(name):
        return {"hint": f"`delete-tag {name}` lets go of it, and of what nothing else keeps."}
    return {
        "repair": "put it again from what it belongs to, or put it aside if nothing needs it",
        "hint": "`delete-savepoint` or `delete-branch` of what it belongs to removes it.",
    }


def _read_unknown(context: TableContext, found: Found) -> None:
    """Read what a branch has of which it is not known who it is, so nothing can be said of its history."""
    found.branches += 1
    for number, snapshot in _snapshots(context, found).items():
        name, path = f"snapshot {number}{_of(context)}", context.layout.snapshot_path(number)
        found.states.append(State(name, path, context, snapshot, whole=True))
    _read_tags(context, found)


def read_history(
    context: TableContext, found: Found, newest: int | None = None, *, dropped: int | None = None
) -> None:
    """Read the snapshots of one branch.

    Args:
        context: the branch.
        found: takes what is read.
        newest: read only so many of the newest, if that is given.
        dropped: up to which number the branch was dropped on purpose, if it was: that is no history any more.
    """
    snapshots = _snapshots(context, found, newest, above=dropped or 0)
    head = _tried(found, Kind.SNAPSHOT, context, context.snapshots.head)
    if dropped is not None and (head is None or head.id <= dropped):
        return
    if head is None and context.snapshots.ids():
        return  # the newest is damaged: what it was is not known
    if head is not None:
        _history(context, head, snapshots, found)
    hinted = hinted_id(context)
    _hints(context, head, hinted, found)


def _snapshots(
    context: TableContext, found: Found, newest: int | None = None, above: int = 0
) -> dict[int, Snapshot]:
    there: dict[int, Snapshot] = {}
    for number in [number for number in context.snapshots.ids() if number > above][-(newest or 0) :]:
        path = context.layout.snapshot_path(number)
        snapshot = _tried(
            found,
            Kind.SNAPSHOT,
            context,
            lambda number=number: context.snapshots.find(number),
            path,
            snapshot_id=number,
            repair="put it back from a ref that holds it; else put it aside, if it is not the newest",
        )
        if snapshot is not None:
            there[number] = snapshot
    found.snapshots += len(there)
    return there


def _history(context: TableContext, head: Snapshot, there: dict[int, Snapshot], found: Found) -> None:
    of, layout = _of(context), context.layout
    for left in leftovers_above(context, head):
        found.problems.append(
            Problem(
                Kind.LEFTOVER,
                f"snapshot {left.id}{of} is above the newest, {head.id}, and not built on it: left by commit user "
                f"{left.commit_user}, whom a rollback overtook",
                layout.snapshot_path(left.id),
                context.branch,
                left.id,
                repair="store what continues history in its place; what another engine appended is appended again",
            )
        )
    made_on = head.properties.get(BRANCH_PROPERTY)
    known = (None, context.branch_uuid, context.table_uuid)
    if made_on not in known and not context.is_forked(head):
        found.problems.append(
            Problem(
                Kind.FOREIGN_HEAD,
                f"the newest snapshot{of}, {head.id}, was made on another branch: another engine put it there "
                "(a fast-forward), so nothing can be committed",
                layout.snapshot_path(head.id),
                context.branch,
                head.id,
                repair="commit an empty snapshot on top that takes it over",
            )
        )
    now = context.runtime.clock.now_millis()
    below = sorted((n for n in there if n <= head.id), reverse=True)
    lowest = below[-1] if below else head.id
    for number in range(head.id, lowest - 1, -1):
        snapshot, older = there.get(number), there.get(number - 1)
        path = layout.snapshot_path(number)
        if snapshot is None:
            if not any(p.path == path for p in found.problems):
                found.problems.append(_gap(context, number, path))
            continue
        if older is not None and not context.snapshots.follows(older, snapshot):
            found.problems.append(
                Problem(
                    Kind.PARENT,
                    f"snapshot {number}{of} is not built on snapshot {number - 1}: what is below it is no history of it",
                    path,
                    context.branch,
                    number,
                )
            )
        if snapshot.time_millis > now + _AHEAD_MILLIS:
            found.problems.append(
                Problem(
                    Kind.FUTURE,
                    f"snapshot {number}{of} says it was made {(snapshot.time_millis - now) // 1000:,} s from now: the "
                    "clock of its writer was ahead, and time travel by time cannot tell what is newer",
                    path,
                    context.branch,
                    number,
                    time_millis=snapshot.time_millis,
                    severity="warning",
                )
            )
        whole = number == head.id or older is None
        found.states.append(State(f"snapshot {number}{of}", path, context, snapshot, whole=whole))


def _gap(context: TableContext, number: int, path: str) -> Problem:
    return Problem(
        Kind.GAP,
        f"snapshot {number}{_of(context)} is missing although older ones are there: its rows are in the next one, but "
        "neither it nor what it changed can be read, and history seems to end there",
        path,
        context.branch,
        number,
        repair="put it back if a tag, a savepoint or another branch holds it",
    )


def _hints(context: TableContext, head: Snapshot | None, hinted: int | None, found: Found) -> None:
    if head is None and hinted is None:
        return
    path = context.layout.latest_hint_path
    newest = 0 if head is None else head.id
    if hinted is not None and hinted > newest and _is_deleted(context, hinted):
        found.problems.append(
            Problem(
                Kind.HEAD_GONE,
                f"the hint to the newest snapshot{_of(context)} names {hinted}, but the newest that is there is {newest}: "
                "somebody deleted snapshots",
                path,
                context.branch,
                hinted,
                repair="put them back from tags, other branches, or the manifest lists that are still there; then "
                "write the hint",
            )
        )
    elif hinted != newest:
        found.problems.append(
            Problem(
                Kind.HINT,
                f"the hint to the newest snapshot{_of(context)} is {hinted or 'missing'}, it should be {newest}; other "
                "engines go by it",
                path,
                context.branch,
                repair="write it",
                severity="warning",
            )
        )


def _is_deleted(context: TableContext, number: int) -> bool:
    """Whether a snapshot is gone that no rollback removed."""
    there = context.storage.exists(context.layout.snapshot_path(number))
    return not there and not was_removed(context.storage, context.layout, number)


def _savepoints(main: TableContext, contexts: list[TableContext], found: Found) -> None:
    # The new main took over those of a main that was dropped.
    contexts = [c for c in contexts if c.branch == main.branch or _dropped_until(c) is None]
    for info in main.storage.list(main.layout.savepoint_folder):
        number = savepoint_id_of(info.path)
        if number is None:
            continue
        found.refs += 1
        saved = _tried(
            found,
            Kind.REF,
            main,
            lambda path=info.path: Savepoint.from_path(main.storage, path),
            info.path,
            repair="make it again from its tag",
            hint=f"`delete-savepoint {number}` lets go of it, and of what nothing else keeps.",
        )
        if saved is None:
            continue
        owner = next((c for c in contexts if is_of(c, saved)), main)
        found.states.append(State(f"savepoint {number}", info.path, owner, saved.snapshot, whole=True))
        if saved.saved_snapshot is not None and not main.storage.exists(owner.layout.tag_path(saved.pin)):
            found.problems.append(_pin_missing(owner, saved.pin, f"savepoint {number}"))
    for context in contexts:
        if context.branch in (None, main.branch) or context.fork is None:
            continue
        pin = fork_pin(context.fork.branch_uuid)
        if not main.storage.exists(main.layout.tag_path(pin)):
            found.problems.append(_pin_missing(main, pin, f"branch '{context.branch}'"))


def _pin_missing(context: TableContext, pin: str, whose: str) -> Problem:
    return Problem(
        Kind.PIN,
        f"the tag '{pin}' of {whose} is missing: other engines may delete files that it needs",
        context.layout.tag_path(pin),
        context.branch,
        repair="put it again",
        severity="warning",
    )


def _of(context: TableContext) -> str:
    is_main = context.branch is None or context.main_generation is not None
    return "" if is_main else f" of branch '{context.branch}'"


def _tried(found: Found, kind: Kind, context: TableContext, read, path: str = "", **about):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003, ANN202
    """What `read` returns; None, with a problem noted, if it cannot be read."""
    try:
        return read()
    except NotFoundError:
        return None
    except StorageError:
        raise
    except AnabranchError as error:
        path = path or getattr(error, "path", None) or ""
        if not any(p.path == path and p.kind == kind for p in found.problems):
            found.problems.append(Problem(kind, str(error.message), path, context.branch, **about))
        return None
