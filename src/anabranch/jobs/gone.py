"""Checkpoints that no job goes on with: their table or branch is gone for good, or they were set aside.

They are told by the identities in them and not by names, which others may have by now. One that holds state for tags of
its table, or that was touched lately, stays: the deletion of a branch may be under way, or its job not have noticed yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import ASIDE, JobCheckpoint, all_checkpoints
from anabranch.jobs.state.held import KEPT_FOLDER
from anabranch.kernel.log.main_branch import main_by_uuid
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table

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
