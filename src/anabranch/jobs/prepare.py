"""Decisions made before a job starts: the branch it writes to, its checkpoint, and where its sources begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from anabranch.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import CommitKind
from anabranch.jobs.checkpoint import (
    BeganFrom,
    Beginning,
    JobCheckpoint,
    Places,
    beside,
    default_checkpoint,
    opened,
)
from anabranch.jobs.job import Job
from anabranch.jobs.positions import check_goes_on, known_positions
from anabranch.jobs.starts import Starts, resumed, starts_at
from anabranch.jobs.state.point import Point
from anabranch.kernel.actions.rollback import difference_to
from anabranch.kernel.commit.base import Base
from anabranch.kernel.log.main_branch import main_by_uuid, main_of
from anabranch.kernel.log.tag_log import get_tag
from anabranch.spark.deploy.hadoop import let_reach
from anabranch.streaming.offsets import Offset
from anabranch.table import Table

if TYPE_CHECKING:
    from anabranch.lake import Lake


@dataclass(frozen=True, slots=True)
class Run:
    """How to run jobs that are the same on main and on branches."""

    branch: str | None = None
    """The branch of the sinks; main if None."""
    from_tag: str | None = None
    """A tag of the sinks: begin at the source positions recorded by then."""
    create_branch: bool = False
    """Create the branch from the tag if it does not exist."""
    checkpoint: str | None = None
    """Folder of the checkpoint, for a single job; below `checkpoints` if None. A correction's lies beside it."""
    checkpoints: str | None = None
    """Folder with the checkpoints of all jobs, by their names and branches; of the warehouse if None."""
    source_branches: Mapping[str, str] = field(default_factory=dict)
    """Branches to read sources on, by the name of their table."""
    starts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Options for the start of sources, by source; in place of those of a tag."""
    point: Point | None = None
    """The batch after which they are, in place of that of a tag."""
    moved: Callable[[Offset], Offset] | None = None
    """Maps a position of the query that made the point to the same one on the table that is read."""
    file_logs: Mapping[str, int] = field(default_factory=dict)
    """Queries whose logs name the files that were read for what is made again, each with its last batch."""
    accept_empty_state: Collection[str] = ()
    """Jobs that may begin without state if none can be recovered."""
    start_anew: Collection[str] = ()
    """Jobs that begin as declared if their checkpoint is missing, even if the table has rows of theirs."""
    renew: Collection[str] = ()
    """Jobs whose checkpoint is set aside, so that they go on after their last commit with a new one."""
    makes_branch: bool = False
    """Whether a correction makes the branch: what it begins with is not the job's own work."""
    hands_over: bool = False
    """Whether jobs end before their branches become main: their runs on main then continue with these checkpoints."""

    @property
    def is_on_main(self) -> bool:
        return self.branch in (None, MAIN_BRANCH)

    @property
    def places(self) -> Places:
        """Where checkpoints are, as far as it is said."""
        return Places(self.checkpoint, self.checkpoints)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that can be started."""

    job: Job
    sink: str
    """Name as given to Spark: ``db.t`` or ``db.t$branch_fix``."""
    table: Table
    """The sink."""
    checkpoint: JobCheckpoint | None
    """None for a batch job."""
    starts: Mapping[str, Mapping[str, str]]
    """By source: options that replace those for its start."""
    code: str | None
    """Version of its code, if known."""
    notices: tuple[str, ...] = ()
    point: Point | None = None
    """The batch of another query after which it begins; None if it begins with nothing."""


def prepare(job: Job, lake: Lake, run: Run, code: str | None, *, is_batch: bool) -> Prepared:
    """Decide how a job is to run. Repeated, the result is the same.

    Args:
        is_batch: whether none of the job's sources is a stream.

    Raises:
        NotFoundError: the table, branch or tag does not exist, or the positions at the tag are unknown.
        InvalidInputError: the checkpoint was begun otherwise, the branch does not begin with the tag, or it is not
            certain which position is whose.
        UnsupportedFeatureError: Spark has no connector for the store of the checkpoint.
    """
    if run.create_branch and (run.branch is None or run.from_tag is None):
        raise InvalidInputError(
            "a branch is to be created, but it is not said which, or from which tag",
            hint="name both: --branch and --from-tag.",
        )
    main = lake.table(job.sink)
    tag = None
    if run.from_tag is not None and is_batch:
        raise InvalidInputError(
            f"{job} has no stream among its sources, so there are no positions to begin at",
            hint='name the moment to read at the source: anabranch.static("db.t", at="good").',
        )
    sink = _sink(main, job, run)
    if is_batch:
        return Prepared(job, sink.name, sink, None, {}, code)
    checkpoint = _checkpoint(job, lake, run, sink)
    if lake.spark is not None:
        let_reach(lake.spark, checkpoint.location, lake.storage_options)
    checkpoint.forget_if_damaged(sink.branch_uuid)
    if job.name in run.start_anew and run.from_tag is None:
        # An earlier start may have recorded positions from which it cannot go on.
        checkpoint.forget_beginning(job.name, sink.branch_uuid)
    known = checkpoint.known()
    if run.from_tag is not None and known is None:
        tag = get_tag(main_of(main.context), run.from_tag)
    starts: Starts = Starts(run.starts, point=run.point)

    def begin() -> Beginning:
        nonlocal starts
        if tag is None and not checkpoint.is_in_use and job.name not in run.start_anew:
            found = resumed(job, lake, sink, run.places, checkpoint.location, since_fork=run.makes_branch)
            starts = starts if found is None else found
        if tag is not None:
            _check_unused(checkpoint, job, tag)
            _check_follows(sink, main, tag, job)
            check_goes_on(main_of(main.context), tag.snapshot, job)
            if not run.starts:
                starts = _starts(job, lake, main, tag)
        from_tag = None if tag is None else BeganFrom(tag.name, tag.snapshot.id, tag.snapshot.stamp)
        return Beginning(
            *(job.name, sink.table_uuid, sink.branch_uuid, from_tag),
            starts=starts.options,
            point=starts.point,
            hands_over=run.hands_over,
        )

    beginning = checkpoint.beginning(begin)
    _check_same(beginning, checkpoint, job, sink)
    if run.from_tag is not None:
        _check_same_tag(beginning, checkpoint, run.from_tag, main)
    return Prepared(job, sink.name, sink, checkpoint, beginning.starts, code, starts.notices, beginning.point)


def sink_of(job: Job, lake: Lake, run: Run) -> Table:
    """Return the branch of its sink to which a job writes. Raises `NotFoundError`."""
    return _sink(lake.table(job.sink), job, run)


def goes_on_at(job: Job, lake: Lake, run: Run) -> JobCheckpoint:
    """Return the checkpoint with which a job continues where its sink is now. Raises `NotFoundError`."""
    return _checkpoint(job, lake, run, sink_of(job, lake, run))


def _sink(main: Table, job: Job, run: Run) -> Table:
    if run.branch is None or run.is_on_main:
        return main
    try:
        return main.branch(run.branch)
    except NotFoundError as error:
        if run.create_branch:
            assert run.from_tag is not None, "checked above"
            with suppress(
                AlreadyExistsError
            ):  # created by somebody else; whether it is the right one is checked later
                main.create_branch(run.branch, run.from_tag, created_by=f"job {job.name}")
            return main.branch(run.branch)
        raise NotFoundError(
            f"{job} is to write to '{job.sink}', but {error.message}",
            hint=f"{error.hint or ''} Create it with `create_branch`, or let it be created: --from-tag TAG "
            "--create-branch.".strip(),
        ) from None


def _checkpoint(job: Job, lake: Lake, run: Run, sink: Table) -> JobCheckpoint:
    one, branch = run.checkpoint, None if run.is_on_main else run.branch

    def of(branch: str | None) -> JobCheckpoint:
        if one is not None:
            return opened(one if branch is None else beside(one, branch), lake.storage_options)
        return default_checkpoint(lake.url, job.name, branch, lake.storage_options, run.checkpoints)

    folder = sink.context.branch
    if folder is not None and (branch is None or one is not None):
        # If a correction runs the job there, or did before the branch became main, its work continues.
        of_branch = of(folder)
        if of_branch.writes_to(sink.branch_uuid):
            return of_branch
    # The folder that is named is main's where a correction runs the job, and else that of whatever branch is named with it.
    return of(branch if one is None or run.makes_branch else None)


def _starts(job: Job, lake: Lake, main: Table, tag: Tag) -> Starts:
    known = known_positions(
        main_of(main.context), tag.snapshot, job.name, lambda: main.lineage.positions(tag.snapshot.id)
    )
    tables = {
        name: lake.table(source.name).table_uuid for name, source in job.sources.items() if source.is_table
    }
    return starts_at(known, job.sources, tables)


def _check_unused(checkpoint: JobCheckpoint, job: Job, tag: Tag) -> None:
    if checkpoint.is_in_use:
        raise InvalidInputError(
            f"job '{job.name}' is to begin at the positions of tag '{tag.name}', but the checkpoint {checkpoint.location} "
            "is in use: it goes on where it stands",
            hint="leave --from-tag out to go on there, or name another folder with --checkpoint.",
        )


def _check_follows(sink: Table, main: Table, tag: Tag, job: Job) -> None:
    """Raise `InvalidInputError` if the sink does not hold what the tag does: rows would be duplicated, or missing."""
    fork = sink.context.fork
    own = f"{job.name}@{sink.branch_uuid}"
    if sink.branch_uuid == main.branch_uuid:
        _check_at(sink, tag)
        return
    if fork is None or fork.snapshot.stamp != tag.snapshot.stamp:
        begun = "otherwise" if fork is None else f"with tag '{fork.tag}' (snapshot {fork.snapshot.id})"
        raise InvalidInputError(
            f"'{sink.name}' begins {begun}, not with tag '{tag.name}' (snapshot {tag.snapshot.id}): rows between the two "
            "would be there twice, or be missing",
            hint="begin from the tag of the branch, or create another branch from this one.",
        )
    written = [
        s.id for s in takewhile(lambda s: s.id > fork.snapshot.id, sink.snapshots()) if s.commit_user == own
    ]
    if written:
        raise InvalidInputError(
            f"'{sink.name}' has {len(written)} commits of job '{job.name}' already, made with another checkpoint: begun "
            f"again from tag '{tag.name}' it would write the same rows a second time",
            hint="go on with that checkpoint (--checkpoint), or run the job on a new branch.",
        )


def _check_at(sink: Table, tag: Tag) -> None:
    head = sink.snapshot
    quiet = (CommitKind.COMPACT, CommitKind.ANALYZE)
    if head is None or head.stamp == tag.snapshot.stamp:
        return
    since = list(takewhile(lambda s: s.stamp != tag.snapshot.stamp, sink.snapshots()))
    reached = since[-1].id == tag.snapshot.id + 1
    if reached and all(snapshot.commit_kind in quiet for snapshot in since):
        return
    context = sink.context
    if difference_to(Base(context, head, sink.schema), tag.snapshot).is_empty:
        return
    raise InvalidInputError(
        f"'{sink.name}' has gone on since tag '{tag.name}' (snapshot {tag.snapshot.id}): what was committed since would be "
        "there twice",
        hint="run the job on a branch that begins with the tag: --branch NAME --create-branch; or roll the table back to "
        "the tag first.",
    )


def _check_same(beginning: Beginning, checkpoint: JobCheckpoint, job: Job, sink: Table) -> None:
    """Raise `InvalidInputError` if the checkpoint was begun by another job, or for another branch."""
    wrong = None
    if beginning.job != job.name:
        wrong = f"by job '{beginning.job}', and this is '{job.name}'"
    elif beginning.table_uuid != sink.table_uuid:
        wrong = f"for another table; '{sink.name}' was created since"
    elif beginning.branch_uuid != sink.branch_uuid and not _was_main(beginning, sink):
        wrong = f"for another branch; '{sink.name}' was created since"
    if wrong is not None:
        raise InvalidInputError(
            f"the checkpoint {checkpoint.location} was begun {wrong}",
            hint="name another folder with --checkpoint, or remove this one if its query is not needed any more.",
        )


def _check_same_tag(beginning: Beginning, checkpoint: JobCheckpoint, wanted: str, main: Table) -> None:
    """Raise `InvalidInputError` if the checkpoint was not begun from the tag's snapshot."""
    tag = beginning.tag
    moved = None if tag is None or tag.name != wanted else _moved(tag, main)
    if tag is None or tag.name != wanted or moved:
        now = f"; that tag names snapshot {moved} now" if moved else ""
        raise InvalidInputError(
            f"job '{beginning.job}' is to begin from tag '{wanted}', but the checkpoint {checkpoint.location} was begun "
            f"{beginning.origin}{now}",
            hint="leave --from-tag out to go on there; or name another folder with --checkpoint, and write to a new "
            "branch.",
        )


def _moved(tag: BeganFrom, main: Table) -> int | None:
    """Return the snapshot that the tag names now, if it changed; None too if the tag was deleted."""
    try:
        now = get_tag(main_of(main.context), tag.name).snapshot
    except NotFoundError:
        return None
    return None if now.stamp == tag.stamp else now.id


def _was_main(beginning: Beginning, sink: Table) -> bool:
    """Whether the job began on a main that was replaced since: the sink decides whether it may continue."""
    main = sink.context
    return main.main_generation is not None and main_by_uuid(main, beginning.branch_uuid) is not None
