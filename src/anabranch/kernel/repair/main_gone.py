"""Restores a main branch that another engine renamed or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.format.records.fork import Fork
from anabranch.format.records.main_pointer import BranchRef, MainPointer, Replaced
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.branches.create import fork_again, recreate_branch
from anabranch.kernel.log.archive import archived
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import newest_pointer, put_pointer, replacements
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.repair.branches import hinted_id
from anabranch.kernel.repair.found import RefState
from anabranch.kernel.repair.lost_main import Remains, remains_of
from anabranch.kernel.repair.lost_snapshots import Recovery
from anabranch.kernel.repair.problem import Act, Kind, Problem, RepairStep
from anabranch.kernel.replacement.copy_history import copy_past, copy_refs


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
    if (old.branch is None or state_of(old) is BranchState.READY) and dropped_until(old) is None:
        copy = copy_refs if remains.begun is None else copy_past
        copy(old, branch, fork.snapshot)
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
        main, MainPointer(newest.generation + 1, target, replaced, now, "anabranch repair", token)
    )


def put_back(context: TableContext, kind: Kind, found: Recovery) -> tuple[RepairStep, Act]:
    """Build the step that restores a snapshot."""
    path = context.layout.snapshot_path(found.snapshot.id)
    what = f"put snapshot {found.snapshot.id} back, from {found.source}"
    return RepairStep(kind, what, path), partial(found.put, context)
