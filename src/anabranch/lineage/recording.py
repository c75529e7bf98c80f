"""Jobs of this process: what they read is remembered, and said in every commit that they make.

``with lake.job("clean-orders"):`` begins a run. Inside of it every read of a table registers what it is pinned to, and
every commit of rows carries an entry with all of it:

* The state of a table that was read (`Table.scan`) and a range of changes (`Table.changes`) are inputs of every commit
  from then on until the run ends, because its rows may come from any of them.
* A step of `Table.tail` is an input until it was worked through (the next one was asked for) and a commit to the same
  branch has said so. So a loop over a tail records as a stream does: of each commit, what is new in it.

A run belongs to the thread, or the task of asyncio, that began it; other threads take part with `JobRun.joined`. What
registers reads, also those of other threads, is `anabranch.lineage.reads`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.lineage.joining import Inputs, joined, newest
from anabranch.lineage.model import EMBEDDED, Input, LineageEntry, SourceInput
from anabranch.lineage.remembered import Handed, listed, may_hold
from anabranch.runtime import SYSTEM, Runtime

_LOG = logging.getLogger(__name__)

_MOST_INPUTS: Final = 500
"""An entry is part of the snapshot, which everybody reads: no more inputs than this are named."""

_CURRENT: Final[ContextVar[JobRun | None]] = ContextVar("anabranch job", default=None)
_ASIDE: Final[ContextVar[bool]] = ContextVar("anabranch only looks", default=False)

_OPEN: Final[dict[str, JobRun]] = {}
"""The runs of this process, by their ids."""

TakingPart = Callable[[], AbstractContextManager[None]]
Mark = Callable[["JobRun"], AbstractContextManager[None]]


@dataclass(eq=False)
class JobRun:
    """One run of a job, and what it has read so far. Get one from `Lake.job`."""

    name: str
    run: str
    """Id of this run."""
    code: str | None = None
    """Version of the job's code."""
    mark: Mark | None = field(default=None, repr=False)
    """Makes it known to others, besides this process, that a thread works for the run."""
    _reads: Inputs = field(default_factory=Inputs, repr=False)
    _steps: list[Step] = field(default_factory=list, repr=False)
    _delivered: int = field(default=0, repr=False)
    """How many steps were delivered so far."""
    _told: dict[str, int] = field(default_factory=dict, repr=False)
    """By the identity of a branch: up to which step its commits have named all."""
    _problems: dict[str, None] = field(default_factory=dict, repr=False)
    _strays: dict[str, None] = field(default_factory=dict, repr=False)
    """Tables that were read by threads of which it is not known for which job."""
    _warned: set[str] = field(default_factory=set, repr=False)
    """Problems that the log has."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be found out so far."""
        return tuple(self._problems)

    def read_from(self, source: str, *, kind: str = "unknown", start: Any = None, end: Any = None) -> None:
        """Say that rows come from something that is no table here, such as a service or a file.

        Args:
            source: what it is called.
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

    @contextmanager
    def joined(self) -> Iterator[JobRun]:
        """Let this thread take part in the run, which another one began. Raises `InvalidInputError` inside another job."""
        with _running(self):
            yield self

    def register(self, *reads: Input) -> None:
        """Take reads into every entry from now on."""
        with self._lock:
            for read in reads:
                self._reads.add(read)

    def deliver(self, read: Input) -> Step:
        """Take a step of a stream into the entries until it is worked through."""
        with self._lock:
            self._delivered += 1
            step = Step(read, self._delivered)
            self._steps.append(step)
        return step

    def problem(self, text: str) -> None:
        """Say in every entry from now on what could not be found out; the log says it once."""
        with self._lock:
            self._problems[text] = None
        self._warn(text)

    def stray(self, title: str) -> None:
        """Say in every entry from now on that a table was read by a thread of which it is not known whether it works for it."""
        with self._lock:
            self._strays[title] = None

    def taken(self, sink: str, rows: Handed | None = None) -> Taken:
        """What may go into the rows of a commit that is made now to the branch of that identity.

        Args:
            sink: the branch.
            rows: what is known of the object that is written.
        """
        with self._lock:
            steps = [step.read for step in self._steps if not self._is_over(step, sink)]
            reads, problems, delivered = self._reads.all(), self.problems, self._delivered
            strays = listed([*self._strays])
        inputs = joined([*reads, *steps, *(() if rows is None else rows.inputs)])
        named = newest(inputs, _MOST_INPUTS)
        if len(named) < len(inputs):
            problems += (f"{len(inputs) - len(named)} of {len(inputs)} inputs are left out",)
        if strays is not None:
            problems += (
                f"threads that take part in no job have read {strays} while several jobs were open, and it is not known "
                "for which: let them work inside of job.joined()",
            )
        if not reads and not delivered and not problems:
            before = unknown_rows(rows)
            if before is not None:
                problems += (
                    f"the job has read nothing itself, and its rows may be made of what this process had read before: "
                    f"{before}; read inside of the block, or name the source with job.read_from()",
                )
        for problem in problems:
            self._warn(problem)
        return Taken(named, problems, delivered)

    def entry(self, taken: Taken) -> LineageEntry:
        """What a commit says that takes this in."""
        return LineageEntry(self.name, self.run, self.code, EMBEDDED, taken.inputs, taken.problems)

    def committed(self, sink: str, taken: Taken) -> None:
        """A commit to that branch has said this. What was delivered meanwhile is for the next one to say."""
        with self._lock:
            self._told[sink] = max(taken.steps, self._told.get(sink, 0))
            self._steps = self._fewer()

    def _warn(self, problem: str) -> None:
        with self._lock:
            is_new = problem not in self._warned
            self._warned.add(problem)
        if is_new:
            _LOG.warning("lineage of job '%s' is incomplete: %s", self.name, problem)

    def _is_over(self, step: Step, sink: str) -> bool:
        """Whether no rows of it go into a commit to that branch any more."""
        return step.is_done and step.number <= self._told.get(sink, 0)

    def _fewer(self) -> list[Step]:
        """Steps that are equal in all but what was read as one, so that a long run does not remember each of them.

        Where a commit is made meanwhile that names only the first of them, the next one to its branch names them again.
        """
        fewer: list[Step] = []
        for step in self._steps:
            last = fewer[-1] if fewer else None
            if last is not None and last.is_done and step.is_done and self._whose(last) == self._whose(step):
                both = joined([last.read, step.read])
                if len(both) == 1:
                    fewer[-1] = replace(step, read=both[0])
                    continue
            fewer.append(step)
        return fewer

    def _whose(self, step: Step) -> set[str]:
        """The branches whose commits have named it."""
        return {sink for sink, number in self._told.items() if step.number <= number}


@dataclass(frozen=True, slots=True)
class Taken:
    """What a commit takes in of what a run has read."""

    inputs: tuple[Input, ...]
    """Those that are named."""
    problems: tuple[str, ...]
    steps: int
    """Up to which step all is named that this branch's commits have not named before."""


@dataclass(eq=False)
class Step:
    """A part of a stream that was handed out."""

    read: Input
    number: int
    """Which one of the run it is, from 1."""
    is_done: bool = False
    """Whether it was worked through: the next one was asked for."""


@contextmanager
def running(
    name: str, *, code: str | None = None, runtime: Runtime = SYSTEM, mark: Mark | None = None
) -> Iterator[JobRun]:
    """A run of a job, from here to the end of the block. See `anabranch.Lake.job`."""
    check_job_name(name)
    run = JobRun(name, runtime.ids.uuid(), code, mark)
    _OPEN[run.run] = run
    try:
        with _running(run):
            yield run
    finally:
        del _OPEN[run.run]


def current() -> JobRun | None:
    """The run that this thread or task takes part in."""
    return _CURRENT.get()


@contextmanager
def aside() -> Iterator[None]:
    """What this thread reads meanwhile goes into no rows: it only looks at them."""
    token, looks = _CURRENT.set(None), _ASIDE.set(True)
    try:
        yield
    finally:
        _ASIDE.reset(looks)
        _CURRENT.reset(token)


def is_aside() -> bool:
    """Whether what this thread reads goes into no rows."""
    return _ASIDE.get()


def captured() -> TakingPart:
    """Lets whatever thread work for the run of this one, now and then: libraries read in threads of their own."""
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
    """The run of that id, if this process has begun it and not ended it; whatever thread that was."""
    return _OPEN.get(run)


def open_runs() -> tuple[JobRun, ...]:
    """All runs that go on in this process."""
    return tuple(_OPEN.values())


def is_any_open() -> bool:
    """Whether any run goes on in this process."""
    return bool(_OPEN)


def unknown_rows(rows: Handed | None) -> str | None:
    """Tables that rows may be made of of which nothing else is known; None if there are none."""
    if rows is not None and rows.is_whole:
        return None
    return may_hold(but=() if rows is None else {read.branch_uuid for read in rows.inputs})


def check_job_name(name: str) -> None:
    """Raises `InvalidNameError` for a name that nobody could tell from others."""
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise InvalidNameError(
            f"{name!r} is no name of a job: it is empty, or has space around it or characters that cannot be seen",
            hint="choose a name that stays, such as 'clean-orders'.",
        )


@contextmanager
def _running(run: JobRun) -> Iterator[None]:
    outer = _CURRENT.get()
    if outer is not None:
        raise InvalidInputError(
            f"job '{run.name}' was begun inside of job '{outer.name}', and a commit has one producer",
            hint="end the block of the one before the other begins, or run them in threads of their own.",
        )
    token = _CURRENT.set(run)
    try:
        with nullcontext() if run.mark is None else run.mark(run):
            yield
    finally:
        _CURRENT.reset(token)
