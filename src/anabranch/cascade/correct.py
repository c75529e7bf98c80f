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
    """Return what a correction of a table from a tag would do, table by table; nothing is changed. See `Lake.correct`.

    `jobs` are those that write the table, and those downstream, with their names in lineage.
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
    """Correct a table from a tag, and everything made from it, and publish all of it together. See `Lake.correct`.

    The lake needs a Spark session for its jobs, `jobs` are as for `plan_correction`, and `runner`, `stop` and `tell` as
    for `run_cascade`. Raises `CommitConflictError` also if the plan has changed meanwhile.
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
