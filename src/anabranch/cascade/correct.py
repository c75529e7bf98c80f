"""Corrects a table and everything made from it in one operation: from a tag, by corrected jobs, published at once.

The table itself is the first table of the cascade: its branch begins with the tag, its jobs run on it
from the source positions and state of the tag, and the tables made from it follow, reading the branches before them.
Then the checks decide, and one write makes all branches main. Until then nothing is visible to readers. Crash-safe: can
be killed and run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anabranch.cascade.correction import FromTag
from anabranch.cascade.naming import is_correction_of
from anabranch.cascade.plan import work_of
from anabranch.cascade.result import CascadeResult
from anabranch.cascade.run import CascadeOptions, Runner, carry_out
from anabranch.cascade.values import CascadePlan
from anabranch.cascade.work import Work
from anabranch.errors import NotFoundError
from anabranch.jobs.checkpoint import Places
from anabranch.jobs.job import Job
from anabranch.jobs.task import Stop
from anabranch.kernel.replacement.result import GroupResult
from anabranch.kernel.replacement.undo_group import last_to_undo

if TYPE_CHECKING:
    from anabranch.lake import Lake


def plan_correction(
    lake: Lake,
    table: str,
    from_tag: str,
    jobs: Sequence[Job],
    *,
    name: str | None = None,
    checkpoint: str | None = None,
    checkpoints: str | None = None,
) -> CascadePlan:
    """Return what a correction of a table from a tag would do, table by table. Nothing is changed.

    Args:
        lake: the warehouse.
        table: the wrong table.
        from_tag: a tag of it, up to which it is correct.
        jobs: corrected, with their names in lineage; those that write the table, and those downstream.
        name: of the branches; derived from table and tag if None. Another name begins the same correction anew.
        checkpoint: folder of the checkpoint of the only job with a stream among its sources, if one was named for it.
        checkpoints: folder with the jobs' checkpoints, if it is not that of the warehouse.

    Raises:
        NotFoundError: there is no such table or tag.
        InvalidInputError: the tag is not in the history of main.
    """
    places = Places(checkpoint, checkpoints)
    return work_of(lake, table, jobs, FromTag(from_tag, name), places=places).plan


def run_correction(
    lake: Lake,
    table: str,
    from_tag: str,
    jobs: Sequence[Job],
    options: CascadeOptions | None = None,
    *,
    name: str | None = None,
    checks: str | os.PathLike[str] | None = None,
    runner: Runner | None = None,
    stop: Stop | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> CascadeResult:
    """Correct a table from a tag, and everything made from it, and publish all of it together.

    Args:
        lake: the warehouse, with a Spark session for its jobs.
        table: the wrong table.
        from_tag: as for `plan_correction`.
        jobs: likewise.
        options: how.
        name: as for `plan_correction`.
        checks: file of checks that the corrected table must pass before anything is published.
        runner: as for `run_cascade`.
        stop: likewise.
        tell: likewise.

    Raises:
        NotFoundError, InvalidInputError: as `plan_correction`.
        CommitConflictError: an audit failed, the plan has changed meanwhile, or the mains cannot be replaced.
            All mains are as they were.
        JobTakenError: another process carries it out.
    """
    options, stop = options or CascadeOptions(), stop or Stop()

    def planned() -> Work:
        return work_of(lake, table, jobs, FromTag(from_tag, name), places=options.places)

    return carry_out(lake, planned, jobs, options, checks=checks, runner=runner, stop=stop, tell=tell)


def undo_correction(
    lake: Lake,
    table: str,
    from_tag: str,
    *,
    name: str | None = None,
    by: str | None = None,
    reason: str | None = None,
) -> GroupResult:
    """Undo what a correction published, in all of its tables at once. Repeating it changes nothing.

    Raises `NotFoundError`: it was never published; otherwise as `Lake.undo_group`.
    """
    full_name = lake.table(table).context.name

    def is_wanted(branch: str) -> bool:
        return is_correction_of(full_name, from_tag, branch) if name is None else branch == name

    number = last_to_undo(
        lake.groups(), lambda group: any(of == table and is_wanted(branch) for of, branch, _ in group.tables)
    )
    if number is None:
        raise NotFoundError(
            f"no correction of '{table}' from tag '{from_tag}' was published",
            hint="`anabranch cascade --groups` lists what was published in several tables at once.",
        )
    return lake.undo_group(number, by=by, reason=reason)
