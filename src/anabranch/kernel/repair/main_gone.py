"""Restores a main branch that another engine renamed or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.format.records.fork import Fork
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.main_pointer import BranchRef, MainPointer, Replaced
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.branches.create import fork_again, recreate_branch
from anabranch.kernel.log.archive import archived
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import newest_pointer, put_pointer, replacements
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.repair.branches import hinted_id
from anabranch.kernel.repair.found import Act, Kind, Problem, RefState, RepairStep
from anabranch.kernel.repair.lost_commits import (
    LostCommit,
    held_commit,
    lost_commits,
    path_from,
    state_of_files,
)
from anabranch.kernel.repair.lost_snapshots import Recovery, held_snapshots, recovered
from anabranch.kernel.replacement.take_past import copy_past, copy_refs

# Rebuilds the main branch from its remains if its folder was deleted.
#
# Its data files, manifests and manifest lists are the table's, so they are still there. The newest state that lists tell
# of is put back, with what leads up to it: from the snapshot that the branch began with if there is no hole, else history
# begins with the oldest that is known to lead there. Attempts that never were commits leave lists as well: those that
# continue another branch are left out, and what fits but was not taken is told.

_ALL = 2**62
_MOST_TOLD = 10


@dataclass(frozen=True)
class Remains:
    """Remains of a main branch."""

    begun: Snapshot | None
    """The fork snapshot, if it can be restored without a gap above it."""
    snapshots: list[Recovery] = field(default_factory=list)
    """Snapshots to restore, oldest first."""
    lost: list[Problem] = field(default_factory=list)
    """What cannot be restored."""

    @property
    def newest(self) -> int:
        """The number of the newest snapshot."""
        if self.snapshots:
            return self.snapshots[-1].snapshot.id
        return 0 if self.begun is None else self.begun.id


def remains_of(
    main: TableContext, pointer: MainPointer, states: Sequence[RefState], begun: Snapshot | None
) -> Remains:
    """Find the remains; nothing is changed.

    Args:
        main: the branch, as it is to be rebuilt.
        pointer: the replacement by which it is main.
        states: states named by refs of the other branches.
        begun: the fork snapshot; None if that is lost.
    """
    past = next(archived(main, main.branch_uuid), None)
    held = _held(main, states)
    listed = _own_commits(main, pointer, states)
    commits = sorted([*listed, *held.values()], key=lambda one: one.stored)
    path = [] if begun is None else path_from(main, begun, _ALL, listed, held)
    begin = 0 if begun is None else begun.id + 1
    reached = {one.after for one in path}
    if begun is not None:
        reached.add(state_of_files(main, main.manifests.of_snapshot(begun)))
    chain = _newest_chain(commits)
    known = max(_numbers(main, pointer, past, held), default=0)
    if chain and chain[0].before not in reached and chain[-1] not in path:
        begun, (begin, path) = None, _numbered(chain, known)
    found = recovered(main, begun, begin, path)
    remains = Remains(begun, found)
    remains.lost.extend(_lost(main, remains, known, past))
    remains.lost.extend(_not_taken(main, commits, path))
    return remains


def _held(main: TableContext, states: Sequence[RefState]) -> dict[int, LostCommit]:
    """Return snapshots committed on the branch that savepoints and other branches still hold."""
    found = {}
    for number, one in held_snapshots(main, states).items():
        if one.snapshot.properties.get(BRANCH_PROPERTY) == main.branch_uuid:
            commit = held_commit(main, one.snapshot, one.source)
            if commit is not None:
                found[number] = commit
    return found


def _own_commits(main: TableContext, pointer: MainPointer, states: Sequence[RefState]) -> list[LostCommit]:
    """Return commits known from lists that do not continue another branch."""
    commits = lost_commits(main, states)
    its_past: set[str] = set()
    others: set[str] = set()
    for state in states if commits else ():
        try:
            files = state_of_files(main, main.manifests.of_snapshot(state.snapshot))
        except AnabranchError:
            continue
        (its_past if _is_of_its_past(main, pointer, state.snapshot) else others).add(files)
    # For example, the seal of the main before has the same files as the fork snapshot.
    return [one for one in commits if one.before in its_past or one.before not in others]


def _is_of_its_past(main: TableContext, pointer: MainPointer, snapshot: Snapshot) -> bool:
    """Whether a snapshot is of the branch, or of the history it shares with the main before."""
    made_on = snapshot.properties.get(BRANCH_PROPERTY)
    if made_on == main.branch_uuid or main.is_forked(snapshot):
        return True
    replaced = pointer.replaced
    return replaced is not None and made_on in (None, replaced.old.uuid) and snapshot.id <= replaced.fork.id


def _newest_chain(commits: Sequence[LostCommit]) -> list[LostCommit]:
    """Return the commit that was stored last, with those that lead up to it."""
    chain = list(commits[-1:])
    while chain:
        leading = (
            one
            for one in reversed(commits)
            if one.after == chain[0].before and one.stored <= chain[0].stored and one not in chain
        )
        before = next(leading, None)
        if before is None:
            break
        chain.insert(0, before)
    return chain


def _numbered(chain: list[LostCommit], known: int) -> tuple[int, list[LostCommit]]:
    """Number a chain by its held snapshots; return the first number and the chain without earlier misfits."""
    held = [(place, one.snapshot.id - place) for place, one in enumerate(chain) if one.snapshot is not None]
    if not held:
        return known + 1, chain
    begin = held[-1][1]
    wrong = [place for place, other in held if other != begin]
    cut = max(wrong[-1] + 1 if wrong else 0, 1 - begin)
    return begin + cut, chain[cut:]


def _numbers(
    main: TableContext, pointer: MainPointer, past: PastSnapshot | None, held: dict[int, LostCommit]
) -> Iterator[int]:
    """Yield snapshot numbers that the branch is known to have had."""
    if pointer.replaced is not None and pointer.replaced.taken.branch_uuid == main.branch_uuid:
        yield pointer.replaced.taken.id
    if past is not None:
        yield past.id
    yield from held


def _lost(main: TableContext, remains: Remains, known: int, past: PastSnapshot | None) -> Iterator[Problem]:
    """Report the newest known snapshots of which nothing is left."""
    if remains.newest >= known:
        return
    first, last = remains.newest + 1, known
    gone = f"snapshot {last}" if first == last else f"snapshots {first} to {last}"
    top = remains.snapshots[-1].snapshot if remains.snapshots else remains.begun
    rows = None
    if past is not None and past.id == known and past.total_record_count is not None and top is not None:
        rows = past.total_record_count - (top.total_record_count or 0)
    yield Problem(
        Kind.MAIN_GONE,
        f"{gone} of '{main.title}' cannot be made again, no manifest lists are left of them; what was committed there is lost",
        main.layout.snapshot_path(last),
        main.branch,
        last,
        rows=rows,
        time_millis=None if past is None else past.time_millis,
        job=None if past is None else past.commit_user,
    )


def _not_taken(
    main: TableContext, commits: Sequence[LostCommit], path: Sequence[LostCommit]
) -> Iterator[Problem]:
    """Report late commits that fit nowhere: they may or may not have been acknowledged."""
    begun = path[0].stored if path else 0
    taken = {one.after for one in path} | {one.before for one in path}
    left = [one for one in commits if one not in path and one.after not in taken and one.stored >= begun]
    for one in left[-_MOST_TOLD:]:
        name = one.source if one.base is None else one.base.name
        changed = "" if one.delta is None else f" and {one.delta.name}"
        yield Problem(
            Kind.MAIN_GONE,
            f"manifest lists {name}{changed} tell of a commit to '{main.name}' that does not fit into what main is made of "
            "again: it was an attempt that came to nothing, or its rows are lost",
            main.layout.manifest_path(name),
            main.branch,
            time_millis=one.stored,
            severity="warning",
        )


def is_gone(main: TableContext) -> bool:
    """Whether the main branch is missing, or a repair of it died at the start."""
    if main.branch is None:
        return False
    state = state_of(main)
    if state is BranchState.BEGUN:
        return hinted_id(main) is None
    return state in {BranchState.ABSENT, BranchState.LEFT_OVER}


def plan_main(
    context: TableContext, states: Sequence[RefState], lost: list[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan how to give the table a main again; what cannot be restored is added to `lost`."""
    main = main_of(context)
    known = replacements(context)
    if not known or not is_gone(main):
        return
    pointer = known[-1]
    renamed = _renamed(main, pointer)
    if renamed is not None:
        what = f"say that main is branch '{renamed}' now: it is the one that was called '{main.branch}'"
        yield (
            RepairStep(Kind.MAIN_GONE, what, main.layout.branch_root),
            partial(_point, main, pointer, renamed),
        )
        return
    yield from _made_again(main, pointer, states, lost)


def _made_again(
    main: TableContext, pointer: MainPointer, states: Sequence[RefState], lost: list[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    assert pointer.replaced is not None, "it names a branch"
    assert main.branch is not None, "the table's own folder cannot be gone"
    ref, old = pointer.replaced.fork, main.on_branch(pointer.replaced.old.name)
    begun = next(
        (s.snapshot for s in states if (s.snapshot.id, s.snapshot.stamp) == (ref.id, ref.stamp)), None
    )
    schema_id = _schema_of(main, ref) if begun is None else begun.schema_id
    if schema_id is None:
        return
    if old.schemas.find(schema_id) is None:
        old = main.on_branch(
            None
        )  # what was main before is gone as well; its schemas were those of the table
    properties = {} if begun is None else begun.properties
    fork = fork_again(old, BranchRef(main.branch, pointer.main.uuid), ref, schema_id, properties)
    remains = remains_of(main.with_fork(fork), pointer, states, begun)
    if not remains.newest:
        return
    lost.extend(remains.lost)
    first = remains.begun or remains.snapshots[0].snapshot
    what = (
        f"make branch '{main.branch}' again as it began, with snapshot {first.id} of what was main before"
        if remains.begun is not None
        else f"make branch '{main.branch}' again with a history that begins with snapshot {first.id}, which has all rows"
    )
    what += "; tags that were made on it since are not known any more"
    yield RepairStep(Kind.MAIN_GONE, what, main.layout.branch_root), partial(_make, old, fork, remains)
    branch = main.on_branch(main.branch)
    for one in remains.snapshots:
        yield put_back(branch, Kind.MAIN_GONE, one)


def _make(old: TableContext, fork: Fork, remains: Remains) -> bool:
    branch = recreate_branch(old, fork, remains.begun, remains.newest)
    if remains.begun is None:  # what may be left of its past is none of its history any more
        first = remains.snapshots[0].snapshot.id
        branch.storage.put(branch.layout.earliest_hint_path, str(first).encode(), durable=False)
    if (old.branch is None or state_of(old) is BranchState.READY) and dropped_until(old) is None:
        past = main_of(branch).past
        if remains.begun is None or past:
            copy_refs(old, branch, fork.snapshot, inherits=bool(past) and past[0].tags is not None)
        else:
            copy_past(old, branch, fork.snapshot)
    return True


def _schema_of(main: TableContext, ref: SnapshotRef) -> int | None:
    """Return the schema id of an expired snapshot, from the archive."""
    past = archived(main, ref.branch_uuid)
    return next((one.schema_id for one in past if one.id == ref.id and one.stamp == ref.stamp), None)


def _renamed(main: TableContext, pointer: MainPointer) -> str | None:
    """Return the branch that has main's identity under another name."""
    for name in branch_names(main):
        try:
            fork = main.on_branch(name).fork
        except AnabranchError:
            continue
        if name != main.branch and fork is not None and fork.branch_uuid == pointer.main.uuid:
            return name
    return None


def _point(main: TableContext, pointer: MainPointer, name: str) -> bool:
    target = BranchRef(name, pointer.main.uuid)
    newest = newest_pointer(main) or pointer
    head = main.on_branch(name).snapshots.head()
    taken = SnapshotRef(target.uuid, 0, "") if head is None else SnapshotRef(target.uuid, head.id, head.stamp)
    assert pointer.replaced is not None, "it names a branch"
    replaced = Replaced(
        old=pointer.main,
        head=pointer.replaced.taken,
        fork=pointer.replaced.fork,
        taken=taken,
        resume=pointer.replaced.fork,
        reason="repair: the branch that was main was deleted or renamed",
        undoes=pointer.generation,
    )
    now, token = main.runtime.clock.now_millis(), main.runtime.ids.uuid()
    return put_pointer(
        main,
        MainPointer(
            newest.generation + 1, target, replaced, now, "anabranch repair", token, past=newest.past
        ),
    )


def put_back(context: TableContext, kind: Kind, found: Recovery) -> tuple[RepairStep, Act]:
    """Build the step that restores a snapshot."""
    path = context.layout.snapshot_path(found.snapshot.id)
    what = f"put snapshot {found.snapshot.id} back, from {found.source}"
    return RepairStep(kind, what, path), partial(found.put, context)
