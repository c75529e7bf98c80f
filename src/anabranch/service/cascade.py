"""Cascades, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.cascade import (
    CascadeOptions,
    CascadePlan,
    CascadeResult,
    on_spark,
    plan_cascade,
    run_cascade,
    undo_cascade,
)
from anabranch.cascade.telling import command_of, told_group, told_groups, told_plan, told_result
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import Job
from anabranch.jobs.run import stopping
from anabranch.jobs.supervise import Policy
from anabranch.kernel.replacement.group_result import GroupInfo, GroupResult
from anabranch.lake import connect
from anabranch.service.branches import user
from anabranch.service.jobs import JobStatus, Spark, check_spark, declared
from anabranch.service.local_spark import local_spark

if TYPE_CHECKING:
    from anabranch.jobs.status import RunEvent

__all__ = [
    "CascadePlan",
    "CascadeResult",
    "GroupInfo",
    "GroupResult",
    "How",
    "Spark",
    "command_of",
    "groups",
    "plan",
    "run",
    "told_group",
    "told_groups",
    "told_plan",
    "told_result",
    "undo",
]


@dataclass(frozen=True, slots=True)
class How:
    """How to run a cascade."""

    files: Sequence[str] = ()
    """Files that declare the jobs."""
    publish: bool = True
    by_hand: Sequence[str] = ()
    audits: Mapping[str, str] = field(default_factory=dict)
    """Files of checks, by table."""
    max_restarts: int = 10
    reason: str | None = None
    accept_empty_state: Sequence[str] = ()
    """Jobs that may begin without state if none can be recovered."""


def plan(warehouse: str, table: str, files: Sequence[str]) -> CascadePlan:
    """Return what has to be done after main of a table was replaced. Raises what `plan_cascade` and `load` raise."""
    return plan_cascade(connect(warehouse), table, _jobs(warehouse, files))


def run(
    warehouse: str,
    table: str,
    how: How,
    spark: Spark,
    *,
    tell: Callable[[str], None],
    on_status: Callable[[Sequence[JobStatus]], None],
    on_event: Callable[[RunEvent], None] = lambda _: None,
) -> CascadeResult:
    """Run it in the name of the logged-in user; Spark is started only if a job is to run. Raises as `run_cascade`."""
    jobs = _jobs(warehouse, how.files, spark)
    options = CascadeOptions(
        how.publish, tuple(how.by_hand), how.audits, tuple(how.accept_empty_state), user(), how.reason
    )
    if plan_cascade(connect(warehouse), table, jobs).is_done:
        return run_cascade(connect(warehouse), table, jobs, options)
    check_spark()
    with (
        stopping() as stop,
        local_spark(
            warehouse,
            f"anabranch cascade {table}",
            master=spark.master,
            conf=spark.conf,
            quiet=not spark.loud,
        ) as session,
    ):
        runner = on_spark(stop, policy=Policy(most=how.max_restarts), on_status=on_status, on_event=on_event)
        lake = connect(warehouse, spark=session)
        return run_cascade(lake, table, jobs, options, runner=runner, stop=stop, tell=tell)


def undo(warehouse: str, table: str | None, number: str, *, reason: str | None) -> GroupResult:
    """Undo a cascade: by the number of its group, or the ``last`` one, of a table if one is named."""
    if number != "last" and not number.isdigit():
        raise InvalidInputError(
            f"'{number}' is no number of a group",
            hint="`anabranch cascade --groups` lists them; or write 'last'.",
        )
    group = None if number == "last" else int(number)
    return undo_cascade(connect(warehouse), group, table=table, by=user(), reason=reason)


def groups(warehouse: str) -> list[GroupInfo]:
    """Return replacements in several tables at once, oldest first."""
    return connect(warehouse).groups()


def _jobs(warehouse: str, files: Sequence[str], spark: Spark | None = None) -> list[Job]:
    return declared(files, warehouse=warehouse, spark=spark) if files else []
