"""Corrections that are carried out now, as any process sees them: one at a time writes to the same branches.

Who carries one out holds a record of it in the warehouse, as those who run jobs do (`anabranch.jobs.board`), in a folder of
its own: ``_corrections/<table>@<branches>/run-<n>``. Another one that writes to the same branches is refused while it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from anabranch.errors import JobTakenError
from anabranch.jobs.board import Board
from anabranch.jobs.lease import Leases, Wanted
from anabranch.jobs.records import is_long
from anabranch.jobs.status import JobStatus, Process, State
from anabranch.jobs.taking import take
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lake import Lake

FOLDER: Final = "_corrections"
"""In the warehouse."""


@dataclass(frozen=True, slots=True)
class CorrectionScope:
    """What is corrected."""

    name: str
    """Of its branches."""
    table: str
    """The table that was wrong."""
    tag: str | None
    """Up to which it is right; None if its main was replaced already."""
    tables: tuple[str, ...]
    """All whose main it is going to change."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A correction that some process carries out now."""

    what: CorrectionScope
    process: Process
    since_millis: int
    said: str | None
    """What it told last."""

    def is_by(self, process_id: int | None) -> bool:
        """Whether a process of this machine carries it out."""
        return (self.process.host, self.process.pid) == (Process.own().host, process_id)


def underway(lake: Lake, runtime: Runtime = SYSTEM) -> list[Underway]:
    """Return the corrections that processes carry out now on a warehouse, by table and name."""
    return _found(_board(lake, runtime))


def _found(board: Board) -> list[Underway]:
    found = []
    for record in board.all():
        is_dead = None if record.is_over else record.process.is_dead()
        if record.is_over or is_dead or (is_dead is None and is_long(board.silence_millis(record))):
            continue
        status = record.status
        read, tag, said = (None, None, None) if status is None else (status.read, status.hint, status.message)
        table, _, name = record.key.partition("@")
        what = CorrectionScope(name or record.key, table, tag, tuple(read or ()))
        found.append(Underway(what, record.process, record.since_millis, said))
    return found


@dataclass(frozen=True, slots=True)
class HeldCorrection:
    """A correction that this process holds. Called with what is to be told to people, others see it too.

    A call looks first whether the correction is still held, so it raises `JobTakenError` if another process has taken it over,
    which it can once this one was silent for long. The last thing told before main is replaced makes that look the last.
    """

    wanted: Wanted
    leases: Leases
    tell: Callable[[str], None]
    status: JobStatus
    """A record has the fields of a job's: the tag is its hint, and the tables are what it reads."""

    def __call__(self, said: str) -> None:
        self.leases.check(self.wanted)
        self.tell(said)
        self.leases.note([replace(self.status, message=said)])


@contextmanager
def carried_out(
    lake: Lake, what: CorrectionScope, tell: Callable[[str], None], runtime: Runtime = SYSTEM
) -> Iterator[Callable[[str], None]]:
    """Hold a correction for this process while the block runs; what is told by the yielded `HeldCorrection` others see too.

    A `tell` that holds this correction already is yielded as it is. A batch job that was begun before another process took it over
    is not stopped by it, nor is what a store does late.

    Raises `JobTakenError`: another process carries it out, or another thread of this one.
    """
    wanted = Wanted(f"{what.table}@{what.name}", what.name, what.table, kind="correction")
    if isinstance(tell, HeldCorrection) and tell.wanted == wanted:
        yield tell
        return
    board = _board(lake, runtime)
    board.sweep()
    try:
        leases = take(board, [wanted], tell=tell)
    except JobTakenError as error:
        others = [one for one in _found(board) if (one.what.table, one.what.name) == (what.table, what.name)]
        raise _taken_error(f"this correction of {what.table}", others[0] if others else None) from error
    tables = dict.fromkeys(what.tables, 0)
    status = JobStatus(what.name, what.table, State.RUNNING, hint=what.tag, read=tables)
    with leases.beating():
        leases.note([status])
        leases.beat()
        # Only now, when others see which tables this one is of: of two at the same moment one sees the other.
        for one in _found(board):
            shared = sorted({*what.tables} & {*one.what.tables})
            if one.what.name == what.name and one.what.table != what.table and shared:
                raise _taken_error(f"a correction of {', '.join(shared)} on branches '{what.name}'", one)
        yield HeldCorrection(wanted, leases, tell, status)


def _taken_error(what: str, other: Underway | None) -> JobTakenError:
    return JobTakenError(
        f"{what} is carried out by {'another process' if other is None else other.process} already",
        hint="wait for its end, or end it there; run again it goes on where that was.",
    )


def _board(lake: Lake, runtime: Runtime) -> Board:
    return Board(open_storage(lake.url, lake.storage_options), runtime, FOLDER)
