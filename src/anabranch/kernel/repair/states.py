"""Reads the table states that refs name, as far as possible, and notes problems on the way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, MANIFEST_FOLDER
from anabranch.format.records.main_pointer import TAGS_PREFIX
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.commit.leftovers import leftovers_above
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import inherited_number, inherited_paths, read_inherited_at
from anabranch.kernel.log.main_pointer import find_pointer, numbers
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.removals import was_removed
from anabranch.kernel.log.rollback_pins import is_rollback_pin
from anabranch.kernel.log.tag_log import find_tag, is_internal, stored_inherited, tag_names
from anabranch.kernel.repair.branches import as_found, half_made, hinted_id, read_savepoints
from anabranch.kernel.repair.found import Found, Kind, Problem, RefState, dropped_if_known, of_branch, tried
from anabranch.kernel.repair.pointers import pointer_problems
from anabranch.kernel.repair.records import damaged_records
from anabranch.storage.links import no_files

_AHEAD_MILLIS: Final = 10 * 60_000
"""Tolerated clock difference."""


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
    of_main = frozenset[str]()
    # Main first: what lies in the folder of another branch and is main's is read once.
    for one in sorted(contexts, key=lambda context: context.branch != main.branch):
        is_main = one.branch == main.branch
        context, is_known = as_found(main, main if is_main else one, found.problems)
        if is_main:
            main = context  # with what its record said, as far as that follows from elsewhere
        if not is_known:
            _read_unknown(context, found)
            continue
        known.append(context)
        if context.branch is not None and (problem := half_made(context, is_main=is_main)) is not None:
            found.problems.append(problem)
            if state_of(context) is not BranchState.READY:
                continue
        found.branches += 1
        read_branch(context, found, of_main)
        if is_main:
            of_main = frozenset(state.path for state in found.states)
    _read_inherited(main, found)
    found.problems += misplaced(main, contexts)
    told = {problem.path for problem in found.problems}
    found.problems += (problem for problem in damaged_records(main, contexts) if problem.path not in told)
    read_savepoints(main, known, found)
    return found


def read_branch(context: TableContext, found: Found, known: Collection[str] = ()) -> None:
    """Read the history and the tags of one branch, without the files that are known."""
    dropped = dropped_if_known(context)
    read_history(context, found, dropped=dropped, known=known)
    _read_tags(context, found)


def _read_tags(context: TableContext, found: Found) -> None:
    for name in tag_names(context):
        found.refs += 1
        path = context.layout.tag_path(name)
        tag = tried(found, Kind.REF, context, partial(find_tag, context, name), path, **_about_tag(name))
        if tag is not None:
            found.states.append(
                RefState(f"tag '{name}'{of_branch(context)}", path, context, tag.snapshot, whole=True)
            )


def _read_inherited(main: TableContext, found: Found) -> None:
    """Read the tags that main inherits, and look whether those of all mains are whole."""
    own_number = inherited_number(main)
    known = {*(numbers(main, TAGS_PREFIX) if main.main_generation else ()), own_number}
    for number in sorted(number for number in known if number is not None):
        paths = inherited_paths(main, number)
        for path in paths if number == own_number or _is_inherited(main, number) else paths[:1]:
            tried(
                found,
                Kind.REF,
                main,
                partial(read_inherited_at, main, path),
                path,
                repair="put it again from its copy",
                hint="`repair` does so, if that is whole.",
            )
    if own_number is None:
        return
    path, _ = inherited_paths(main, own_number)
    own = {*tag_names(main)}
    with suppress(CorruptTableError):  # it was told above
        for stored in stored_inherited(main):
            if stored.tag.name not in own:
                found.refs += 1
                name = f"tag '{stored.tag.name}'"
                found.states.append(RefState(name, path, main, stored.tag.snapshot, whole=True))


def _is_inherited(main: TableContext, number: int) -> bool:
    """Whether a main inherits the tags of a number: a replacement that died, or was given up, may have left one file."""
    try:
        pointer = find_pointer(main, number)
    except CorruptTableError:
        return True
    return pointer is not None and bool(pointer.past) and pointer.past[0].tags == number


def _about_tag(name: str) -> dict[str, str]:
    """Return repair and hint for a damaged tag."""
    if not is_internal(name):
        return {"hint": f"`delete-tag {name}` lets go of it, and of what nothing else keeps."}
    if is_rollback_pin(name):
        return {
            "repair": "put it again from the snapshots of its rollback, or put it aside if they are gone",
            "hint": "`repair` does so; expiry and the cleaning of orphans go on then.",
        }
    return {
        "repair": "put it again from what it belongs to, or put it aside if nothing needs it",
        "hint": "`delete-savepoint` or `delete-branch` of what it belongs to removes it.",
    }


def _read_unknown(context: TableContext, found: Found) -> None:
    """Read the snapshots of a branch of unknown identity, whose history cannot be judged."""
    found.branches += 1
    for number, snapshot in _snapshots(context, found).items():
        name, path = f"snapshot {number}{of_branch(context)}", context.layout.snapshot_path(number)
        found.states.append(RefState(name, path, context, snapshot, whole=True))
    _read_tags(context, found)


def read_history(
    context: TableContext,
    found: Found,
    newest: int | None = None,
    *,
    dropped: int | None = None,
    known: Collection[str] = (),
) -> None:
    """Read the snapshots of one branch.

    Args:
        newest: if given, read only this many of the newest.
        dropped: if the branch was dropped on purpose, up to which number: that is no longer history.
        known: files that were read already, as those of main's history in the folder of another branch.
    """
    snapshots = _snapshots(context, found, newest, above=dropped or 0, known=known)
    head = tried(found, Kind.SNAPSHOT, context, context.snapshots.head)
    if dropped is not None and (head is None or head.id <= dropped):
        return
    if head is None and context.snapshots.ids():
        return  # the newest is damaged: what it was is not known
    if head is not None:
        _history(context, head, snapshots, found, known)
    hinted = hinted_id(context)
    _hints(context, head, hinted, found)


def _snapshots(
    context: TableContext,
    found: Found,
    newest: int | None = None,
    above: int = 0,
    known: Collection[str] = (),
) -> dict[int, Snapshot]:
    there: dict[int, Snapshot] = {}
    for number in [number for number in context.snapshots.ids() if number > above][-(newest or 0) :]:
        path = context.layout.snapshot_path(number)
        if path in known:
            continue
        snapshot = tried(
            found,
            Kind.SNAPSHOT,
            context,
            partial(context.snapshots.find, number),
            path,
            snapshot_id=number,
            repair="put it back from a ref that holds it, the newest also from its manifest lists; else put it aside, if it is not "
            "the newest",
        )
        if snapshot is not None:
            there[number] = snapshot
    found.snapshots += len(there)
    return there


def _history(
    context: TableContext,
    head: Snapshot,
    there: dict[int, Snapshot],
    found: Found,
    read_before: Collection[str],
) -> None:
    of, layout = of_branch(context), context.layout
    made_on = head.properties.get(BRANCH_PROPERTY)
    known = (None, context.branch_uuid, context.table_uuid)
    is_foreign = made_on not in known and not context.is_forked(head)
    why = (
        "when another engine put a branch in its place"
        if is_foreign
        else "by a writer whom a rollback overtook"
    )
    for left in leftovers_above(context, head):
        found.problems.append(
            Problem(
                Kind.LEFTOVER,
                f"snapshot {left.id}{of} is above the newest, {head.id}, and not built on it: left {why}, commit user "
                f"{left.commit_user}",
                layout.snapshot_path(left.id),
                context.branch,
                left.id,
                repair="store what continues history in its place; what another engine appended is appended again",
            )
        )
    if is_foreign:
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
    begins = _begins(context)
    below = sorted((n for n in there if begins <= n <= head.id), reverse=True)
    lowest = below[-1] if below else head.id
    for number in range(head.id, lowest - 1, -1):
        snapshot, older = there.get(number), there.get(number - 1)
        path = layout.snapshot_path(number)
        if snapshot is None:
            if path not in read_before and not any(p.path == path for p in found.problems):
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
        found.states.append(RefState(f"snapshot {number}{of}", path, context, snapshot, whole=whole))


def _begins(context: TableContext) -> int:
    """Return where a history begins that goes on in folders of former mains: below there may be what another engine left."""
    hint = context.snapshots.hinted_earliest_id() if context.past else None
    return hint if hint is not None and context.snapshots.is_there(hint) else 1


def _gap(context: TableContext, number: int, path: str) -> Problem:
    return Problem(
        Kind.GAP,
        f"snapshot {number}{of_branch(context)} is missing although older ones are there: its rows are in the next one, but "
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
    if hinted is not None and hinted > newest and _is_deleted(context, hinted, newest):
        found.problems.append(
            Problem(
                Kind.HEAD_GONE,
                f"the hint to the newest snapshot{of_branch(context)} names {hinted}, but the newest that is there is {newest}: "
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
                f"the hint to the newest snapshot{of_branch(context)} is {hinted or 'missing'}, it should be {newest}; other "
                "engines go by it",
                path,
                context.branch,
                repair="write it",
                severity="warning",
            )
        )


def _is_deleted(context: TableContext, number: int, newest: int) -> bool:
    """Whether a snapshot is missing that no rollback removed."""
    there = context.storage.exists(context.layout.snapshot_path(number))
    return not there and not was_removed(context.storage, context.layout, number, newest)


# Finds what is no file under the names of the table's own files: folders, and links that lead nowhere.
#
# Both hide what was under that name, and no file can be put there; so whoever wants that name fails, as often as it tries.

_OURS: Final = re.compile(
    "(snapshot|schema|tag|savepoint|consumer|manifest|MAIN|SEAL|RELEASE|FIELD-IDS|GROUP|DELETED|AUDIT|MERGE|NOTES|carry|expired|main|"
    "history|removed)-.+|LATEST|EARLIEST|FORK|MAIN-BRANCH"
)
"""Names of files; folders of other names do no harm."""


def misplaced(main: TableContext, contexts: Sequence[TableContext]) -> Iterator[Problem]:
    """Yield a problem for each folder or broken link in the place of a file; one listing for each folder of metadata.

    Args:
        contexts: all branches, that in the table's own folder included.
    """
    folders: dict[str, str | None] = dict.fromkeys(
        (BRANCH_FOLDER, HISTORY_FOLDER, MANIFEST_FOLDER, main.layout.savepoint_folder)
    )
    for context in contexts:
        layout = context.layout
        own = (layout.snapshot_folder, layout.schema_folder, layout.tag_folder, layout.consumer_folder)
        folders.update(dict.fromkeys((*own, layout.branch_file_path("ledger")), context.branch))
        if context.branch is not None:
            folders[layout.branch_root] = context.branch
    for folder, branch in folders.items():
        for path, leads_to in no_files(main.storage, folder):
            if leads_to is None and not _OURS.fullmatch(path.rpartition("/")[2]):
                continue
            what = "a folder" if leads_to is None else f"a link to {leads_to}, which is not there"
            hint = (
                "move the folder elsewhere; it is none of the table's."
                if leads_to is None
                else "bring back what the link leads to, or else remove the link."
            )
            yield Problem(
                Kind.RECORD,
                f"{path} is {what}: nothing can be read there, and no file of that name can be put",
                path,
                branch,
                hint=f"{hint} Then `verify` again.",
            )
