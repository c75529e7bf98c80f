"""Checks of what jobs make on the branches of a cascade, before anything of it is published.

* *Ends*: no job goes on for ever, so that the correction never comes to an end.
* *Code*: rows that a job made on a branch before its code changed are not mixed with rows of the changed code.
* *Reads*: no job has read the main of a table that is being corrected, or one that was replaced since.
* *Partitions*: a batch job that overwrites partitions has replaced all that it had replaced on main.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cascade.affected import Affected
from anabranch.cascade.starts import Corrected, parted_at
from anabranch.cascade.values import CascadePlan, CascadeStep
from anabranch.cascade.work import Work
from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.shell import command_line
from anabranch.jobs.checkpoint import JobCheckpoint
from anabranch.jobs.definition import definition_of
from anabranch.jobs.frames import SourceReading
from anabranch.jobs.frames import made_by as rows_made_by
from anabranch.jobs.job import Job
from anabranch.jobs.state.held import newest_committed
from anabranch.jobs.state.operators import check_ends, operators_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_by_uuid, main_of
from anabranch.kernel.provenance.classify import MarksReader
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.kernel.scan.partitions import partition_text
from anabranch.lineage.code_version import code_version
from anabranch.lineage.model import LineageEntry, TableInput, entry_or_none, lineage_of

if TYPE_CHECKING:
    from anabranch.lake import Lake

_NAMED_AT_MOST = 5
_UNKNOWN = "unknown"


def check_all_end(work: Work, lake: Lake) -> None:
    """Raise `InvalidInputError` if a job of the plan would never come to its end. Nothing is begun for it.

    Without a session of Spark nothing is checked.
    """
    for part in (part for step in work.plan.steps for part in step.jobs if not part.is_batch):
        job, operators = work.jobs[part.job], None
        if lake.spark is None or isinstance(job.transform, str):  # SQL has no functions with timers
            continue
        # What else is wrong with it, as on main, which may lack what its branch will have, is told where it starts.
        with suppress(Exception):
            operators = operators_of(rows_made_by(job, SourceReading(lake)).rows, None)
        check_ends(job.name, job.sink, operators)


def made_by(branch: TableContext, job: str) -> Iterator[tuple[Snapshot, LineageEntry]]:
    """Yield the commits that a job made on a branch since it was created, newest first."""
    head, fork = branch.snapshots.head(), branch.fork
    for snapshot in () if head is None else branch.snapshots.backwards(head):
        if fork is not None and snapshot.id <= fork.snapshot.id:
            return
        entry = lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
        if entry is not None and entry.job == job:
            yield snapshot, entry


def check_same_code(
    plan: CascadePlan, step: CascadeStep, job: Job, branch: TableContext, checkpoint: JobCheckpoint | None
) -> None:
    """Raise `InvalidInputError` if a job's code has changed since it made rows, or state, on a branch.

    Rows of both would be published as one. A job that had failed before its first batch may change. `checkpoint` is None
    for a batch job; where it was lost, or another one is named now, the commits tell by which code they were made.
    """
    if checkpoint is None:
        return
    made = next(made_by(branch, job.name), None)
    begun, now = checkpoint.known(), definition_of(job) or _UNKNOWN
    is_own = begun is None or (begun.job, begun.branch_uuid) == (job.name, branch.branch_uuid)
    known = checkpoint.definitions if is_own else frozenset()  # another's is refused where the job starts
    if made is None and not is_own:
        return
    if made is None and newest_committed(checkpoint.storage) is None:
        checkpoint.forget_definitions()
        return
    has_changed = bool(known) and known != {now}
    if known <= {_UNKNOWN} and made is not None:
        has_changed = made[1].code not in (None, code_version_of(job))
    if has_changed:
        raise InvalidInputError(
            f"the code of job '{job.name}' is not that by which it has made rows of '{step.table}$branch_{step.branch}': gone on "
            "with, rows of both would be published",
            hint=_begin_anew(plan, step, job.name),
        )


def code_version_of(job: Job) -> str | None:
    """Return the version of a job's code as its commits name it."""
    return code_version(Path(job.place.file))


def check_reads(
    work: Work, step: CascadeStep, job: str, branch: TableContext, corrected: Mapping[str, Corrected]
) -> None:
    """Raise `InvalidInputError` if a job has read what is not, or no longer, the right main of a table.

    Args:
        branch: the branch of that table.
        corrected: the tables that are being corrected, by name.
    """
    corrected_mains = {one.main.branch_uuid: one for one in corrected.values() if one.branch is not None}
    own = {one.branch_uuid for one in corrected.values()}
    tables = {main.table_uuid: main for main in work.mains.values()}
    for snapshot, entry in made_by(branch, job):
        for read in entry.inputs:
            if not isinstance(read, TableInput):
                continue
            where = (
                f"what it made of that is in snapshot {snapshot.id} of '{step.table}$branch_{step.branch}'"
            )
            one = corrected_mains.get(read.branch_uuid)
            if one is not None and read.through > (one.fork or 0):
                raise InvalidInputError(
                    f"job '{job}' has read main of '{one.table}' up to snapshot {read.through}, and not its corrected "
                    f"branch: {where}",
                    hint=f'declare it as a source, with anabranch.static("{one.table}"), instead of naming it in the code; '
                    f"then delete that branch and the job's checkpoint for it, and run the cascade again.",
                )
            main = tables.get(read.table_uuid)
            if main is None or one is not None or read.branch_uuid in own:
                continue
            parted = _replaced_since(main_of(main), read)
            if parted is not None:
                raise InvalidInputError(
                    f"job '{job}' has read main of '{main.name}' up to snapshot {read.through}, and that main was replaced "
                    f"since by one that is the same up to snapshot {parted}: {where}",
                    hint=_begin_anew(work.plan, step, job),
                )


def _replaced_since(main: TableContext, read: TableInput) -> int | None:
    """Return where a former main that was read and the current one parted, if rows beyond that were read; else None."""
    try:
        parted = parted_at(main, read.branch_uuid)
    except NotFoundError:
        return None  # a branch that was never main, which the job names itself
    if parted is None or read.through <= parted:
        return None
    former = main_by_uuid(main, read.branch_uuid)
    beyond = [
        None if former is None else former.snapshots.find(number)
        for number in range(parted + 1, read.through + 1)
    ]
    is_harmless = all(one is not None and one.brings_nothing for one in beyond)
    return None if is_harmless else parted


def is_current(lake: Lake, job: Job, branch: TableContext, branches: Mapping[str, str]) -> bool:
    """Whether a batch job's last commit on a branch read its sources as they are now, by the code it has now.

    Args:
        branches: the branches on which tables are read, by table.
    """
    made = next(made_by(branch, job.name), None)
    if made is None or made[1].code != code_version_of(job):
        return False
    read = {one.branch_uuid: one.through for one in made[1].inputs if isinstance(one, TableInput)}
    for source in job.sources.values():
        if source.table is None:
            return False  # what a function reads may be other rows by now
        if any(option.key in source.options for option in MOMENT_OPTIONS):
            continue
        name = branches.get(source.table)
        title = source.name if name is None or source.names_branch else f"{source.name}$branch_{name}"
        there = lake.table(title).context
        head = there.snapshots.head()
        since = range(read.get(there.branch_uuid, 0) + 1, 1 if head is None else head.id + 1)
        found = [there.snapshots.find(number) for number in since]
        if there.branch_uuid not in read or any(one is None or not one.brings_nothing for one in found):
            return False
    return True


def partitions_left(job: Job, one: Affected, branch: TableContext) -> str | None:
    """Return what a batch job that overwrites had replaced on main and has not on the branch, for people; or None."""
    schema = branch.schemas.latest()
    if job.mode != "overwrite" or schema is None or not schema.partition_keys:
        return None
    marks = MarksReader(branch)
    anew = list(marks.of([snapshot for snapshot, _ in made_by(branch, job.name)]))
    if any(wide.spec is None for made in anew for wide in made.wide):
        return None  # it replaces all of the table
    main, begun = main_of(one.main), branch.fork.snapshot.id if branch.fork is not None else 0
    head = main.snapshots.head()
    there: list[Snapshot] = []
    for snapshot in () if head is None else main.snapshots.backwards(head):
        if snapshot.id <= begun:
            break
        there.append(snapshot)
    of_job = [s for s in there if (entry := entry_or_none(s)) is not None and entry.job == job.name]
    try:
        before = {row for made in MarksReader(main).of(of_job) for row in made.partitions}
    except CorruptTableError:
        return f"its snapshots after {begun} have expired, and with them which partitions job '{job.name}' had replaced"
    if len(there) < (0 if head is None else head.id - begun):
        return f"snapshots after {begun} have expired, and with them which partitions job '{job.name}' had replaced"
    left = sorted(partition_text(row, schema) for row in before - {row for m in anew for row in m.partitions})
    if not left:
        return None
    more = f" and {len(left) - _NAMED_AT_MOST} more" if len(left) > _NAMED_AT_MOST else ""
    return (
        f"job '{job.name}' had replaced partitions of it that its run on the branch has not: "
        f"{', '.join(left[:_NAMED_AT_MOST])}{more}; run it for each of them on the branch"
    )


def _begin_anew(plan: CascadePlan, step: CascadeStep, job: str) -> str:
    if plan.tag is not None:
        again = command_line("correct", plan.table, "--from-tag", plan.tag, "--name", f"{plan.name}.again")
        return f"begin the correction anew, on branches of another name: {again} --run."
    return (
        f"begin anew: delete-branch {step.table} --name {step.branch}, remove the checkpoint of job '{job}' for it "
        f"({job}@{step.branch}, in _checkpoints of the warehouse or where --checkpoints says; FOLDER@{step.branch} with "
        "--checkpoint FOLDER), and run the cascade again."
    )
