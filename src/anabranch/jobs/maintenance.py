"""Maintenance beside running jobs: the tables that they read and write are kept within bounds by a thread.

Each round does what `anabranch maintain` does with one table after another, and removes checkpoints that no job can go on
with. It runs in the driver without Spark, so that it takes nothing from the batches but time; it may be killed anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import ASIDE, JobCheckpoint, all_checkpoints
from anabranch.jobs.job import Job
from anabranch.jobs.state.held import KEPT_FOLDER
from anabranch.kernel.log.main_branch import main_by_uuid
from anabranch.lake import Lake, connect
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table


_FIRST_SECONDS = 60.0
"""Before the first round: jobs start first."""
_LEAVE_SECONDS = 5.0
"""How long the end waits for a round; what it is at is safe to cut off."""


@dataclass
class Keeping:
    """Maintains the tables of jobs, again and again."""

    lake: Lake
    tables: Sequence[str]
    tell: Callable[[str], None] = lambda _: None
    """Told what went wrong, once until it is well again, and what was removed that somebody may miss."""
    runtime: Runtime = SYSTEM
    _told: dict[str, str] = field(default_factory=dict)

    def round(self, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Maintain every table once."""
        for name in self.tables:
            if is_ended():
                return
            self._try(name, lambda name=name: self._maintain(name))  # type: ignore[misc]
        if not is_ended():
            self._try("checkpoints", self._remove_checkpoints)

    def _maintain(self, name: str) -> None:
        self.lake.table(name).maintain()

    def _remove_checkpoints(self) -> None:
        for gone in remove_gone_checkpoints(self.lake, runtime=self.runtime):
            self.tell(f"removed the checkpoint {gone.location} of job '{gone.job}': {gone.why}")

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except AnabranchError as error:
            message = f"maintenance of {what}: {error.message}" + (
                f"\n  hint: {error.hint}" if error.hint else ""
            )
            if self._told.get(what) != message:
                self.tell(message)
            self._told[what] = message
            return
        if self._told.pop(what, None) is not None:
            self.tell(f"maintenance of {what} works again")

    @contextmanager
    def kept(self, seconds: float) -> Iterator[None]:
        """Do a round every so many seconds while the block runs."""
        ended = threading.Event()

        def work() -> None:
            pause = min(seconds, _FIRST_SECONDS)
            while not ended.wait(pause):
                pause = seconds
                self.round(ended.is_set)

        thread = threading.Thread(target=work, name="maintenance", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_LEAVE_SECONDS)


def keeping_of(
    warehouse: str, jobs: Sequence[Job], branch: str | None, tell: Callable[[str], None]
) -> Keeping:
    """Return what maintains the tables that jobs read, and those that they write, on their branch."""
    lake = connect(warehouse)
    read = [source.name for job in jobs for source in job.sources.values() if source.is_table]
    suffix = "" if branch in (None, "main") else f"$branch_{branch}"
    written = [f"{job.sink}{suffix}" for job in jobs]
    return Keeping(lake, [*dict.fromkeys([*written, *read])], tell)


# Checkpoints that no job goes on with: their table or branch is gone for good, or they were set aside.
#
# They are told by the identities in them and not by names, which others may have by now. One that holds state for tags of
# its table, or that was touched lately, stays: the deletion of a branch may be under way, or its job not have noticed yet.

QUIET_MILLIS: Final = 7 * 24 * 3600 * 1000
"""For which nobody has written to a checkpoint that is removed."""


@dataclass(frozen=True, slots=True)
class GoneCheckpoint:
    """A checkpoint that is of no use any more."""

    job: str
    location: str
    why: str


def remove_gone_checkpoints(
    lake: Lake, *, dry_run: bool = False, runtime: Runtime = SYSTEM
) -> list[GoneCheckpoint]:
    """Remove the checkpoints that no job can go on with, and return them; only return them with `dry_run`."""
    tables = {table.table_uuid: table for table in _tables(lake)}
    removed = []
    for checkpoint in all_checkpoints(lake.url, lake.storage_options):
        found = _gone(checkpoint, tables, runtime.clock.now_millis())
        if found is None:
            continue
        removed.append(found)
        if not dry_run:
            above, _, name = checkpoint.location.rpartition("/")
            open_storage(above, lake.storage_options).delete_folder(name)
    return removed


def _tables(lake: Lake) -> Iterator[Table]:
    """Yield all tables. Raises what opening one raises: one that cannot be opened is not gone."""
    for database in lake.databases():
        for name in lake.tables(database):
            try:
                yield lake.table(f"{database}.{name}")
            except NotFoundError:
                continue  # dropped since


def _gone(checkpoint: JobCheckpoint, tables: dict[str, Table], now: int) -> GoneCheckpoint | None:
    try:
        begun = checkpoint.known()
    except AnabranchError:
        return None  # of a newer version, or damaged: not for us to judge
    if begun is None:
        return None
    table, is_aside = tables.get(begun.table_uuid), ASIDE in checkpoint.location.rpartition("/")[2]
    if not is_aside and table is not None and _has_branch(table, begun.branch_uuid):
        return None
    newest = 0
    for info in checkpoint.storage.list(recursive=True, include_temporary=True):
        if info.path.startswith(f"{KEPT_FOLDER}/"):
            return None
        newest = max(newest, info.modified_millis)
    if now - newest < QUIET_MILLIS:
        return None
    why = (
        f"the branch of '{table.name}' that it wrote to is gone" if table is not None else "its table is gone"
    )
    if is_aside:
        why = "it was set aside"
    return GoneCheckpoint(begun.job, checkpoint.location, why)


def _has_branch(table: Table, branch_uuid: str) -> bool:
    if main_by_uuid(table.context, branch_uuid) is not None:
        return True
    return any(table.branch(name).branch_uuid == branch_uuid for name in table.branches())
