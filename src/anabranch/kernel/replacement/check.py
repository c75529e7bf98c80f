"""Checks whether a branch can replace main. The conflicts are values, all listed at once.

| Conflict | meaning |
|---|---|
| `MAIN_MOVED` | main is not at the snapshot that was expected |
| `NOT_DESCENDED` | the branch did not begin in the history of main as it is now |
| `FOREIGN_WRITER` | another engine has written to main since, and does not know which branch is main |
| `CORRECTION_DROPPED` | somebody else has corrected main since the branch was made, or was main, and it lacks that |
| `TAG_CLASH` | a tag of main's past has a name that the branch gave to something else |

`force` overrides all but the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from anabranch.errors import CommitConflictError, InvalidInputError, NotFoundError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.commit.gates import check_audited
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import beginnings, is_in_past, main_by_uuid
from anabranch.kernel.log.main_pointer import is_dropped, replacements, seal_of
from anabranch.kernel.log.moment import time_text
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.properties import WRITER_PROPERTY, replace_facts
from anabranch.kernel.replacement.request import Expected, Replacement, Replacing, identified
from anabranch.kernel.replacement.take_past import tag_clashes


def check(
    main: TableContext,
    wishes: Replacement,
    *,
    as_commit: bool = False,
    opened: Callable[[], TableContext] | None = None,
) -> Replacing:
    """Check whether a branch can replace main; nothing is changed. Raises as `replace.replace_main`.

    Args:
        as_commit: whether main only gets the branch's rows: then tags stay on main, and other engines may write.
        opened: opens the branch, if that was begun already.
    """
    target = open_branch(main, wishes.branch) if opened is None else opened()
    if target.branch == main.branch:
        raise InvalidInputError(f"'{wishes.branch}' is the main branch of '{main.name}' already")
    if target.known_as is not None:
        raise InvalidInputError(
            f"'{wishes.branch}' of '{main.name}' is the name of a replaced main, not of a branch",
            hint="`undo-replace` makes what was replaced main again.",
        )
    fork = _fork(main, target)
    replacing = Replacing(main, target, fork, wishes)
    with reading(main.storage) as begin:
        # Each tells of a moment during the check, and none needs an answer of another.
        newest, is_past = begin(main.snapshots.head), begin(partial(is_in_past, main, fork))
        known = begin(partial(replacements, main))
        if not as_commit:
            clashes = begin(lambda: [*tag_clashes(main, target, fork)])
            for later in (target.snapshots.head, main.schemas.latest):
                begin(later)  # looked at again below, in one round instead of two
        head = newest()
        conflict = moved_from(main, head, wishes)
        if conflict is not None:
            raise refusal([conflict])
        if wishes.audit:
            check_audited(target, target.snapshots.head(), wishes.audit)
        is_descended = is_past()
        was_main = any(p.replaced and p.replaced.old.uuid == target.branch_uuid for p in known())
        # By force a branch of another line can become main, and a main that was replaced has more in common than it began with.
        if was_main or not (is_descended or as_commit):
            parted = _last_in_common(main, target, fork)
            # As long as it is the same, what was read since the fork stays known.
            replacing = replacing if parted == fork else replace(replacing, fork=parted)
        if is_descended:
            found = list(_dropped_corrections(replacing, head, known()))
        else:
            found = [_not_descended(replacing, fork)]
        if not as_commit:
            found += _foreign_writers(replacing, head)
            found += clashes() if replacing.fork == fork else tag_clashes(main, target, replacing.fork)
    if found and not wishes.force:
        raise refusal(found)
    return replacing


def _fork(main: TableContext, target: TableContext) -> SnapshotRef:
    if target.fork is not None:
        return target.fork.snapshot
    return SnapshotRef(main.branch_uuid, 0, "")  # of another engine, which does not record its fork


def _not_descended(replacing: Replacing, fork: SnapshotRef) -> Conflict:
    target = replacing.target
    begun = f"began at snapshot {fork.id}" if fork.id else "was made by another engine"
    return Conflict(
        "NOT_DESCENDED",
        f"'{target.title}' {begun}, which is not in the history of main as it is now",
        "create a branch from a tag of main and bring its rows there.",
    )


def _dropped_corrections(
    replacing: Replacing, head: Snapshot | None, known: Sequence[MainPointer]
) -> Iterator[Conflict]:
    """Yield the replacements of main since the branch was made, or was main: it lacks what they brought."""
    target = replacing.target
    begun = target.fork
    if begun is None:
        return
    made, own = standing(known), (target.branch_uuid, begun.snapshot.branch_uuid)
    # Those before the main that it began on, or was itself, are its own past. No clock tells: that of its maker may be wrong.
    seen = max((place for place, pointer in enumerate(made, 1) if pointer.main.uuid in own), default=0)
    for pointer in made[seen:]:
        assert pointer.replaced is not None, "it is a replacement"
        what = f"replacement {pointer.generation} put {pointer.main} in the place of main"
        yield _dropped(replacing, what, pointer.made_millis, pointer.made_by, pointer.replaced.reason)
    for snapshot in replacing.main_since.until(head):
        facts = replace_facts(snapshot)
        if facts is not None and facts.taken.branch_uuid != target.branch_uuid:
            named = "another branch" if facts.branch is None else f"branch '{facts.branch}'"
            what = f"snapshot {snapshot.id} gave main the rows of {named}"
            yield _dropped(replacing, what, snapshot.time_millis, facts.by, facts.reason)


def _dropped(replacing: Replacing, what: str, millis: int, by: str | None, reason: str | None) -> Conflict:
    who = "" if by is None else f", by {by}"
    why = "" if reason is None else f" ({reason})"
    name = replacing.target.branch
    return Conflict(
        "CORRECTION_DROPPED",
        f"{what} at {time_text(millis)}{who}{why}, after '{replacing.target.title}' was made: it lacks that correction, and "
        "would drop it",
        f"make a branch of main as it is now and correct it there, or bring the rows of '{name}' into main with "
        f"`merge-branch --name {name}`; `undo-replace` takes back the last replacement; force drops the other correction.",
    )


def _foreign_writers(replacing: Replacing, head: Snapshot | None) -> Iterator[Conflict]:
    since = replacing.main_since.until(head)
    theirs = [snapshot for snapshot in since if WRITER_PROPERTY not in snapshot.properties]
    if theirs:
        yield foreign(replacing.main, theirs)


def foreign(main: TableContext, snapshots: Sequence[Snapshot]) -> Conflict:
    """Return the conflict that another engine writes to main."""
    return Conflict(
        "FOREIGN_WRITER",
        f"another engine committed snapshot {snapshots[-1].id} to main of '{main.name}'; it does not know which branch is "
        "main and would go on with the old one",
        "replace main with the mode 'commit', which every engine understands, or stop that engine.",
    )


def moved_from(main: TableContext, head: Snapshot | None, wishes: Replacement) -> Conflict | None:
    """Return a conflict if main moved after the expected snapshot, or that is not there."""
    seen = wishes.seen
    expected = wishes.expect_main if seen is None else Expected(seen.snapshot, seen.stamp)
    if expected is None:
        return None
    if expected.branch_uuid not in (None, main.branch_uuid):
        return moved(main, expected, "was replaced since: another branch is main now")
    for snapshot in () if head is None else main.snapshots.backwards(head):
        if expected.is_met_by(snapshot):
            return None
        if seal_of(snapshot) is not None:  # the seal of a replacement that did not finish is not a commit
            continue
        if seen is None or not seen.may_follow(snapshot):
            break
    return moved(
        main, expected, f"is at {0 if head is None else identified(head) if expected.stamp else head.id}"
    )


def moved(main: TableContext, expected: Expected, found: str) -> Conflict:
    """Return the conflict that main is not at the expected snapshot."""
    return Conflict(
        "MAIN_MOVED",
        f"main of '{main.name}' was expected at snapshot {expected} and {found}",
        "look at what was committed, and replace main again with its newest snapshot.",
    )


def refusal(conflicts: Sequence[Conflict]) -> CommitConflictError:
    """Return the error that lists all conflicts."""
    text = "; ".join(f"{conflict.kind}: {conflict.message}" for conflict in conflicts)
    return CommitConflictError(text, conflicts=tuple(conflicts), hint=conflicts[0].hint)


# Finds the newest snapshot that main shares with a branch.
#
# A branch that began in main's past shares everything up to its fork. One that was main shares what it had when it was
# replaced, as long as what is main went on from there. One that is put in main's place by force may have begun elsewhere,
# as on a main that was replaced since. Numbers alone say nothing then: main has a snapshot of the fork's number that the
# branch never had.


def _last_in_common(main: TableContext, target: TableContext, begun: SnapshotRef) -> SnapshotRef:
    """Return the newest snapshot that main has in common with a branch that began with `begun`; 0 if it cannot be told."""
    known = replacements(main)
    with reading(main.storage) as begin:
        newest, newest_of_target = (begin(partial(_newest, branch)) for branch in (main, target))
        ours = [*newest(), *beginnings(known, main.branch_uuid)]
        theirs = [*newest_of_target(), begun, *beginnings(known, begun.branch_uuid)]
    for mine in ours:
        for other in theirs:
            if mine.branch_uuid == other.branch_uuid:
                return _lower(main, mine, other) or _nothing(main)
    return _nothing(main)


def _newest(branch: TableContext) -> list[SnapshotRef]:
    head = branch.snapshots.head()
    return [] if head is None else [SnapshotRef(branch.branch_uuid, head.id, head.stamp)]


def _lower(main: TableContext, one: SnapshotRef, other: SnapshotRef) -> SnapshotRef | None:
    """Return the older of two snapshots of a branch; None if that branch no longer has it."""
    branch = main_by_uuid(main, one.branch_uuid)
    older = min(one, other, key=lambda ref: ref.id)
    found = None if branch is None else branch.snapshots.find(older.id)
    return older if found is not None and found.stamp == older.stamp else None


def _nothing(main: TableContext) -> SnapshotRef:
    return SnapshotRef(main.branch_uuid, 0, "")


def standing(known: Sequence[MainPointer]) -> list[MainPointer]:
    """Return the replacements that were not undone, oldest first.

    Args:
        known: all replacements, oldest first.
    """
    found: list[MainPointer] = []
    for pointer in known:
        if pointer.replaced is not None and pointer.replaced.undoes is not None:
            found.pop()
        else:
            found.append(pointer)
    return found


def last_standing(main: TableContext, known: Sequence[MainPointer], asked: int | None) -> MainPointer:
    """Return the last replacement in effect, the only one that can be undone.

    Args:
        known: all replacements, oldest first.
        asked: number of the requested one; None for the last.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: another one is requested.
    """
    found = standing(known)
    if not found:
        raise NotFoundError(
            f"main of '{main.name}' was not replaced" + (", or all of that was taken back" if known else ""),
            hint="a replacement in the mode 'commit' is an ordinary commit: `rollback` takes it back.",
        )
    last = found[-1]
    if asked not in (None, last.generation):
        name = former_main_name(last.generation)
        is_lost = is_dropped(main, last)
        raise InvalidInputError(
            f"replacement {asked} of main of '{main.name}' is not the last one that counts, which is {last.generation}",
            hint=f"nothing before it can be taken back, as {name} was dropped: put any branch there is in the place of main."
            if is_lost
            else f"take back {name} first.",
        )
    return last
