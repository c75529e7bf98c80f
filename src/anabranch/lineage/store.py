"""The interface through which lineage questions learn about commits.

A store knows the commits of any number of tables, expired ones included. Questions need few lookups, each
of which an index answers by a range of ids: so an answer about five commits of a million is found without reading
the others. `anabranch.lineage.memory` keeps all of it in memory, `anabranch.lineage.index` in a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from anabranch.errors import StorageError
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import STREAM_SOURCE, Input, SourceInput, TableInput
from anabranch.lineage.trace import DatasetKind, Range

P = ParamSpec("P")
R = TypeVar("R")


class DamagedIndexError(StorageError):
    """The database of an index is not, or no longer, valid; it was set aside, and is built anew when it is asked again."""


def healing(question: Callable[P, R]) -> Callable[P, R]:
    """Let a question about lineage be asked once more where the index turns out to be damaged: it is built anew then."""

    @wraps(question)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return question(*args, **kwargs)
        except DamagedIndexError:
            return question(*args, **kwargs)

    return asked


class Break(NamedTuple):
    """A commit that does not build on the one before it on its branch."""

    snapshot: int
    base: CommitRef | None
    """The commit it builds on; None for a commit that replaced everything."""
    restores: bool
    """Whether it only brings back the content of its base: a rollback, or a replacement of all content."""


class Read(NamedTuple):
    """The fact that a commit read commits of a table's branch. One `TableInput` of one entry, or a merge's `taken`."""

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
    """Identity of the branch that was read. Ids up to its fork are those of the branch it began on."""
    after: int
    """For ``changes`` and ``merge``, nothing of this snapshot and earlier ones was read; else 0."""
    through: int
    """The newest snapshot of which something was read."""
    whole: int = 0
    has_rows: bool = True
    """Whether the commit brought rows; an empty batch has read something, but it went nowhere."""


class OtherRead(NamedTuple):
    """The fact that a commit read a source other than a table."""

    sink: str
    snapshot: int
    time_millis: int
    job: str
    kind: DatasetKind
    name: str
    """See `names_of`."""
    has_rows: bool = True


class FlowSummary(NamedTuple):
    """Total of what a job, or merges, ever took from a source into a branch of a table."""

    source: str
    """Identity of the branch; for a source other than a table its `source_id`."""
    source_kind: DatasetKind
    source_name: str
    """Its name in the newest commit."""
    sink: str
    job: str
    is_merge: bool
    commits: int
    """Commits of the sink, each counted once."""
    first_millis: int
    last_millis: int


class JobSummary(NamedTuple):
    """Total of what a job wrote to a branch of a table."""

    job: str
    sink: str
    engine: str
    """Name of the engine of its newest commit."""
    commits: int
    first_millis: int
    last_millis: int
    last_snapshot: int
    """Its newest commit."""


class NewestInput(NamedTuple):
    """The newest commit of a job that read a source."""

    job: str
    query: str | None
    """Id of the streaming query; None if there is none, or it is not known."""
    key: str
    """See `input_key`."""
    snapshot: int


class CommitStore(Protocol):
    """Access to all known commits. Ranges of ids include both ends; all answers ascend by id unless stated."""

    def lines(self, table_uuid: str | None = None) -> Sequence[Line]:
        """Return the branches of a table, or of all tables, deleted ones included. Sorted by identity."""
        ...

    def line(self, branch_uuid: str) -> Line | None:
        """Return a branch by its identity; None if nothing was ever seen of it."""
        ...

    def warehouses(self) -> Mapping[str, str]:
        """Return the warehouse URLs of branches, by branch identity; branches outside of warehouses are left out."""
        ...

    def newest(self, branch_uuid: str) -> int:
        """Return the id of the newest of the branch's own commits; 0 if it has none."""
        ...

    def commit(self, ref: CommitRef) -> Commit | None:
        """Return a commit by the branch it was made on."""
        ...

    def commits(self, branch_uuid: str, first: int = 1) -> Iterator[Commit]:
        """Yield the branch's own commits from an id on, ascending; each is looked up when it is asked for."""
        ...

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        """Return the branch's own commits whose base is not its own commit with the id before.

        The first own commit of a branch that was forked is one, and so is the first commit of a table, whose base is
        None. They are expected to be few, but for whole overwrites.
        """
        ...

    def rowless(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        """Return own commits that brought no rows (`Commit.has_rows` is False)."""
        ...

    def gaps(self, branch_uuid: str) -> Sequence[Range]:
        """Return ids between the branch's fork, or 0, and its newest commit about which nothing is known.

        They expired before lineage saw them, because another engine removed them.
        """
        ...

    def unsaid(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        """Return own commits that brought rows and have no entry, or an unreadable one."""
        ...

    def problems(self, branch_uuid: str, first: int, last: int) -> Sequence[tuple[int, str]]:
        """Return the problems recorded in the entries of own commits, each with the commit's id."""
        ...

    def reads(self, sink: str, first: int, last: int) -> Iterable[Read]:
        """Return the reads of a branch's own commits that brought rows, in the order of the commits."""
        ...

    def readers(self, source: str, first: int, last: int) -> Iterable[Read]:
        """Return the reads that name a branch and whose ids, above `after` up to `through`, meet a range; in any order.

        Those of commits that brought no rows are left out.
        """
        ...

    def other_reads(self, sink: str, first: int, last: int) -> Iterable[OtherRead]:
        """Return the reads of other sources by a branch's own commits that brought rows, in commit order."""
        ...

    def flows(self) -> Sequence[FlowSummary]:
        """Return all flows, by source, sink and job; commits that brought no rows count."""
        ...

    def jobs(self) -> Sequence[JobSummary]:
        """Return what every job wrote, merges included, by job and sink."""
        ...

    def newest_inputs(self, sink: str, first: int, last: int) -> Iterable[NewestInput]:
        """Return, for own commits in a range, the newest that names each source, per job, query and source.

        Sources that a stream only looked up are left out. An entry without sources counts as one with the key ``""``.
        Merges, COMPACT and ANALYZE are left out; appends of no rows are not: they too tell how far the job has read.
        """
        ...


class Known(NamedTuple):
    """What is known of the commits of some tables."""

    store: CommitStore
    problems: tuple[str, ...] = ()
    """Tables that could not be read, and why, each text starting with the name. Their newer commits may be unknown."""

    def problems_of(self, table: str) -> tuple[str, ...]:
        """Return the problems of one table."""
        return tuple(problem for problem in self.problems if problem.startswith(f"{table}: "))


class LineageSource(Protocol):
    """Gives access to the commits of all tables in a table's warehouse. Picklable, as the table is."""

    def reading(self) -> AbstractContextManager[Known]:
        """Open a consistent view of all commits so far, for the length of the block."""
        ...


def reads_of(commit: Commit) -> Iterator[Read]:
    """Yield the reads in a commit's entry: none for a commit that only rewrites, the `taken` one for a merge."""
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
    """Yield the reads of sources other than tables; otherwise as `reads_of`."""
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
    """Return the name by which a commit read a branch; the branch's identity if it does not say."""
    reads = () if commit.entry is None else made_of(commit.entry)
    names = (r.name for r in reads if isinstance(r, TableInput) and r.branch_uuid == source)
    return next(names, source)


def names_of(source: SourceInput, job: str) -> tuple[str, ...]:
    """Return display names of a source other than a table: Kafka topics by name, else whatever is known.

    A source known only by its place in the query is qualified by the job.
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
    """Return the kind of dataset that a source is."""
    match source.kind:
        case "kafka":
            return "kafka"
        case "files":
            return "files"
        case _:
            return "unknown"


def source_id(kind: str, name: str) -> str:
    """Return the identity of a dataset other than a table."""
    return f"{kind}:{name}"


def input_key(read: Input) -> str:
    """Return a key that tells a source of a job from its others: equal in all entries of the job that name it."""
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
