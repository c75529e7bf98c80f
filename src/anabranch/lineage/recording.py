"""Jobs of this process: records what they read, and writes it into every commit that they make.

``with lake.job("clean-orders"):`` begins a run. Inside it every read of a table registers what it is pinned to, and
every commit of rows carries an entry with all of it:

* The state of a table that was read (`Table.scan`) and a range of changes (`Table.changes`) are inputs of every commit
  from then on until the run ends, because its rows may come from any of them.
* A step of `Table.tail` is an input until it was worked through (the next one was asked for) and a commit to the same
  branch has named it. So a loop over a tail records as a stream does: each commit names what is new in it.

A run belongs to the thread, or the asyncio task, that began it; other threads take part with `JobRun.joined`.
Reads, including those of other threads, are registered by `anabranch.lineage.reads`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Any, Final

from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.lineage.joining import Inputs, Steps, StreamStep, joined, newest
from anabranch.lineage.model import EMBEDDED, Input, LineageEntry, SourceInput, TableInput
from anabranch.lineage.remembered import Handed, listed, may_hold
from anabranch.runtime import SYSTEM, Runtime

_LOG = logging.getLogger(__name__)

_MOST_INPUTS: Final = 500
"""An entry is part of the snapshot, which every reader loads: at most this many inputs are named."""

_READ_BEFORE: Final = (
    "its rows may be made of what this process had read outside of the block: {}; read inside of it, or name the source with "
    "job.read_from()"
)
_GIVEN_BEFORE: Final = (
    "values or functions in its plan may be made of what this process had read outside of the block: {}; read inside of it, or "
    "name the source with job.read_from()"
)
_STRAYS: Final = (
    "threads that take part in no job have read {} while several jobs were open, and it is not known for which: let them work "
    "inside of job.joined()"
)

_CURRENT: Final[ContextVar[JobRun | None]] = ContextVar("anabranch job", default=None)
_ASIDE: Final[ContextVar[bool]] = ContextVar("anabranch only looks", default=False)

_OPEN: Final[dict[str, JobRun]] = {}
"""The open runs of this process, by id."""

TakingPart = Callable[[], AbstractContextManager[None]]
Mark = Callable[["JobRun"], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A Spark plan that rows are written by."""

    inputs: tuple[Input, ...]
    """The sources that it names."""
    holds_values: Callable[[], bool]
    """Whether it may also hold values that the program computed."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The reads gathered for the producer of rows."""

    inputs: tuple[Input, ...] = ()
    problems: tuple[str, ...] = ()
    """What is not known about them."""
    is_positioned: bool = True
    """Whether it is known how far the job has read, whatever the problems are about."""


@dataclass(eq=False)
class JobRun:
    """One run of a job, and what it has read so far. Get one from `Lake.job`."""

    name: str
    run: str
    """Id of this run."""
    code: str | None = None
    """Version of the job's code."""
    mark: Mark | None = field(default=None, repr=False)
    """Makes it known outside this process that a thread works for the run."""
    thread: int = field(default_factory=get_ident, repr=False)
    """Number of the thread that began it."""
    is_gathering: bool = field(default=False, repr=False)
    """Whether it is a part of a job, not a job itself; see `gathering`."""
    _reads: Inputs = field(default_factory=Inputs, repr=False)
    _by_program: Inputs = field(default_factory=Inputs, repr=False)
    """Its reads that the program itself has seen; for others Spark's plans say where they went."""
    _writes: int = field(default=0, repr=False)
    """Number of Spark writes in progress for it."""
    _steps: Steps = field(default_factory=Steps, repr=False)
    _problems: dict[str, bool] = field(default_factory=dict, repr=False)
    """Each with whether it is still known how far the job has read."""
    _strays: dict[str, None] = field(default_factory=dict, repr=False)
    """Tables read by threads whose job is unknown."""
    _warned: set[str] = field(default_factory=set, repr=False)
    """Problems that have been logged."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be determined so far."""
        return tuple(self._problems)

    def read_from(self, source: str, *, kind: str = "unknown", start: Any = None, end: Any = None) -> None:
        """Record that rows come from a source other than a table here, such as a service or a file.

        Args:
            kind: ``files``, ``kafka`` or ``unknown``.
            start: from where it was read, exclusive, as JSON values; None for the beginning, or if that has no meaning.
            end: up to where it was read, inclusive.

        Raises `InvalidInputError` for another kind.
        """
        if kind not in ("files", "kafka", "unknown"):
            raise InvalidInputError(
                f"a source of the kind '{kind}' was named, known are 'files', 'kafka' and 'unknown'",
                hint="tables need not be named: what is read of them is registered by itself.",
            )
        self.register(SourceInput(kind, source, start, end))

    @property
    def is_told(self) -> bool:
        """Whether a source was named by a caller who knows better."""
        with self._lock:
            return _names_source(self._reads.all())

    @contextmanager
    def joined(self) -> Iterator[JobRun]:
        """Let this thread take part in the run, which another one began. Raises `InvalidInputError` inside another job."""
        with _running(self):
            yield self

    def register(self, *reads: Input, is_planned: bool = False) -> None:
        """Add reads to every entry from now on.

        Args:
            reads: what was read.
            is_planned: whether Spark's plans say where it goes. Then only rows that the program hands over itself are
                taken to hold it.
        """
        with self._lock:
            for read in reads:
                self._reads.add(read)
                if not is_planned and not self._writes:
                    self._by_program.add(read)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within the block, reads for the run count as part of what Spark is writing, whose plan names them."""
        with self._lock:
            self._writes += 1
        try:
            yield
        finally:
            with self._lock:
                self._writes -= 1

    @property
    def is_writing(self) -> bool:
        """Whether Spark is writing rows for it just now."""
        return self._writes > 0

    @property
    def seen(self) -> Gathered:
        """Reads the program has seen so far: they may go into each commit, whatever its plan names."""
        with self._lock:
            inputs = self._by_program.all()
        return self._gathered(inputs)

    @property
    def gathered(self) -> Gathered:
        """All reads so far, and what could not be determined about them."""
        with self._lock:
            inputs = joined([*self._reads.all(), *self._steps.of("")])
        return self._gathered(inputs)

    def _gathered(self, inputs: Sequence[Input]) -> Gathered:
        named = newest(inputs, _MOST_INPUTS)
        lost = (*self._of_strays(), *_left_out(inputs, named))
        return Gathered(named, (*self.problems, *lost), not lost and all(self._problems.values()))

    def deliver(self, read: Input) -> StreamStep:
        """Add a step of a stream to the entries until it is worked through."""
        with self._lock:
            return self._steps.deliver(read)

    def problem(self, text: str, *, is_positioned: bool = False) -> None:
        """Add a problem to every entry from now on; log it once.

        Args:
            text: the problem.
            is_positioned: whether it is still known how far the job has read.
        """
        with self._lock:
            self._problems[text] = is_positioned
        self._warn(text)

    def take(self, gathered: Gathered) -> None:
        """Add to every entry from now on what was gathered for it; its problems have been logged already."""
        self.register(*gathered.inputs)
        with self._lock:
            self._warned.update(gathered.problems)
        for problem in gathered.problems:
            self.problem(problem, is_positioned=gathered.is_positioned)

    def stray(self, title: str) -> None:
        """Record in every entry from now on that a table was read by a thread that may or may not work for this run."""
        with self._lock:
            self._strays[title] = None

    def taken(self, sink: str, rows: Handed | None = None, *, planned: WritePlan | None = None) -> Taken:
        """Return what may go into the rows of a commit made now to the branch of that identity.

        Args:
            sink: the branch.
            rows: what is known of the object that is written.
            planned: the Spark plan that names the sources, if one does; then only what the program has seen is added.
        """
        is_planned = planned is not None
        with self._lock:
            reads = self._by_program.all() if is_planned else self._reads.all()
            steps, delivered = self._steps.of(sink), self._steps.delivered
        found = self._gathered(joined([*reads, *steps, *(() if rows is None else rows.inputs)]))
        problems, has_read = found.problems, bool(reads) or delivered > 0
        is_told = _names_source(reads)
        named = (*found.inputs, *(() if planned is None else planned.inputs))
        before = None if is_told else unknown_rows(rows, but=named, of_jobs=not (has_read or problems))
        if before is not None and (planned is None or planned.holds_values()):
            problems += ((_READ_BEFORE if planned is None else _GIVEN_BEFORE).format(before),)
        for problem in problems:
            self._warn(problem)
        is_positioned = True if problems and (has_read or is_planned) and found.is_positioned else None
        return Taken(found.inputs, problems, delivered, is_positioned)

    def entry(self, taken: Taken) -> LineageEntry:
        """Return the lineage entry of a commit with these inputs."""
        return LineageEntry(
            self.name,
            self.run,
            self.code,
            EMBEDDED,
            taken.inputs,
            taken.problems,
            is_positioned=taken.is_positioned,
        )

    def committed(self, sink: str, taken: Taken) -> None:
        """Record that a commit to that branch has named this. What was delivered meanwhile is left for the next one."""
        with self._lock:
            self._steps.committed(sink, taken.steps)

    def _of_strays(self) -> tuple[str, ...]:
        with self._lock:
            strays = listed([*self._strays])
        return () if strays is None else (_STRAYS.format(strays),)

    def _warn(self, problem: str) -> None:
        with self._lock:
            is_new = problem not in self._warned
            self._warned.add(problem)
        if is_new:
            _LOG.warning("lineage of job '%s' is incomplete: %s", self.name, problem)


@dataclass(frozen=True, slots=True)
class Taken:
    """The reads of a run that a commit takes in."""

    inputs: tuple[Input, ...]
    """Those that are named."""
    problems: tuple[str, ...]
    steps: int
    """Last step up to which everything not named before on this branch is named now."""
    is_positioned: bool | None = None
    """See `LineageEntry.is_positioned`."""


@contextmanager
def running(
    name: str, *, code: str | None = None, runtime: Runtime = SYSTEM, mark: Mark | None = None
) -> Iterator[JobRun]:
    """Open a run of a job for the length of the block. See `anabranch.Lake.job`."""
    check_job_name(name)
    run = JobRun(name, runtime.ids.uuid(), code, mark)
    with _opened(run), _running(run):
        yield run


@contextmanager
def gathering(name: str, *, runtime: Runtime = SYSTEM, mark: Mark | None = None) -> Iterator[JobRun]:
    """Gather all reads in the block, by this thread and others and for any job, for the producer of a coming commit.

    A job begun in the block is separate, and its reads count as well.
    """
    run = JobRun(name, runtime.ids.uuid(), mark=mark, is_gathering=True)
    with _opened(run), _working_for(run):
        yield run


@contextmanager
def _opened(run: JobRun) -> Iterator[None]:
    _OPEN[run.run] = run
    try:
        yield
    finally:
        del _OPEN[run.run]


def current() -> JobRun | None:
    """Return the run that this thread or task takes part in."""
    return _CURRENT.get()


@contextmanager
def aside() -> Iterator[None]:
    """Within the block, this thread's reads go into no rows: they are only looked at."""
    token, looks = _CURRENT.set(None), _ASIDE.set(True)
    try:
        yield
    finally:
        _ASIDE.reset(looks)
        _CURRENT.reset(token)


def is_aside() -> bool:
    """Whether this thread's reads go into no rows."""
    return _ASIDE.get()


def captured() -> TakingPart:
    """Return a context in which any thread works for this one's run: libraries read in threads of their own."""
    run, is_looking = _CURRENT.get(), _ASIDE.get()

    @contextmanager
    def taking_part() -> Iterator[None]:
        is_over = run is not None and run.run not in _OPEN
        if is_over or _CURRENT.get() is not None or _ASIDE.get():
            yield
            return
        token, looks = _CURRENT.set(run), _ASIDE.set(is_looking)
        try:
            yield
        finally:
            _ASIDE.reset(looks)
            _CURRENT.reset(token)

    return taking_part


def open_run(run: str) -> JobRun | None:
    """Return the open run of that id, if this process began it, in whatever thread."""
    return _OPEN.get(run)


def open_runs() -> tuple[JobRun, ...]:
    """Return all open runs of this process."""
    return tuple(_OPEN.values())


def is_any_open() -> bool:
    """Whether any run is open in this process."""
    return bool(_OPEN)


def _left_out(inputs: Sequence[Input], named: Sequence[Input]) -> tuple[str, ...]:
    more = len(inputs) - len(named)
    return (f"{more} of {len(inputs)} inputs are left out",) if more else ()


def _names_source(reads: Iterable[Input]) -> bool:
    return any(isinstance(read, SourceInput) for read in reads)


def unknown_rows(rows: Handed | None, but: Sequence[Input] = (), *, of_jobs: bool = True) -> str | None:
    """Return tables, for people, that rows may be made of without a record of it; None if there are none.

    Args:
        rows: what is known of the object that holds them.
        but: reads that are named already.
        of_jobs: whether the rows may be made of what earlier jobs of this thread have read.
    """
    if rows is not None and rows.is_whole:
        return None
    named = (*but, *(() if rows is None else rows.inputs))
    return may_hold({read.branch_uuid for read in named if isinstance(read, TableInput)}, of_jobs=of_jobs)


def check_job_name(name: str) -> None:
    """Raise `InvalidNameError` for a name that cannot be told from others."""
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidNameError(
            f"{name!r} is no name of a job: it is empty, or has space around it or characters that cannot be seen",
            hint="choose a name that stays, such as 'clean-orders'.",
        )


@contextmanager
def _running(run: JobRun) -> Iterator[None]:
    outer = _CURRENT.get()
    if outer is not None and not outer.is_gathering:
        raise InvalidInputError(
            f"job '{run.name}' was begun inside of job '{outer.name}', and a commit has one producer",
            hint="end the block of the one before the other begins, or run them in threads of their own.",
        )
    try:
        with _working_for(run):
            yield
    finally:
        if outer is not None:
            outer.take(run.gathered)


@contextmanager
def _working_for(run: JobRun) -> Iterator[None]:
    token = _CURRENT.set(run)
    try:
        with nullcontext() if run.mark is None else run.mark(run):
            yield
    finally:
        _CURRENT.reset(token)
