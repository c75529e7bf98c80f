"""Runs compaction tasks: an engine rewrites their files, and the result is committed.

The commit builds on whatever is newest then. Rows that were appended meanwhile stay. A task whose files were
compacted or overwritten by others meanwhile is dropped, and only that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from anabranch.arrow.rewrite import rewrite
from anabranch.arrow.writer import WriteContext, abort
from anabranch.engine import Engine, LocalEngine
from anabranch.errors import CommitConflictError, CommitRetriesExhaustedError, NotFoundError
from anabranch.format.records.data_file import FileSource
from anabranch.format.records.snapshot import CommitIdentity, Snapshot
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.actions.compact import Compact
from anabranch.kernel.commit.base import Base
from anabranch.kernel.commit.commit_message import CommitMessage, CompactionTask, Rewrite
from anabranch.kernel.commit.conflicts import outdated
from anabranch.kernel.commit.gates import apart
from anabranch.kernel.commit.transaction import NOT_PUBLISHED, CommitRequest, commit
from anabranch.kernel.log.context import TableContext
from anabranch.options import FILE_FORMAT

_WAVE_TASKS: Final = 4096
_WAVE_BYTES: Final = 256 << 30
"""Bytes handed to the engine at once, so that a giant compaction is published in parts."""
_PUBLISH_SECONDS: Final = 60.0
"""How long finished work may wait for more, if an engine returns results one after the other."""
_PUBLISH_FILES: Final = 10_000
"""Most old files that may wait: preparing a commit of many more takes so long that a busy stream always wins."""
_COMMIT_TRIES: Final = 20
_CHANGED: Final = frozenset({"FILE_GONE", "ORDER_CHANGED", "FENCE_CROSSED"})
"""Conflicts with others that changed the rewritten files."""


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """Result of some tasks."""

    snapshot: Snapshot | None = None
    """The last one made; None if nothing was committed."""
    committed: tuple[Rewrite, ...] = ()
    given_up: tuple[CompactionTask, ...] = ()
    """Tasks whose files had changed since planning; nothing of their work is left."""

    def __add__(self, later: RewriteOutcome) -> RewriteOutcome:
        return RewriteOutcome(
            later.snapshot or self.snapshot,
            (*self.committed, *later.committed),
            (*self.given_up, *later.given_up),
        )


def carry_out(
    context: TableContext,
    options: Mapping[str, str],
    tasks: Sequence[CompactionTask],
    *,
    engine: Engine,
    description: Mapping[str, Any] | None = None,
    work: Callable[[CompactionTask], Rewrite] | None = None,
) -> RewriteOutcome:
    """Have an engine rewrite the files of these tasks, and commit the results in parts.

    Args:
        options: over the table's.
        tasks: planned on some snapshot of the branch.
        engine: rewrites the files.
        description: how it is done, for the snapshots' properties.
        work: function for a task, picklable; None to rewrite its rows in their order.

    Raises:
        AnabranchError: a task could not be carried out, or its rewrite not be committed. Work finished before
            is committed, and what certainly was not is removed.
    """
    writing = write_context(context, options, engine)
    work = work or partial(rewrite, context=writing, schemas=context.schemas.get)
    run = _Run(context, writing, description or {})
    for wave in waves(tasks):
        name = f"compact {context.title}: {sum(len(task.files) for task in wave):,} files"
        results = engine.map(partial(_attempt, work), wave, name=name)
        try:
            for result in results:
                run.take(result)
        except Exception:
            run.publish()
            raise
        run.publish()
        run.check_missing()
    return run.outcome


def commit_rewrites(
    context: TableContext,
    rewrites: Sequence[Rewrite],
    writing: WriteContext,
    *,
    description: Mapping[str, Any] | None = None,
) -> RewriteOutcome:
    """Replace old files by their rewrites, in one COMPACT snapshot on whatever is newest.

    On a branch it may take several, which keep apart what a merge will take from what it will not. Rewrites whose files are no longer as they were are given up and their new files removed; the rest is committed.

    Args:
        rewrites: results of tasks.
        writing: the context the new files were written with.
        description: how it was done, for the snapshot's properties.

    Raises:
        CommitOutcomeUnknownError: the store did not say whether it happened; no file is removed.
        AnabranchError: nothing was committed. New files are removed where that is certain.
    """
    outcome, left = RewriteOutcome(), list(apart(context, rewrites))
    while left:
        try:
            outcome += _commit_together(context, left.pop(0), writing, description or {})
        except NOT_PUBLISHED:
            discard([one for share in left for one in share], writing)
            raise
    return outcome


def _commit_together(
    context: TableContext, rewrites: Sequence[Rewrite], writing: WriteContext, description: Mapping[str, Any]
) -> RewriteOutcome:
    pending, given_up = list(rewrites), list[Rewrite]()
    identity = CommitIdentity.batch(context.runtime)
    for _ in range(_COMMIT_TRIES):
        if not pending:
            return RewriteOutcome(given_up=_tasks_of(given_up))
        request = CommitRequest(Compact(pending, dict(description)), identity)
        try:
            committed = commit(context, request)
        except CommitConflictError as error:
            if not _CHANGED.issuperset(conflict.kind for conflict in error.conflicts):
                discard(pending, writing)
                raise
            lost = {id(one) for one in outdated(_base(context), pending)}
            given_up += (gone := [one for one in pending if id(one) in lost])
            pending = [one for one in pending if id(one) not in lost]
            discard(gone, writing)
        except NOT_PUBLISHED:
            discard(pending, writing)
            raise
        else:
            return RewriteOutcome(committed.snapshot, tuple(pending), _tasks_of(given_up))
    discard(pending, writing)
    raise CommitRetriesExhaustedError(
        f"the files of '{context.title}' that were compacted changed {_COMMIT_TRIES} times while it was committed",
        hint="nothing was published; compact again when fewer jobs overwrite the table.",
    )


def write_context(context: TableContext, options: Mapping[str, str], engine: Engine) -> WriteContext:
    """Return the write context of an engine's tasks: the newest schema, and Parquet whatever the table's option says.

    Raises `UnsupportedFeatureError` if the table must not be written to.
    """
    schema = writable_schema(context)
    return WriteContext(
        context.storage,
        schema,
        {**options, FILE_FORMAT.key: "parquet"},
        source=FileSource.COMPACT,
        runtime=context.runtime,
        # Elsewhere, one task has one core and others run beside it.
        threads=None if isinstance(engine, LocalEngine) else 1,
    )


def discard(rewrites: Sequence[Rewrite], writing: WriteContext) -> None:
    """Remove the new files of rewrites that are not, and never will be, committed."""
    abort(
        [CommitMessage(r.task.partition, r.task.bucket, r.task.total_buckets, r.new_files) for r in rewrites],
        writing,
    )


@dataclass(frozen=True, slots=True)
class _Missing:
    """A task with a file that is missing from the store."""

    task: CompactionTask
    error: NotFoundError


def _attempt(work: Callable[[CompactionTask], Rewrite], task: CompactionTask) -> Rewrite | _Missing:
    """Run a task, where the engine runs it. A missing file is expected: others compact, and snapshots expire."""
    try:
        return work(task)
    except NotFoundError as error:
        return _Missing(task, error)


@dataclass
class _Run:
    """Tasks in progress, from rewriting to commit."""

    context: TableContext
    writing: WriteContext
    description: Mapping[str, Any]
    outcome: RewriteOutcome = field(default_factory=RewriteOutcome)
    _finished: list[Rewrite] = field(default_factory=list)
    _missing: list[_Missing] = field(default_factory=list)
    _waiting_files: int = 0
    _waiting_since: float = 0.0

    def take(self, result: Rewrite | _Missing) -> None:
        """Add the result of a task."""
        if isinstance(result, _Missing):
            self._missing.append(result)
            return
        now = self.context.runtime.clock.monotonic()
        if not self._finished:
            self._waiting_since = now
        self._finished.append(result)
        self._waiting_files += len(result.task.files)
        if now - self._waiting_since >= _PUBLISH_SECONDS or self._waiting_files >= _PUBLISH_FILES:
            self.publish()

    def publish(self) -> None:
        """Commit what is finished."""
        finished, self._finished, self._waiting_files = self._finished, [], 0
        if finished:
            self.outcome += commit_rewrites(
                self.context, finished, self.writing, description=self.description
            )

    def check_missing(self) -> None:
        """Drop tasks whose files are rightly gone. Raises `NotFoundError` if one of the files is still live."""
        missing, self._missing = self._missing, []
        if not missing:
            return
        untouched = [Rewrite(one.task, ()) for one in missing]
        gone = {id(one) for one in outdated(_base(self.context), untouched)}
        for one, rewritten in zip(missing, untouched, strict=True):
            if id(rewritten) not in gone:
                raise one.error
        self.outcome += RewriteOutcome(given_up=tuple(one.task for one in missing))


def waves(tasks: Sequence[CompactionTask]) -> Iterator[list[CompactionTask]]:
    """Yield the tasks in portions handed to an engine at once, each a job of its own."""
    wave: list[CompactionTask] = []
    size = 0
    for task in tasks:
        if wave and (len(wave) >= _WAVE_TASKS or size + task.size > _WAVE_BYTES):
            yield wave
            wave, size = [], 0
        wave.append(task)
        size += task.size
    if wave:
        yield wave


def _tasks_of(rewrites: Sequence[Rewrite]) -> tuple[CompactionTask, ...]:
    return tuple(one.task for one in rewrites)


def writable_schema(context: TableContext) -> TableSchema:
    schema = context.schemas.latest()
    if schema is None:
        raise NotFoundError(
            f"table '{context.title}' does not exist any more",
            hint="`tables` lists those there are.",
        )
    check_writable(schema, path=context.layout.schema_path(schema.id))
    return schema


def _base(context: TableContext) -> Base:
    return Base(context, context.snapshots.head(), writable_schema(context))
