"""Corrections that are carried out now, as any process sees them: one at a time writes to the same branches.

Who carries one out holds a record of it in the warehouse, as those who run jobs do (`anabranch.jobs.board`), in a folder of
its own: ``_corrections/<branches>/run-<n>``. Another one for the same branches is refused while it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import JobTakenError
from anabranch.jobs.board import Board
from anabranch.jobs.lease import Wanted, take
from anabranch.jobs.records import is_silent
from anabranch.jobs.status import JobStatus, State
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lake import Lake

FOLDER: Final = "_corrections"
"""In the warehouse."""


@dataclass(frozen=True, slots=True)
class Correction:
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

    what: Correction
    process: str
    """For people: ``process 17 on host``."""
    since_millis: int
    said: str | None
    """What it told last."""


def underway(lake: Lake, runtime: Runtime = SYSTEM) -> list[Underway]:
    """Return the corrections that processes carry out now on a warehouse, by name."""
    found, now = [], runtime.clock.now_millis()
    for record in _board(lake, runtime).all():
        if record.is_over or record.process.is_dead() or is_silent(record, now):
            continue
        status = record.status
        read, tag, said = (None, None, None) if status is None else (status.read, status.hint, status.message)
        what = Correction(record.key, record.sink or record.key, tag, tuple(read or ()))
        found.append(Underway(what, str(record.process), record.since_millis, said))
    return found


@contextmanager
def carried_out(lake: Lake, what: Correction, tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Hold a correction for this process while the block runs; what is told by the yielded function others see too.

    Raises `JobTakenError`: another process carries it out.
    """
    board = _board(lake, SYSTEM)
    board.sweep()
    wanted = Wanted(what.name, what.name, what.table)
    try:
        leases = take(board, [wanted], tell=tell)
    except JobTakenError as error:
        others = [one for one in underway(lake) if one.what.name == what.name]
        who = others[0].process if others else "another process"
        raise JobTakenError(
            f"this correction of {what.table} is carried out by {who} already",
            hint="wait for its end, or end it there; run again it goes on where that was.",
        ) from error

    def note(said: str | None) -> None:
        # A record has the fields of a job's: the tag is its hint, and the tables are what it reads.
        tables = dict.fromkeys(what.tables, 0)
        status = JobStatus(what.name, what.table, State.RUNNING, message=said, hint=what.tag, read=tables)
        leases.note([status])

    def told(said: str) -> None:
        tell(said)
        note(said)

    with leases.beating():
        note(None)
        leases.beat()
        yield told


def _board(lake: Lake, runtime: Runtime) -> Board:
    return Board(open_storage(lake.url, lake.storage_options), runtime, FOLDER)
