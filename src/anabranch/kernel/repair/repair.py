"""Repairs what `verify` found. Nothing is deleted that may hold rows; a dry run lists every step.

A plan is a list of steps, each a sentence and an action. Steps are made and executed one kind after the other,
because later kinds build on earlier ones: first misplaced files, then which branch is main, then the
snapshots, then what is on top of them. Repeating a killed repair is safe.

Deleted snapshots are restored, in this order of preference: from a tag, savepoint or other branch that
holds that very snapshot; from remaining manifest lists, if they continue history exactly: the base of one
equals the result of the other, file by file. Lists of attempts that never were commits may look the same, so they
are used only where the hint to the newest snapshot, or the number of a later one, proves that a snapshot was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import LIST_PREFIX, MANIFEST_FOLDER, tag_name_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import pinned_savepoint_of
from anabranch.format.records.snapshot import CommitIdentity, CommitKind, Snapshot
from anabranch.kernel.commit.base import Base, Change
from anabranch.kernel.commit.leftovers import displace, leftovers_above, take_over
from anabranch.kernel.commit.presence import take_back
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import tend_fork_pins
from anabranch.kernel.log.properties import LEFTOVER_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.log.savepoint_log import find_savepoint
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.refs.savepoints import tend
from anabranch.kernel.repair.found import Act, Kind, Problem, RepairStep
from anabranch.kernel.repair.lost_snapshots import recover_head, recover_within
from anabranch.kernel.repair.main_gone import put_back
from anabranch.kernel.repair.verify import Looked


@dataclass(frozen=True, slots=True)
class Repair:
    """Result of a repair, or of its dry run, including what could not be repaired."""

    table: str
    steps: tuple[RepairStep, ...]
    left: tuple[Problem, ...]
    """Remaining problems: lost rows with partition, time and job."""
    dry_run: bool

    def __str__(self) -> str:
        doing = "would be done" if self.dry_run else "done"
        lines = [f"{self.table}: {len(self.steps)} steps {doing}, {len(self.left)} problems left"]
        lines += [f"  {step.kind}: {step.what}" for step in self.steps]
        for problem in self.left:
            about = [f"partition {problem.partition}"] if problem.partition else []
            about += [f"{problem.rows:,} rows"] if problem.rows else []
            about += [f"written by {problem.job}"] if problem.job else []
            lines.append(f"  left: {problem.message}" + (f" ({', '.join(about)})" if about else ""))
            lines += [f"    hint: {problem.hint}"] if problem.hint else []
        return "\n".join(lines)


def files_to_restore(
    context: TableContext, problems: Sequence[Problem], folder: str
) -> Iterator[tuple[RepairStep, Mapping[str, str]]]:
    """Yield the step and moves for missing files that orphan cleaning has moved aside."""
    wanted = {p.path: p for p in problems if p.kind in (Kind.FILE_MISSING, Kind.MANIFEST) and p.path}
    runs = sorted(context.storage.list_folders(folder), reverse=True) if wanted else []
    for run in runs:
        for info in context.storage.list(run, recursive=True):
            path = info.path[len(run) + 1 :]
            problem = wanted.pop(path, None)
            if problem is not None and not context.storage.exists(path):
                yield (
                    RepairStep(
                        problem.kind, f"bring {path} back, which the cleaning of orphans moved away", path
                    ),
                    {info.path: path},
                )


def plan_branch(
    context: TableContext, looked: Looked, problems: Sequence[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan the repair of one branch's history, in order of execution.

    Args:
        looked: the check of the whole table.
    """
    own = [p for p in problems if p.branch == context.branch]
    kinds = {p.kind for p in own}
    layout = context.layout
    if Kind.MANIFEST in kinds:
        yield from _take_unreadable_back(context, own)
    if Kind.GAP in kinds:
        for problem in own:
            if problem.kind is Kind.GAP and problem.snapshot_id is not None:
                number = problem.snapshot_id
                found = recover_within(context, looked.states, number)
                if found is not None:
                    yield put_back(context, Kind.GAP, found)
    if Kind.HEAD_GONE in kinds:
        hinted = max(p.snapshot_id or 0 for p in own if p.kind is Kind.HEAD_GONE)
        for found in recover_head(context, looked.states, hinted):
            yield put_back(context, Kind.HEAD_GONE, found)
    if {Kind.HINT, Kind.HEAD_GONE} & kinds:
        yield (
            RepairStep(Kind.HINT, "write the hint to the newest snapshot", layout.latest_hint_path),
            lambda: _write_hint(context),
        )
    if Kind.SCHEMA in kinds and not _can_build_on(context):
        return  # what is put on top would name a schema that is not there
    if Kind.LEFTOVER in kinds:
        for problem in own:
            if problem.kind is Kind.LEFTOVER:
                yield (
                    RepairStep(
                        Kind.LEFTOVER, f"snapshot {problem.snapshot_id}: {problem.repair}", problem.path
                    ),
                    lambda: bool(sweep(context)),
                )
    if Kind.FOREIGN_HEAD in kinds:
        yield (
            RepairStep(
                Kind.FOREIGN_HEAD,
                "commit an empty snapshot on top of the newest, which takes over what another engine put there",
                next(p.path for p in own if p.kind is Kind.FOREIGN_HEAD),
            ),
            lambda: take_over(context) is not None,
        )


def _take_unreadable_back(context: TableContext, own: Sequence[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to take the newest snapshot back if nothing is left of what its writer put before it.

    It slept until that was cleaned away as orphans and purged, put the snapshot, and died before it looked. Other engines do
    not look: what they put was acknowledged, and stays.
    """
    head = context.snapshots.head()
    if head is None or WRITER_PROPERTY not in head.properties or context.is_forked(head):
        return
    lists = [head.base_manifest_list, head.delta_manifest_list]
    damaged = {problem.path for problem in own if problem.kind is Kind.MANIFEST}
    if not {context.layout.manifest_path(name) for name in lists} <= damaged or _is_some_left(context, lists):
        return
    if context.snapshots.find(head.id - 1) is None:
        return
    rows = "an unknown number of" if head.delta_record_count is None else f"{head.delta_record_count:,}"
    what = (
        f"take snapshot {head.id} of '{context.title}' back, which nobody can read: its manifests and their lists are gone, "
        f"and with them what it changed, {rows} rows"
    )
    path = context.layout.snapshot_path(head.id)
    yield RepairStep(Kind.MANIFEST, what, path), lambda: take_back(context, head)


def _is_some_left(context: TableContext, lists: Sequence[str]) -> bool:
    """Whether one of these lists, or a manifest that our writer stored with them, is there: they share its uuid."""
    written = {name.removeprefix(LIST_PREFIX).rpartition("-")[0] for name in lists}
    there = (info.path.rpartition("/")[2] for info in context.storage.list(MANIFEST_FOLDER))
    return any(uuid in name for name in there for uuid in written)


def _can_build_on(context: TableContext) -> bool:
    """Whether the schema of the newest snapshot can be read."""
    try:
        head = context.snapshots.head()
        return head is None or context.schemas.get(head.schema_id) is not None
    except CorruptTableError:
        return False


def plan_pins(main: TableContext, problems: Sequence[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to restore missing pins."""
    for problem in problems:
        if problem.kind is Kind.PIN:
            yield (
                RepairStep(Kind.PIN, f"put {problem.path} again", problem.path),
                partial(_tend, main, problem),
            )


def _tend(main: TableContext, problem: Problem) -> bool:
    for name in (None, *branch_names(main)):
        branch = main if name == main.branch else main.on_branch(name)
        try:
            if dropped_until(branch) is None:
                tend(branch)
        except NotFoundError:
            continue
    tend_fork_pins(main)
    number = pinned_savepoint_of(tag_name_of(problem.path) or "")
    saved = None if number is None else find_savepoint(main, number)
    if saved is not None and saved.saved_snapshot is not None:
        # For a savepoint of a dropped former main, only its pin says that it is the new main's.
        tag = Tag(saved.pin, saved.saved_snapshot)
        main.storage.put_if_absent(problem.path, tag.to_json())
    return True


def _write_hint(context: TableContext) -> bool:
    head = context.snapshots.head()
    if head is None:
        return False
    context.snapshots.write_hint(head.id)
    return True


_WIDEST_GAP: Final = 1_000
"""Most empty snapshots put between the newest and a leftover; one further up stays until it is reached."""


@dataclass(frozen=True)
class _Nothing:
    """Take the next number without changes."""

    stamp: str

    @property
    def depends_on_base(self) -> bool:
        return False

    def on(self, base: Base) -> Change:
        return Change(CommitKind.COMPACT, [], {LEFTOVER_PROPERTY: self.stamp})


def sweep(context: TableContext, *, dry_run: bool = False) -> list[Snapshot]:
    """Replace leftovers by snapshots that continue history, and fill the gap below them with empty ones.

    Nothing is deleted; see `leftovers`.

    Returns the displaced leftovers.
    """
    swept: list[Snapshot] = []
    while (head := context.snapshots.head()) is not None:
        left = leftovers_above(context, head)
        if dry_run or not left or left[0].id - head.id > _WIDEST_GAP:
            return left if dry_run else swept
        if head.id + 1 < left[0].id:
            nothing = CommitRequest(_Nothing(left[0].stamp), CommitIdentity.batch(context.runtime))
            commit(context, nothing, known_head=head)
        elif displace(context, head) is not None:
            swept.append(left[0])
            context.snapshots.write_hint(left[0].id)
    return swept
