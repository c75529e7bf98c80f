"""The plan of a cascade: for each table its branch, its jobs, and what no job can make again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.cascade.affected import Affected, Affects, affected
from anabranch.cascade.correction import Correction, FromTag, correction_from, correction_of
from anabranch.cascade.order import in_order
from anabranch.cascade.starts import Corrected, JobStart, Stand
from anabranch.cascade.taken_away import begun_anew, takings
from anabranch.cascade.values import CascadePlan, CascadeStep, JobPart
from anabranch.cascade.work import Work, branch_there
from anabranch.cascade.writers import Writer, writers_of
from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.checkpoint import IN_WAREHOUSE, Places
from anabranch.jobs.job import Job
from anabranch.jobs.positions import first_positions
from anabranch.jobs.starts import reads_files_on
from anabranch.jobs.state.file_logs import newest_logs
from anabranch.jobs.state.held import expected_state, files_unknown, log_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment, of_snapshot, of_tag
from anabranch.kernel.log.tag_log import visible_tags
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.questions.asked import AskedCommits
from anabranch.lineage.questions.positions import positions
from anabranch.lineage.store import CommitStore, Known, healing

if TYPE_CHECKING:
    from anabranch.lake import Lake


def plan_cascade(
    lake: Lake,
    table: str,
    jobs: Sequence[Job] = (),
    *,
    checkpoint: str | None = None,
    checkpoints: str | None = None,
) -> CascadePlan:
    """Return what has to be done in the tables derived from one whose main was replaced. Nothing is changed.

    Args:
        lake: the warehouse.
        table: the table that was corrected.
        jobs: those that write the tables, with their names in lineage.
        checkpoint: folder of the checkpoint of the only job with a stream among its sources, if one was named for it.
        checkpoints: folder with the jobs' checkpoints, if it is not that of the warehouse.

    Raises:
        NotFoundError: there is no such table, or its main was never replaced.
        InvalidInputError: the tables feed each other in a circle, or the table itself is made from what is taken out.
    """
    return work_of(lake, table, jobs, places=Places(checkpoint, checkpoints)).plan


@healing
def work_of(
    lake: Lake,
    table: str,
    jobs: Sequence[Job],
    start: FromTag | None = None,
    *,
    places: Places = IN_WAREHOUSE,
) -> Work:
    """Return the plan, with all that is needed to carry it out. Raises as `plan_cascade`.

    With `start` the table itself is corrected as well; raises as `correction_from`.
    """
    root = lake.table(table).context
    mains, warnings = _mains(lake)
    with lake.lineage.reading() as known:
        correction = (
            correction_of(root, known.store) if start is None else correction_from(root, known.store, start)
        )
        affects = _affects(known.store, correction, mains) if correction.taken_out else None
        tables = () if affects is None else affects.tables
        if affects is not None and affects.in_itself and start is None:
            raise _made_of_its_own(correction, affects)
        if correction.root is not None:
            tables = (correction.root, *tables)
        rows = {one.main.name: _rows_of(known.store, one) for one in tables}
        took = {one.main.name: _took(known.store, one) for one in tables}
        writers = {one.main.name: writers_of(known.store, one.made_anew, one.kept) for one in tables}
        by_name = {job.name: job for job in jobs}
        tables = in_order(tables, writers, by_name)
        of_files = {job.sink for job in jobs if job.reads_files}
        stands = {one.main.name: _stand(known, one, reads_files=one.main.name in of_files) for one in tables}
        sources = {source.table for job in jobs for source in job.sources.values()}
        taking = {
            main.name: takings(main, known.store)
            for main in mains.values()
            if tables and main.name in sources
        }
    problems = () if affects is None else affects.trace.problems
    names = {main.name: main for main in mains.values()}
    plan = CascadePlan(
        correction.table,
        correction.number,
        tuple((s.first, s.last) for s in correction.taken_out),
        tuple(correction.former[s.branch] for s in correction.taken_out),
        (),
        () if affects is None else affects.beside,
        (*warnings, *known.problems, *problems, *correction.warnings),
        correction.name,
        None if start is None else start.tag,
        is_named=start is not None and start.name is not None,
    )
    options = lake.storage_options
    work = Work(
        plan,
        correction,
        tables,
        by_name,
        writers,
        stands,
        names,
        lake.url,
        options,
        rows,
        took,
        start,
        taking,
        places,
    )
    return replace(work, plan=replace(plan, steps=tuple(_steps(work))))


def _affects(store: CommitStore, correction: Correction, mains: Mapping[str, TableContext]) -> Affects:
    begun = {
        uuid: fork for uuid, main in mains.items() if (fork := _begun(main, correction.name)) is not None
    }
    asked = AskedCommits(
        correction.taken_out[0].branch, correction.taken_out, f"what was taken out of {correction.table}"
    )
    return affected(begun_anew(store, correction.takings), asked, mains, begun)


def _made_of_its_own(correction: Correction, affects: Affects) -> InvalidInputError:
    """Return the error that the table was corrected with rows which its cascade takes out again."""
    named = ", ".join(one.main.name for one in affects.tables)
    first, last = affects.in_itself[0]
    which = f"snapshot {first}" if first == last else f"snapshots {first} to {last}"
    return InvalidInputError(
        f"{correction.table} is itself made from rows of {named} that are to be taken out ({which} of its main): corrected "
        "after it, they would be right, and it would not",
        hint=f"undo its replacement (undo-replace), and let one command correct all of them in their order: anabranch correct "
        f"{correction.table} --from-tag TAG.",
    )


def moment_at(main: TableContext, snapshot_id: int) -> Moment:
    """Return a snapshot of main that exists by itself or by a tag. Raises `NotFoundError`."""
    snapshot = main.snapshots.find(snapshot_id)
    if snapshot is not None:
        return of_snapshot(snapshot)
    for tag in visible_tags(main):
        if tag.snapshot.id == snapshot_id:
            return of_tag(tag)
    raise NotFoundError(f"snapshot {snapshot_id} of '{main.name}' is not there any more")


def _steps(work: Work) -> Iterator[CascadeStep]:
    corrected = work.corrected(made=False)
    for one in work.tables:
        parts, problems, notes = [], [], []
        if one.fork is None:
            problems.append(
                f"it would have to begin again at snapshot {one.missing}, and neither that nor one before it is there"
            )
        for writer in work.writers[one.main.name]:
            found = _part(work, one, writer, corrected)
            if isinstance(found, JobPart):
                parts.append(found)
            elif not writer.commits:
                notes.append(
                    f"job '{writer.job}' wrote to it before that: it will be stopped, and no job that was given goes on for it"
                )
            else:
                problems.append(found)
        yield CascadeStep(
            one.main.name,
            work.correction.name,
            branch_there(one.main, work.correction.name, must=False) is not None,
            None if one.fork is None else one.fork.snapshot,
            one.fork is not None and one.fork.is_empty,
            one.bad,
            sum(segment.last - segment.first + 1 for segment in one.made_anew),
            work.rows[one.main.name],
            tuple(parts),
            tuple(problems),
            tuple(notes),
        )


def _part(work: Work, one: Affected, writer: Writer, corrected: Mapping[str, Corrected]) -> JobPart | str:
    """Return how a writer's work is done again, or why it cannot be."""
    if writer.problem is not None:
        return writer.problem
    job = work.jobs.get(writer.job)
    if job is None:
        return f"{writer}, and it is declared in no job file that was given"
    if job.sink != one.main.name:
        return f"{writer}, and the job of that name writes '{job.sink}' ({job.place})"
    is_batch = work.is_batch(job)
    if is_batch and job.mode == "append" and writer.commits > 1:
        return f"{writer} as a batch job that appends: what it read each time is not there to be read again"
    start = work.start(job, one, corrected)
    problem = start.problem
    if problem is None and reads_files_on(start.options):
        problem = files_unknown(work.warehouse, work.storage_options, work.places, job, start.point)
    problem = problem or _logs_gone(work, one, job, start)
    if problem is not None:
        return f"{writer}, and it cannot go on from snapshot {one.missing if one.fork is None else one.fork.snapshot}: {problem}"
    notices = (*start.notices, *_undeclared(work, writer, job))
    state = expected_state(work.warehouse, work.storage_options, work.places, job, start.point)
    took = work.took[one.main.name].get(writer.job)
    return JobPart(writer.job, start.sources, writer.commits, is_batch, start.options, notices, state, took)


def _logs_gone(work: Work, one: Affected, job: Job, start: JobStart) -> str | None:
    """Return why it cannot be told whether the files are still there that a job had read for what is made again."""
    place = work.warehouse, work.storage_options, work.places, job.name, one.main
    for query, batch in start.file_logs.items():
        found = log_of(*place, query=query, batch=batch)
        if isinstance(found, str) and (start.point is None or query != start.point.query):
            return found
    return None


def _undeclared(work: Work, writer: Writer, job: Job) -> Iterator[str]:
    """Yield warnings about corrected tables that a job has read without declaring them."""
    by_uuid = {one.main.table_uuid: one.main.name for one in work.tables}
    read = {by_uuid[table] for table in writer.tables if table in by_uuid}
    for table in sorted(read - {*job.tables, job.sink}):
        yield (
            f"it has read {table}, which it does not declare: if its code still does, it reads main and not what is "
            f'corrected, and the run stops; declare it as a source, with anabranch.static("{table}")'
        )


def _mains(lake: Lake) -> tuple[dict[str, TableContext], list[str]]:
    """Return the main of each table of a warehouse by its identity, and warnings for tables that cannot be opened.

    Raises `CorruptTableError` naming a table whose newest snapshot cannot be read: it may be made from what was wrong.
    """
    found, warnings = {}, []
    for database in lake.databases():
        for name in lake.tables(database):
            try:
                context = lake.table(f"{database}.{name}").context
            except AnabranchError as error:
                warnings.append(f"{database}.{name} is left out: {error.message}")
            else:
                found[context.table_uuid] = context
                _head(context)
    return found, warnings


def _head(main: TableContext) -> None:
    try:
        main.snapshots.head()
    except CorruptTableError as error:
        raise CorruptTableError(
            f"which tables are to be corrected cannot be told: {main.name} is damaged: {error.message}",
            hint=f"`verify` {main.name} tells what is damaged, `repair` makes it again where it can; or drop the table.",
        ) from error


def _stand(known: Known, one: Affected, *, reads_files: bool) -> Stand:
    """Return how far the jobs of a table were at its fork."""
    firsts = first_positions(_entries(known.store, one))
    logs = newest_logs(_entries(known.store, one)) if reads_files else {}
    if one.fork is None or one.fork.is_empty:
        return Stand(firsts=firsts, logs=logs)
    unread = known.problems_of(one.main.name)
    ref = CommitRef(one.main.branch_uuid, one.fork.snapshot)
    found = tuple(replace(job, unread=unread) for job in positions(known.store, ref))
    gaps = [
        (max(first, segment.first), min(last, segment.last))
        for segment in one.kept
        for first, last in known.store.gaps(segment.branch)
        if first <= segment.last and last >= segment.first
    ]
    unknown = unread[0] if unread else None
    if gaps and unknown is None:
        first, last = gaps[0]
        unknown = f"snapshots {first} to {last} were removed before lineage saw them"
    return Stand(moment_at(one.main, one.fork.snapshot).snapshot, found, unknown, firsts, logs)


def _entries(store: CommitStore, one: Affected) -> Iterator[LineageEntry]:
    """Yield what the commits to be made again say of their origin, oldest first."""
    for segment in one.made_anew:
        for commit in store.commits(segment.branch, segment.first):
            if commit.snapshot > segment.last:
                break
            if commit.entry is not None:
                yield commit.entry


def _rows_of(store: CommitStore, one: Affected) -> int:
    """Return the number of rows added by the commits to be made again."""
    rows = 0
    for segment in one.made_anew:
        for commit in store.commits(segment.branch, segment.first):
            if commit.snapshot > segment.last:
                break
            rows += max(commit.added, 0) if commit.may_bring_rows else 0
    return rows


def _took(store: CommitStore, one: Affected) -> dict[str, int]:
    """Return the recorded milliseconds that the commits to be made again took, by job."""
    took: dict[str, int] = {}
    for segment in one.made_anew:
        for commit in store.commits(segment.branch, segment.first):
            if commit.snapshot > segment.last:
                break
            if commit.entry is not None and commit.entry.millis is not None:
                took[commit.entry.job] = took.get(commit.entry.job, 0) + commit.entry.millis
    return took


def _begun(main: TableContext, name: str) -> int | None:
    """Return the snapshot that the table's branch of this cascade begins with, if it exists and is not main yet."""
    branch = branch_there(main, name, must=False)
    if branch is None or branch.fork is None or branch.branch == main.branch:
        return None
    return branch.fork.snapshot.id
