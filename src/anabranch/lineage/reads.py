"""Registers reads of tables with the jobs of this process whose commits must name them.

A read is an input of the job that its thread takes part in. If the thread takes part in none, such as one of a pool
that the block of a job has started, it is an input of the only open job; if several are open each gets a
problem. Every read is remembered as well, because a later commit may hold it (`anabranch.lineage.remembered`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import begun_with
from anabranch.lineage import remembered
from anabranch.lineage.joining import StreamStep
from anabranch.lineage.model import EMBEDDED, LINEAGE_PROPERTY, LineageEntry, TableInput
from anabranch.lineage.recording import JobRun, current, is_aside, open_runs, unknown_rows
from anabranch.lineage.remembered import Handed
from anabranch.streaming.offsets import BEGINNING, Position

READERS: Final[list[Callable[[], JobRun | None]]] = []
"""Further ways to find the job that a thread reads for if it takes part in none; Spark has one."""


def state_read(context: TableContext, snapshot: Snapshot | None) -> TableInput:
    """Return the read of all rows of a table as of a snapshot; None for a table that was never written."""
    if snapshot is None:
        return TableInput(context.title, context.table_uuid, context.branch_uuid, BEGINNING, BEGINNING)
    end = Position(snapshot.id, snapshot.stamp, full=True)
    return TableInput(context.title, context.table_uuid, context.branch_uuid, BEGINNING, end)


def range_read(context: TableContext, start: Position, end: Position) -> TableInput:
    """Return the read of what was added to a branch between two positions."""
    return TableInput(
        context.title,
        context.table_uuid,
        context.branch_uuid,
        _stamped(context, start),
        _stamped(context, end),
        begun_with(context),
    )


def note_state(context: TableContext, snapshot: Snapshot | None, *, is_planned: bool = False) -> None:
    """Register a read of a table as of a snapshot; `is_planned` as in `JobRun.register`."""
    for run in _readers(context, is_planned=is_planned):

        def register(run: JobRun = run) -> None:
            run.register(state_read(context, snapshot), is_planned=is_planned)

        _noted(run, register, context)


def note_changes(context: TableContext, start: Position, end: Position) -> None:
    """Register a read of what was added to a branch between two positions."""
    for run in _readers(context):
        _noted(run, lambda run=run: run.register(range_read(context, start, end)), context)  # type: ignore[misc]


def note_step(context: TableContext, start: Position, end: Position) -> Callable[[], None]:
    """Register that a step of a stream is handed out; call the result once it was worked through."""
    steps: list[StreamStep] = []
    for run in _readers(context):
        _noted(run, lambda run=run: steps.append(run.deliver(range_read(context, start, end))), context)  # type: ignore[misc]

    def done() -> None:
        for step in steps:
            step.is_done = True

    return done


@dataclass(frozen=True, slots=True)
class ReadingThread:
    """A thread for which another process may have read."""

    run: JobRun | None
    """The run it works for; None if none is recorded, because a plan says what goes into its rows."""
    is_planned: bool = False
    """As in `JobRun.register`."""
    thread: int = remembered.SOME_THREAD
    """Its number, if it is one of this process."""


def note_elsewhere(read: TableInput, readers: Sequence[ReadingThread]) -> None:
    """Register a read that another process did for this one.

    Args:
        read: what was read.
        readers: threads it may have been for.
    """
    if not readers:
        remembered.read(read.branch_uuid, read.name, thread=None)
    for reader in readers:
        if reader.run is None:
            continue
        if not reader.is_planned:
            remembered.read(read.branch_uuid, read.name, thread=reader.thread)
        if len(readers) > 1:
            reader.run.stray(read.name)
        else:
            reader.run.register(read, is_planned=reader.is_planned)


def _readers(context: TableContext, *, is_planned: bool = False) -> tuple[JobRun, ...]:
    """Return the jobs that this thread may be reading for; what the program itself gets is remembered."""
    if is_aside():
        return ()
    run, others = current(), open_runs()
    if run is None:
        run = next((found for find in READERS if (found := find()) is not None), None)
    thread = threading.get_ident() if run is not None else remembered.SOME_THREAD if others else None
    if not is_planned and not (run is not None and run.is_writing):
        remembered.read(context.branch_uuid, context.title, thread=thread)
        if run is not None and run.thread != thread:  # Spark calls back in threads of its own
            remembered.read(context.branch_uuid, context.title, thread=run.thread)
    if run is not None:
        return (run,)
    if len(others) > 1:
        for other in others:
            other.stray(context.title)
        return ()
    return others


def _noted(run: JobRun, register: Callable[[], None], context: TableContext) -> None:
    try:
        register()
    except AnabranchError as error:  # lineage must not fail a read
        run.problem(f"what was read of '{context.title}': {error}")


def _stamped(context: TableContext, position: Position) -> Position:
    """Return the position with its stamp, if the snapshot still exists: ids can be reused after a rollback."""
    if position.stamp is not None or position.snapshot == 0:
        return position
    found = context.snapshots.find(position.snapshot)
    return position if found is None else replace(position, stamp=found.stamp)


# The lineage entry of a commit made outside of any job, by a process that has read tables.
#
# Its writer is named after the program, or Spark's application. Such a commit gives no job a position.

Origin = Mapping[str, str]
"""Properties of a commit that say where its rows come from."""

ORIGINS: Final[list[Callable[[Any, Handed | None], Origin | None]]] = []
"""Hooks that know more of the rows that this thread writes to a table; Spark has one for its callbacks."""

_OUTSIDE: Final = (
    "the rows were written outside of any job, and may be made of what this process had read before: {}; read and write inside "
    "of lake.job()"
)


def outside_of_jobs(table: Any, rows: Handed | None) -> Origin:
    """Return the properties for a commit of these rows; empty if this process knows of no table they may come from."""
    known = next((found for origin in ORIGINS if (found := origin(table, rows)) is not None), None)
    if known is not None:
        return known
    before = unknown_rows(rows)
    if rows is None and before is None:
        return {}
    problems: tuple[str, ...] = ()
    if before is not None:
        problems = (_OUTSIDE.format(before),)
    inputs = () if rows is None else rows.inputs
    entry = LineageEntry(_program(), None, None, EMBEDDED, inputs, problems, is_positioned=False)
    return {LINEAGE_PROPERTY: entry.to_json()}


def _program() -> str:
    """Return the name of the program."""
    path = Path(sys.argv[0]) if sys.argv else Path()
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name.strip() == name and name.isprintable() and name not in ("", "-c", "-m") else "python"
