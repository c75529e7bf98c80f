"""Checks whether a branch can replace main. The conflicts are values, all listed at once.

| Conflict | meaning |
|---|---|
| `MAIN_MOVED` | main is not at the snapshot that was expected |
| `NOT_DESCENDED` | the branch did not begin in the history of main as it is now |
| `FOREIGN_WRITER` | another engine has written to main since, and does not know which branch is main |
| `CORRECTION_DROPPED` | somebody else has corrected main since the branch was made, and it lacks that correction |
| `TAG_CLASH` | a tag of main's past has a name that the branch gave to something else |

`force` overrides all but the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anabranch.errors import CommitConflictError, InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.commit.audit_gate import check_audited
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import is_in_past
from anabranch.kernel.log.main_pointer import replacements, seal_of
from anabranch.kernel.log.moment import time_text
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.kernel.log.replacement_facts import replace_facts
from anabranch.kernel.replacement.common_past import last_in_common
from anabranch.kernel.replacement.copy_history import tag_clashes
from anabranch.kernel.replacement.expected import Expected, identified
from anabranch.kernel.replacement.request import Replacement, Replacing
from anabranch.kernel.replacement.standing import standing


def check(main: TableContext, wishes: Replacement, *, as_commit: bool = False) -> Replacing:
    """Check whether a branch can replace main; nothing is changed. Raises as `replace.replace_main`.

    Args:
        main: the main branch.
        wishes: the branch and the conditions.
        as_commit: whether main only gets the branch's rows: then tags stay on main, and other engines may write.
    """
    target = open_branch(main, wishes.branch)
    if target.branch == main.branch:
        raise InvalidInputError(f"'{wishes.branch}' is the main branch of '{main.name}' already")
    if target.known_as is not None:
        raise InvalidInputError(
            f"'{wishes.branch}' of '{main.name}' is the name of a replaced main, not of a branch",
            hint="`undo-replace` makes what was replaced main again.",
        )
    fork = _fork(main, target)
    replacing = Replacing(main, target, fork, wishes)
    head = main.snapshots.head()
    conflict = moved_from(main, head, wishes)
    if conflict is not None:
        raise refusal([conflict])
    if wishes.audit:
        check_audited(target, target.snapshots.head(), wishes.audit)
    found = list(_descent(replacing)) or list(_dropped_corrections(replacing, head))
    if not as_commit:
        found += [*_foreign_writers(replacing, head), *tag_clashes(main, target, fork)]
    if found and not wishes.force:
        raise refusal(found)
    # By force a branch of another line can become main: what the two share ends where these parted.
    return replacing if as_commit else replace(replacing, fork=last_in_common(main, fork))


def _fork(main: TableContext, target: TableContext) -> SnapshotRef:
    if target.fork is not None:
        return target.fork.snapshot
    return SnapshotRef(main.branch_uuid, 0, "")  # of another engine, which does not record its fork


def _descent(replacing: Replacing) -> Iterator[Conflict]:
    main, target, fork = replacing.main, replacing.target, replacing.fork
    if not is_in_past(main, fork):
        begun = f"began at snapshot {fork.id}" if fork.id else "was made by another engine"
        yield Conflict(
            "NOT_DESCENDED",
            f"'{target.title}' {begun}, which is not in the history of main as it is now",
            "create a branch from a tag of main and bring its rows there.",
        )


def _dropped_corrections(replacing: Replacing, head: Snapshot | None) -> Iterator[Conflict]:
    """Yield replacements of main made while the branch was worked on, and which it lacks."""
    main, target = replacing.main, replacing.target
    begun = target.fork
    if begun is None:
        return
    known = replacements(main)
    was_main = any(target.branch_uuid in (p.main.uuid, p.replaced.old.uuid) for p in known if p.replaced)
    if not was_main:  # putting back a former main is an undo, which nobody does by accident
        for pointer in standing(known):
            unseen = pointer.main.uuid != begun.snapshot.branch_uuid
            if unseen and pointer.replaced is not None and begun.created_millis < pointer.made_millis:
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
        f"`merge-branch --name {name}`; force drops the other correction.",
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
