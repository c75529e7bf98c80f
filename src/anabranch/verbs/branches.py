"""Verbs about branches: making, merging and deleting them, and putting one in the place of main."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count as numbers
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from anabranch.errors import CommitConflictError, CorruptTableError, NotFoundError
from anabranch.runtime import SYSTEM
from anabranch.verbs.answer import Answer, Branching, Grid, Lines, Shown, Watched, moment
from anabranch.verbs.legible import Unread
from anabranch.verbs.parameters import BranchName, DryRun, Force, Reason, RequireAudit
from anabranch.verbs.subject import OnTable
from anabranch.verbs.verb import Called, Confirm, Group, option, verb

if TYPE_CHECKING:
    from anabranch.kernel.branches.branch_info import BranchInfo
    from anabranch.kernel.merge.result import MergeResult
    from anabranch.kernel.provenance.coverage import JobOnMain
    from anabranch.kernel.replacement.result import ReplaceResult
    from anabranch.lineage.lag import BranchLag
    from anabranch.table import Table

T = TypeVar("T")

BRANCHES: Group = "Branches"
_CONFLICT = 3
"""Exit code where something stands against what was asked."""
_BRANCH = "branch STRING, branch_uuid STRING, tag STRING, snapshot_id BIGINT"
_REPLACED = (
    "branch STRING, replacement BIGINT, former_main STRING, fork_snapshot_id BIGINT, old_snapshot_id BIGINT, "
    "new_snapshot_id BIGINT"
)
_LAGS = ("branch", "source", "main is at", "branch is at", "behind", "")
_UNITS = {"table": "snapshots", "kafka": "offsets", "files": "log entries"}


@verb(BRANCHES, "Table.branch_infos", sql="SELECT * FROM db.t$branches")
def branches(
    table: OnTable,
    watch: Annotated[
        bool, option("Show how far each branch is behind main, per source, until Ctrl-C.", "--watch")
    ] = False,
    interval: Annotated[float, option("Seconds between two looks of --watch.", min=0)] = 2.0,
    times: Annotated[int | None, option("Looks of --watch; no end if absent.", min=1)] = None,
) -> Answer:
    """Show main and its branches: where each began, and how far it and main have moved since."""
    if watch:
        looks = _repeatedly(lambda: _lags(table), interval, times)
        return Answer(None, Watched(_lag_answer(lags) for lags in looks))
    found = table.branch_infos()
    main, *others = found
    known = [info for info in others if info.fork_snapshot is not None]
    beginnings = sorted({(info.fork_snapshot or 0, info.tag or "") for info in known})
    grown = [
        (
            f"snapshot {snapshot}, tag '{tag}'",
            [_of_branch(info) for info in known if (info.fork_snapshot, info.tag) == (snapshot, tag)],
        )
        for snapshot, tag in beginnings
    ]
    strays: list[tuple[str, list[str]]] = [
        (_of_branch(info), []) for info in others if info.fork_snapshot is None
    ]
    where = "" if main.folder is None else f", in the place of main since it was replaced by '{main.folder}'"
    unread = Unread(table.name)
    for info in found:
        if info.problem is not None:
            unread(f"branch '{info.name}'", CorruptTableError(info.problem, hint=info.hint))
    drawing = Branching(f"{table.name}: main{where}{_head(main)}", grown + strays)
    return Answer(found, drawing, *unread.notes, code=unread.code)


def _of_branch(info: BranchInfo) -> str:
    if info.state == "begun":
        return f"{info.name}: is being created, or a creation died; create it again or delete it"
    if info.state == "deleting":
        return f"{info.name}: is being deleted, or a removal died; delete it again"
    if info.state == "left-over":
        return f"{info.name}: what is left of a branch; delete it"
    if info.state == "damaged":
        return f"{info.name}: is damaged"
    if info.tag is None:
        return f"{info.name}: made by another engine{_head(info)}"
    by = "" if info.created_by is None else f" by {info.created_by}"
    until = "" if info.expires is None else f", kept until {moment(info.expires)}"
    lacks = "".join(f"\nonly main has {job}" for job in info.only_on_main or ())
    return f"{info.name}{_head(info)}\n{_moved(info)}\ncreated {moment(info.created)}{by}{until}{lacks}"


def _head(info: BranchInfo) -> str:
    if info.head is None:
        return ", without snapshots" if info.problem is None else ", whose newest snapshot cannot be read"
    rows = "" if info.rows is None else f", {info.rows:,} rows"
    return f": snapshot {info.head} of {moment(info.head_time)}{rows}"


def _moved(info: BranchInfo) -> str:
    """Describe how far a branch and main moved since the fork: ``2 snapshots, +20 rows; main 3 snapshots, +3 rows``."""
    own = _counted(info.snapshots_ahead, info.rows_ahead)
    return f"{own}; main {_counted(info.snapshots_behind, info.rows_behind)}"


def _counted(snapshots: int | None, rows: int | None) -> str:
    if not snapshots:
        return "not moved" if snapshots == 0 else "not known"
    counted = f"{snapshots:,} snapshot{'' if snapshots == 1 else 's'}"
    return counted if rows is None else f"{counted}, {rows:+,} rows"


def _repeatedly(look: Callable[[], T], every_seconds: float, times: int | None) -> Iterator[T]:
    """Yield the result of `look` repeatedly, with pauses between; so many times, for ever if None."""
    for number in numbers() if times is None else range(times):
        if number:
            SYSTEM.sleeper.sleep(every_seconds)
        yield look()


def _lags(table: Table) -> list[BranchLag]:
    """Return how far each branch is behind main, by name; half-created and half-deleted branches are left out."""
    infos = table.branch_infos()
    found = []
    for name in (info.name for info in infos if not info.is_main and info.tag and info.state == "ready"):
        with suppress(NotFoundError):  # it was deleted meanwhile
            found.append(table.branch_lag(name))
    return found


def _lag_answer(lags: Sequence[BranchLag]) -> Answer:
    values = [{**asdict(lag), "behind": lag.behind, "caught_up": lag.has_caught_up} for lag in lags]
    rows: list[tuple[object, ...]] = []
    for lag in lags:
        for source in lag.sources:
            name = f"{source.name} ({source.parts} partitions)" if source.parts > 1 else source.name
            unit = "not known" if source.behind is None else _UNITS.get(source.kind, "")
            rows.append(
                (lag.branch, f"{source.kind} {name}", source.main, source.branch, source.behind, unit)
            )
        if not lag.sources:
            rows.append((lag.branch, "main has read nothing that is known", None, None, None, ""))
        rows += [(lag.branch, problem, None, None, None, "") for problem in lag.problems]

    def style(row: Sequence[Any]) -> dict[int, str]:
        return {} if row[4] is None else {4: "green" if row[4] == 0 else "yellow"}

    return Answer(Lines(values), Grid(_LAGS, rows, style=style, right=(2, 3, 4)))


@verb(BRANCHES, "Table.create_branch", columns=_BRANCH, changes=True)
def create_branch(
    table: OnTable,
    name: BranchName,
    tag: Annotated[
        str | None, option("Tag of main to begin with; with --snapshot or --savepoint the tag to make.")
    ] = None,
    snapshot: Annotated[str | None, option("Snapshot of main to begin with.")] = None,
    savepoint: Annotated[int | None, option("Number of the savepoint to begin with.")] = None,
    retained: Annotated[
        str | None, option("How long maintain keeps the branch, such as '7 d'; for good if absent.")
    ] = None,
    *,
    caller: Called,
) -> Answer:
    """Create a branch that begins as a tag of main is. No data is copied."""
    how: dict[str, Any] = {"snapshot": snapshot, "savepoint": savepoint, "retained": retained}
    table.create_branch(name, tag, created_by=caller.by, **how)
    info = _info(table, name)
    fork = table.branch(name).context.fork
    assert fork is not None, "it was created just now"
    return Answer(
        info,
        f"branch '{name}' of {table.name} begins with snapshot {info.fork_snapshot} (tag '{info.tag}'); "
        f"read and write it as {table.name}$branch_{name}",
        rows=[(fork.name, fork.branch_uuid, fork.tag, fork.snapshot.id)],
    )


def _info(table: Table, name: str) -> BranchInfo:
    """Return facts about one branch, even a half-created or half-deleted one. Raises `NotFoundError`."""
    found = next((info for info in table.branch_infos() if info.name == name), None)
    if found is None:
        raise NotFoundError(
            f"branch '{name}' does not exist in '{table.name}'", hint="`branches` lists those there are."
        )
    return found


@verb(BRANCHES, "Table.delete_branch", columns=_BRANCH, changes=True)
def delete_branch(table: OnTable, name: BranchName, dry_run: DryRun = False, *, ask: Confirm) -> Answer:
    """Remove a branch with its snapshots, tags and savepoints; its data goes with the next clean-up."""
    found = table.delete_branch(name, dry_run=True)
    info = _info(table, name)
    moved = "" if info.tag is None else f" ({_moved(info)})"
    ask(f"delete branch '{name}' of {table.name}{moved}?")
    fork = (found if dry_run else table.delete_branch(name)).fork
    known = (None,) * 3 if fork is None else (fork.branch_uuid, fork.tag, fork.snapshot.id)
    return Answer(
        {"branch": name, "facts": info, "deleted": not dry_run},
        f"{'would delete' if dry_run else 'deleted'} branch '{name}' of {table.name}{moved}",
        rows=[(name, *known)],
    )


@verb(
    BRANCHES,
    "Table.merge_branch",
    columns="snapshot_id BIGINT, partition STRING, outcome STRING, chosen STRING, files_added BIGINT, "
    "files_removed BIGINT, rows_added BIGINT, rows_removed BIGINT, conflict STRING, message STRING",
    changes=True,
)
def merge_branch(
    table: OnTable,
    name: BranchName,
    resolve: Annotated[
        list[str] | None,
        option(
            "Whose rows partitions with a conflict get: 'ours' (main's) or 'theirs' (the branch's) for all, "
            "'dt=2026-01-01:theirs' for one; may be repeated."
        ),
    ] = None,
    allow_source_overlap: Annotated[
        bool, option("Merge events that main has from the same source as well.", "--allow-source-overlap")
    ] = False,
    require_audit: RequireAudit = None,
    dry_run: DryRun = False,
) -> Answer:
    """Bring what a branch did since it was merged last into main. Exits with 3 if something stands against it."""
    from anabranch.kernel.merge.conflict import MergeConflict
    from anabranch.kernel.merge.result import MergeResult

    choices = {(parts := text.rpartition(":"))[0] or "*": parts[2] for text in resolve or ()}
    refused: CommitConflictError | None = None
    try:
        result = table.merge_branch(
            name,
            resolve=choices,
            allow_source_overlap=allow_source_overlap,
            require_audit=require_audit,
            dry_run=dry_run,
        )
    except CommitConflictError as error:
        conflicts = tuple(c for c in error.conflicts if isinstance(c, MergeConflict))
        if not conflicts or len(conflicts) < len(error.conflicts):
            raise
        result, refused = MergeResult(name, conflicts=conflicts), error
    return Answer(
        result,
        *_merged(table.name, result),
        rows=_merge_rows(result),
        code=_CONFLICT if result.conflicts else 0,
        error=refused,
    )


def _merge_rows(result: MergeResult) -> Iterator[tuple[Any, ...]]:
    made = None if result.snapshot is None else result.snapshot.id
    for p in result.partitions:
        yield (
            *(made, p.partition, str(p.outcome), None if p.chosen is None else str(p.chosen)),
            *(p.files_added, p.files_removed, p.rows_added, p.rows_removed, None, None),
        )
    for conflict in result.conflicts:
        yield (None, conflict.partition, "conflict", *(None,) * 5, conflict.kind, conflict.message)


def _merged(table: str, result: MergeResult) -> Iterator[Shown]:
    branch = f"branch '{result.branch}'"
    if result.conflicts:
        many = len(result.conflicts)
        yield (
            f"{branch} cannot be merged into {table} as it is: "
            f"{many} {'conflict' if many == 1 else 'conflicts'}"
        )
        rows = [
            (c.kind, c.partition, ", ".join(map(str, c.snapshots)), len(c.files) or None, c.message)
            for c in result.conflicts
        ]
        yield Grid(("conflict", "partition", "main's snapshots", "files", "what"), rows)
        yield from (f"  hint: {hint}" for hint in dict.fromkeys(c.hint for c in result.conflicts))
        return
    if not result.dry_run and result.snapshot is None:
        yield f"nothing to merge: {table} has all that {branch} did"
        return
    yield from (f"schema: {change}" for change in result.schema_changes)
    if result.partitions:
        yield Grid(
            ("partition", "outcome", "chosen", "files added", "removed", "rows added", "removed"),
            [
                (
                    *(p.partition, str(p.outcome), p.chosen and str(p.chosen)),
                    *(p.files_added, p.files_removed, p.rows_added, p.rows_removed),
                )
                for p in result.partitions
            ],
        )
    if result.snapshot is None:
        yield f"would merge {branch} into {table}"
    else:
        yield f"merged {branch} into {table}: snapshot {result.snapshot.id}"


@verb(BRANCHES, "Table.replace_main_branch", columns=_REPLACED, changes=True)
def replace_main_branch(
    table: OnTable,
    name: Annotated[str, option("Name of the branch that is to be main.", "--name", "-n", sql="branch")],
    expect_main: Annotated[
        str | None,
        option(
            "Main's newest snapshot, its number or, as --dry-run says, with a part of its stamp such as "
            "57@0c1f9a2b; with another one nothing is done."
        ),
    ] = None,
    mode: Annotated[
        str,
        option(
            "'pointer' makes the branch main; 'commit' gives main its rows in one commit, for tables that other "
            "engines use."
        ),
    ] = "pointer",
    wait: Annotated[
        bool, option("Wait until the branch has read from its sources what main has.", "--wait", sql=None)
    ] = False,
    wait_for: Annotated[str | None, option("Wait no longer than this, such as '10 min'.", sql="wait")] = None,
    force: Force = False,
    require_audit: RequireAudit = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Put a branch in the place of main, while everybody reads and writes. Exits with 3 if something stands against it."""
    ask(f"put branch '{name}' in the place of main of {table.name}?")
    result = table.replace_main_branch(
        name,
        expect_main=expect_main,
        mode=mode,
        wait=wait_for or wait or None,
        force=force,
        require_audit=require_audit,
        by=caller.by,
        reason=reason,
        dry_run=dry_run,
    )
    shown = [f"{table.name}: {result}", *told_only_on_main(result.jobs_only_on_main)]
    if result.expect_main is not None:
        expected = f"--expect-main {result.expect_main}"
        shown.append(f"with {expected} that is done to main as it is now, or not at all")
    return Answer(result, *shown, rows=[_replaced(result)])


def told_only_on_main(jobs: Sequence[JobOnMain]) -> Iterator[str]:
    """Say what only main has and a branch lacks, a line for each job, and what to do about it."""
    for job in jobs:
        yield f"only main has {job}"
        yield f"  hint: {job.bring}"


def _replaced(done: ReplaceResult) -> tuple[Any, ...]:
    return (done.branch, done.number, done.former, done.fork, done.old_snapshot, done.new_snapshot)


@verb(BRANCHES, "Table.undo_replace", columns=_REPLACED, changes=True)
def undo_replace(
    table: OnTable,
    number: Annotated[
        int | None, option("Number of the replacement, to go back further than the last one.")
    ] = None,
    reason: Reason = None,
    alone: Annotated[
        bool, option("Also if it was made together with those of other tables, which stay.", "--alone")
    ] = False,
    *,
    ask: Confirm,
    caller: Called,
) -> Answer:
    """Take back the last replacement of main. What was committed since stays on the branch that was main."""
    ask(f"take back the last replacement of main of {table.name}?")
    result = table.undo_replace(number, alone=alone, by=caller.by, reason=reason)
    return Answer(result, f"{table.name}: {result}", rows=[_replaced(result)])
