"""What questions about lineage need to know of commits, and where they get it from.

A store knows the commits of any number of tables, also those that have expired. Questions ask it for few things, each
of which an index answers by a range of ids: so an answer about five commits of a million is found without looking at
the others. `anabranch.lineage.memory` keeps all of it in memory, `anabranch.lineage.index` in a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import STREAM_SOURCE, Input, SourceInput, TableInput
from anabranch.lineage.trace import DatasetKind, Range


class Break(NamedTuple):
    """A commit that does not build on the one before it on its branch."""

    snapshot: int
    base: CommitRef | None
    """What it builds on; None for a commit that left nothing of what was there."""
    restores: bool
    """Whether it only brings back the content of its base: a rollback, or a replacement of all content."""


class Read(NamedTuple):
    """That a commit took in commits of a branch of a table. One `TableInput` of one entry, or a merge's `taken`."""

    sink: str
    """Identity of the branch that the commit was made on."""
    snapshot: int
    time_millis: int
    """When the commit was made."""
    job: str
    kind: str
    """``state``: all that the source contained at `through`. ``changes``: what was added after `after` up to `through`.
    ``full``: all that it contained at `whole`, and what was added after that up to `through`. ``merge``: what it contained
    at `through` and did not at `after`."""
    source: str
    """Identity of the branch that was read. Ids below its fork are those of the branch it began on."""
    after: int
    """Nothing of this snapshot and those before it, by kind ``changes`` or ``merge``; else 0."""
    through: int
    """The newest snapshot of which something was read."""
    whole: int = 0
    has_rows: bool = True
    """Whether the commit brought rows; an empty batch has read, but nothing of it went anywhere."""


class OtherRead(NamedTuple):
    """That a commit took in something of a source that is no table."""

    sink: str
    snapshot: int
    time_millis: int
    job: str
    kind: DatasetKind
    name: str
    """See `names_of`."""
    has_rows: bool = True


class FlowSummary(NamedTuple):
    """All that a job, or merges, ever took from a source into a branch of a table."""

    source: str
    """Identity of the branch; of a source that is no table `source_id` of it."""
    source_kind: DatasetKind
    source_name: str
    """As the newest commit calls it."""
    sink: str
    job: str
    is_merge: bool
    commits: int
    """Commits of the sink, each counted once."""
    first_millis: int
    last_millis: int


class JobSummary(NamedTuple):
    """What a job wrote to a branch of a table."""

    job: str
    sink: str
    engine: str
    """Name of the engine of its newest commit."""
    commits: int
    first_millis: int
    last_millis: int
    last_snapshot: int
    """The newest commit of it."""


class NewestInput(NamedTuple):
    """The newest commit of a job that took in something of a source."""

    job: str
    query: str | None
    """Id of the streaming query; None for one that is none, or is not known."""
    key: str
    """See `input_key`."""
    snapshot: int


class CommitStore(Protocol):
    """What lineage knows of all commits. Ranges of ids include both ends; all answers ascend by id unless said."""

    def lines(self, table_uuid: str | None = None) -> Sequence[Line]:
        """The branches of a table, or of all tables, those that are gone included. Sorted by identity."""
        ...

    def line(self, branch_uuid: str) -> Line | None:
        """A branch by its identity; None if nothing was ever seen of it."""
        ...

    def warehouses(self) -> Mapping[str, str]:
        """URLs of the warehouses in which branches lie, by identity; nothing of those that are in no warehouse."""
        ...

    def newest(self, branch_uuid: str) -> int:
        """Id of the newest of the branch's own commits; 0 if it has none."""
        ...

    def commit(self, ref: CommitRef) -> Commit | None:
        """A commit by the branch it was made on."""
        ...

    def commits(self, branch_uuid: str, first: int = 1) -> Iterator[Commit]:
        """The branch's own commits from an id on, ascending; each is looked for when it is asked for."""
        ...

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        """The branch's own commits whose base is not its own commit with the id before.

        The first own commit of a branch that was forked is one, and so is the first commit of a table, whose base is
        None. They are expected to be few, but for whole overwrites.
        """
        ...

    def rowless(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        """Own commits that brought no rows (`Commit.has_rows` is False)."""
        ...

    def gaps(self, branch_uuid: str) -> Sequence[Range]:
        """Ids between the branch's fork, or 0, and its newest commit of which nothing is known.

        They expired before lineage saw them, because another engine removed them.
        """
        ...

    def unsaid(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        """Own commits that brought rows and have no entry, or one that cannot be read."""
        ...

    def problems(self, branch_uuid: str, first: int, last: int) -> Sequence[tuple[int, str]]:
        """What entries of own commits, by id, say that could not be found out."""
        ...

    def reads(self, sink: str, first: int, last: int) -> Iterable[Read]:
        """What own commits of a branch that brought rows took in, in the order of the commits."""
        ...

    def readers(self, source: str, first: int, last: int) -> Iterable[Read]:
        """The reads that name a branch and whose ids, above `after` and up to `through`, meet a range; in any order.

        Those of commits that brought no rows are left out.
        """
        ...

    def other_reads(self, sink: str, first: int, last: int) -> Iterable[OtherRead]:
        """What own commits of a branch that brought rows took in of other sources, in the order of the commits."""
        ...

    def flows(self) -> Sequence[FlowSummary]:
        """All flows, by source, sink and job; commits that brought no rows count."""
        ...

    def jobs(self) -> Sequence[JobSummary]:
        """What every job wrote, merges included, by job and sink."""
        ...

    def newest_inputs(self, sink: str, first: int, last: int) -> Iterable[NewestInput]:
        """Of the own commits of a branch in a range: for each job, query and source the newest that names the source.

        What a stream only looked things up in is no source here. An entry without sources counts as one with the key ``""``. Merges and what brings no rows by its kind (COMPACT,
        ANALYZE) are left out; appends of no rows are not, because they too tell how far the job has come.
        """
        ...


class Known(NamedTuple):
    """What is known of the commits of some tables."""

    store: CommitStore
    problems: tuple[str, ...] = ()
    """Tables that could not be read, and why: each begins with the name of the table. Newer commits of it may not be known."""

    def problems_of(self, table: str) -> tuple[str, ...]:
        """Those of one table."""
        return tuple(problem for problem in self.problems if problem.startswith(f"{table}: "))


class LineageSource(Protocol):
    """Who knows the commits of all tables among which a table lies. Picklable, as the table is."""

    def reading(self) -> AbstractContextManager[Known]:
        """All commits that there are by now, at one moment and for as long as the block lasts."""
        ...


def reads_of(commit: Commit) -> Iterator[Read]:
    """The reads of a commit's entry: none for a commit that only rewrites, the `taken` one for a merge."""
    entry = commit.entry
    if entry is None or not commit.may_bring_rows:
        return
    if entry.taken is not None:
        yield _read(commit, entry.taken, entry.job, "merge")
        return
    for found in made_of(entry):
        if isinstance(found, TableInput):
            yield _read(commit, found, entry.job, _kind(found))


def other_reads_of(commit: Commit) -> Iterator[OtherRead]:
    """As `reads_of`, for sources that are no tables."""
    entry = commit.entry
    if entry is None or entry.taken is not None or not commit.may_bring_rows:
        return
    for found in made_of(entry):
        if isinstance(found, SourceInput):
            for name in names_of(found, entry.job):
                yield OtherRead(
                    sink=commit.branch_uuid,
                    snapshot=commit.snapshot,
                    time_millis=commit.time_millis,
                    job=entry.job,
                    kind=kind_of(found),
                    name=name,
                    has_rows=commit.has_rows,
                )


def name_of_source(commit: Commit, source: str) -> str:
    """What a commit calls a branch of a table that it has read, by its identity; that if it does not say."""
    reads = () if commit.entry is None else made_of(commit.entry)
    names = (r.name for r in reads if isinstance(r, TableInput) and r.branch_uuid == source)
    return next(names, source)


def names_of(source: SourceInput, job: str) -> tuple[str, ...]:
    """What a source that is no table is called in answers: topics of Kafka by their names, else what is known of it.

    A source of which only its place in the query is known is told from others by the job.
    """
    if source.kind == "kafka":
        topics = {topic for end in (source.start, source.end) if isinstance(end, dict) for topic in end}
        if topics:
            return tuple(sorted(topics))
    if source.name is not None:
        return (source.name,)
    is_place = source.source.startswith(STREAM_SOURCE)
    return (f"{source.source} of {job}",) if is_place else (source.source,)


def kind_of(source: SourceInput) -> DatasetKind:
    """The kind of dataset that a source is."""
    match source.kind:
        case "kafka":
            return "kafka"
        case "files":
            return "files"
        case _:
            return "unknown"


def source_id(kind: str, name: str) -> str:
    """Identity of a dataset that is no table."""
    return f"{kind}:{name}"


def input_key(read: Input) -> str:
    """What tells a source of a job from its others: equal in all entries of the job that name it."""
    if isinstance(read, TableInput):
        return f"table {read.table_uuid} {read.branch_uuid}"
    return f"{read.kind} {read.source}"


def _kind(read: TableInput) -> str:
    if read.is_state:
        return "state"
    return "full" if read.start.full else "changes"


def _read(commit: Commit, found: TableInput, job: str, kind: str) -> Read:
    end = found.end
    through = end.snapshot - 1 if end.files == 0 and not end.full else end.snapshot
    after = found.after if kind in ("changes", "merge") else 0
    whole = found.start.snapshot if kind == "full" else 0
    return Read(
        sink=commit.branch_uuid,
        snapshot=commit.snapshot,
        time_millis=commit.time_millis,
        job=job,
        kind=kind,
        source=found.branch_uuid,
        after=after,
        through=through,
        whole=whole,
        has_rows=commit.has_rows,
    )
